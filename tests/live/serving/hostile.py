"""Kinds of clients that would keep a server from answering others.

`python -m live.serving.hostile PORT PID EACH` runs that many of each kind at once against a server on
this machine, and prints what a probe's requests to `/health` took: in seconds, and in the processor time of the
server meanwhile, which says more on a busy machine.
"""

import asyncio
import base64
import contextlib
import io
import json
import multiprocessing
import socket
import struct
import sys
import time
import zlib
from collections.abc import Awaitable, Callable
from functools import cache

import PIL.Image
import psutil

HOLD_S = 10  # clients that wait do so for this time, if the server lets them
HEAD = b"POST /v1/models/pets:predict HTTP/1.1\r\nHost: a\r\n"
Client = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def posted(body: bytes) -> bytes:
    """A whole request."""
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


def image(content: bytes) -> bytes:
    return posted(json.dumps({"instances": [{"b64": base64.b64encode(content).decode()}]}).encode())


def png(width: int, height: int, chunks: int = 0, lines: int = 0) -> bytes:
    """A PNG of this size with some empty chunks, and a picture that ends early without all lines."""

    def chunk(kind: bytes, content: bytes = b"") -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    data = chunk(b"IDAT", zlib.compress(bytes(lines * (width + 1) or 1000)))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"teSt") * chunks + data + chunk(b"IEND")


@cache
def picture(kind: str, mode: str, side: int) -> bytes:
    """A black picture whose decoder holds Python's lock for long."""
    stream = io.BytesIO()
    PIL.Image.new(mode, (side, side)).save(stream, kind)
    return stream.getvalue()


async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await asyncio.wait_for(reader.read(), HOLD_S)


async def drip(writer: asyncio.StreamWriter, content: bytes) -> None:
    for byte in content:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(HOLD_S / 50)


async def slow_head(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await drip(writer, HEAD)


async def slow_body(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"Content-Length: 1000\r\n\r\n")
    await drip(writer, b"{" * 50)


async def reads_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.transport.pause_reading()
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    for _ in range(200):
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    await asyncio.sleep(HOLD_S)


async def tiny_chunks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    for _ in range(20):
        writer.write(b"1\r\n[\r\n" * 1000)
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    await reader.read(1)


def once(request: Callable[[], bytes]) -> Client:
    """Send one request and wait for the response."""

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(request())
        await writer.drain()
        await asyncio.wait_for(reader.read(1), 6 * HOLD_S)

    return client


async def leaves(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send a request and reset the connection."""
    writer.write(posted(b"[" + b"0," * 20_000 + b"0]"))
    await writer.drain()
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


KINDS: dict[str, Client] = {
    "silent": silent,
    "slow head": slow_head,
    "slow body": slow_body,
    "reads nothing": reads_nothing,
    "tiny chunks": tiny_chunks,
    "many headers": once(lambda: b"GET / HTTP/1.1\r\n" + b"a:\r\n" * 50_000 + b"\r\n"),
    "many values": once(lambda: posted(b'{"instances":[[' + b"[[1],[1]]," * 400_000 + b"[[1],[1]]]]}")),
    "images": once(lambda: image(png(7000, 7000))),
    "many chunks": once(lambda: image(png(100, 100, chunks=100_000))),
    "leaves": leaves,
    "many keys": once(
        lambda: posted(b'{"instances":{' + b",".join(b'"%x":0' % n for n in range(1_000_000)) + b"}}")
    ),
    "deep": once(lambda: posted(b'{"instances":' + b'{"a":[' * 400_000)),
    "no base64": once(lambda: posted(b'{"instances":[{"b64":"' + b"AAAA" * 5_000_000 + b'!"}]}')),
    "large picture": once(lambda: image(png(7000, 7000, lines=7000))),
    "16 bits": once(lambda: image(picture("PNG", "I;16", 3000))),
    "trailers": once(lambda: HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 20_000),
    "long key": once(lambda: posted(b'{"instances":{"' + b"\xc3\xa9" * 10_000_000 + b'":1}}')),
    "pipelined": once(lambda: posted(b"{}") * 500),
}


async def attack(port: int, each: int) -> dict[str, int]:
    """Run clients of all kinds at once; returns how many of each ended without a response or with an error."""
    ended = dict.fromkeys(KINDS, 0)

    async def run(kind: str) -> None:
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                await KINDS[kind](reader, writer)
                ended[kind] += 1
            finally:
                writer.close()

    await asyncio.gather(*(run(kind) for kind in KINDS for _ in range(each)))
    return ended


def probe(port: int, server: int, stop, times) -> None:  # type: ignore[no-untyped-def]
    """Ask for `/health` on new connections until the event is set; send the times."""
    process = psutil.Process(server)
    while not stop.is_set():
        started, worked = time.monotonic(), sum(process.cpu_times()[:2])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as raw:
            raw.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            content = b"".join(iter(lambda: raw.recv(4096), b""))
        assert content.startswith(b"HTTP/1.1 200"), content
        times.append((time.monotonic() - started, sum(process.cpu_times()[:2]) - worked))
        time.sleep(0.02)


def probed(port: int, server: int, each: int) -> list[tuple[float, float]]:
    """The times of a probe's requests while all kinds of clients are at work."""
    spawning = multiprocessing.get_context("spawn")
    with spawning.Manager() as manager:
        stop, times = manager.Event(), manager.list()
        process = spawning.Process(target=probe, args=(port, server, stop, times))
        process.start()
        try:
            asyncio.run(attack(port, each))
        finally:
            stop.set()
            process.join()
        assert process.exitcode == 0
        return list(times)


if __name__ == "__main__":
    port, server, each = map(int, sys.argv[1:])
    columns = zip(*probed(port, server, each), strict=True)
    for name, times in zip(("seconds", "server's processor seconds"), columns, strict=True):
        middle = sorted(times)[len(times) // 2]
        print(f"{len(times)} probes, {name}: median {middle:.3f}, longest {max(times):.3f}")
