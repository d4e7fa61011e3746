"""Servers on this machine that fail on demand: a source of images, and S3."""

import http.client
import importlib.util
import random
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.request import urlopen

from perennial.base.errors import PerennialError
from perennial.project.rehearsal.marked_programs import Program, chance

START_S = 120.0
CHUNK_BYTES = 1 << 12


def free_port() -> int:
    """A port of this machine that nothing uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class ImageServer:
    """A web server for one folder, on a fixed port, that can go offline and come back."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.cut_after: int | None = None  # bytes that it still sends before the network is lost
        self.lost = threading.Event()  # set once its port is closed
        self._changing = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self.back()

    @property
    def address(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.port}"

    def back(self) -> None:
        """Listen, initially or after an outage."""
        with self._changing:
            self.cut_after = None
            self.lost.clear()
            if self._server is None:
                handler = type("Handler", (_SourceHandler,), {"source": self})
                self._server = ThreadingHTTPServer(("127.0.0.1", self.port), handler)
                threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def lose(self) -> None:
        """Stop listening: further connections are refused."""
        with self._changing:
            server, self._server = self._server, None
            if server is not None:
                server.shutdown()
                server.server_close()
            self.lost.set()

    def takes(self, size: int) -> int:
        """The number of bytes, out of the next `size`, that may still be sent."""
        with self._changing:
            if self.lost.is_set():
                return 0
            if self.cut_after is None:
                return size
            sent = min(size, self.cut_after)
            self.cut_after -= sent
            return sent


class _Quiet(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Do not log to the terminal."""

    def hang_up(self) -> None:
        """Close the connection in the middle of a response."""
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


class _SourceHandler(_Quiet):
    """Serves whole files or ranges from a byte offset."""

    source: ClassVar[ImageServer]

    def _respond(self) -> None:
        content = (self.source.folder / Path(self.path).name).read_bytes()
        start = 0
        if (wanted := self.headers.get("Range", "")).startswith("bytes="):
            start = int(wanted[6:].partition("-")[0])
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.send_header("ETag", '"rehearsal"')
        self.end_headers()
        for at in range(start, len(content) if self.command == "GET" else start, CHUNK_BYTES):
            piece = content[at : at + CHUNK_BYTES]
            allowed = self.source.takes(len(piece))
            self.wfile.write(piece[:allowed])
            if allowed < len(piece):
                threading.Thread(target=self.source.lose, daemon=True).start()
                self.hang_up()
                return

    do_GET = do_HEAD = _respond


def s3_missing() -> str | None:
    """The reason why an S3 server cannot run here; None if it can."""
    missing = [name for name in ("boto3", "dvc_s3", "moto", "flask") if importlib.util.find_spec(name) is None]
    return f"needs the extra s3 and moto[server]; missing: {', '.join(missing)}" if missing else None


class FaultyS3:
    """moto's S3 server behind a proxy that fails a share of the requests."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(self.port)]
        self.program = Program(command, folder, environment)
        wait_for_server(f"http://127.0.0.1:{self.port}/", self.program)
        self.share, self.rng, self.failed = 0.0, chance(0), 0
        handler = type("Handler", (_S3Handler,), {"s3": self})
        self._proxy = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self._proxy.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        """The URL of the proxy."""
        return f"http://127.0.0.1:{self._proxy.server_port}"

    def make_bucket(self, name: str) -> None:
        """Make a bucket, without faults."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("PUT", f"/{name}")
        connection.getresponse().read()
        connection.close()

    @contextmanager
    def failing(self, share: float, rng: random.Random) -> Iterator[None]:
        """Fail this share of the requests of the block."""
        self.share, self.rng, self.failed = share, rng, 0
        try:
            yield
        finally:
            self.share = 0.0

    def stop(self) -> None:
        """End both servers."""
        self._proxy.shutdown()
        self._proxy.server_close()
        self.program.process.kill()
        self.program.wait()


class _S3Handler(_Quiet):
    """Forwards a request or fails it: with a server error, a closed connection or a truncated body."""

    s3: ClassVar[FaultyS3]

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = (
            self.s3.rng.choice(("500", "503", "reset", "cut")) if self.s3.rng.random() < self.s3.share else None
        )
        if fault:
            self.s3.failed += 1
        if fault == "reset":
            self.hang_up()
            return
        if fault in {"500", "503"}:
            self._answer(int(fault), {}, b"")
            return
        connection = http.client.HTTPConnection("127.0.0.1", self.s3.port)
        connection.request(self.command, self.path, body, dict(self.headers.items()))
        response = connection.getresponse()
        content = response.read()
        connection.close()
        headers = {name: value for name, value in response.headers.items() if name != "Transfer-Encoding"}
        self._answer(response.status, headers, content, cut=fault == "cut")

    def _answer(self, status: int, headers: Mapping[str, str], content: bytes, *, cut: bool = False) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in {"content-length", "connection"}:
                self.send_header(name, value)
        length = (
            headers.get("Content-Length", str(len(content))) if self.command == "HEAD" else str(len(content))
        )
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if cut else content)
        if cut:
            self.hang_up()

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass


def wait_for_server(url: str, program: Program) -> None:
    """Wait until a server answers."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and not program.ended:
        with suppress(OSError), urlopen(url, timeout=5):  # noqa: S310 - this machine's
            return
        time.sleep(0.2)
    program.process.kill()
    raise PerennialError(f"the server of {url} did not start: {program.wait().last_lines(5)}")
