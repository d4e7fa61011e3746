"""Clients that send or read slowly, or not at all, and clients in great number."""

import asyncio
import gc
import os
import re
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import h11
import httpx
import numpy as np
import psutil
import pytest
from live.serving import hostile
from live.serving.served import MODEL, b64, serving
from support.checkout import wait_until

from perennial.data.images import png
from perennial.live.serving import connections
from perennial.live.serving.connections import EVENTS, TURNS, Parser, Turns

pytestmark = pytest.mark.timing

PREDICT = f"{MODEL}:predict"
IMAGE = np.arange(16 * 16, dtype=np.uint8).reshape(16, 16)
BODY = b"POST /v1/models/pets:predict HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{"


def connect(client, **options):
    raw = socket.socket()
    for option, value in options.items():
        raw.setsockopt(socket.SOL_SOCKET, getattr(socket, option), value)
    raw.connect((client.base_url.host, client.base_url.port))
    return raw


def open_connections(server):
    return len(server._uvicorn.server_state.connections)


def test_a_client_that_does_not_read_is_closed(world):
    with serving(world.folder, response_s=0.2) as (server, client), connect(client, SO_RCVBUF=4096) as raw:
        raw.setblocking(False)
        for _ in range(100_000):  # until neither side takes more
            try:
                raw.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 10)
            except BlockingIOError:
                if open_connections(server) == 2:
                    continue
            except OSError:
                break
        client.close()
        wait_until(lambda: open_connections(server) == 0, 60)


def test_a_client_that_reads_slowly_gets_all_of_a_response(world):
    with serving(world.folder, response_s=60) as (_, client), connect(client, SO_RCVBUF=4096) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" * 1)
        content = b"".join(iter(lambda: raw.recv(100), b""))
    length = int(re.search(rb"content-length: (\d+)", content)[1])
    assert len(content.partition(b"\r\n\r\n")[2]) == length


def test_a_chunked_body_of_single_bytes_takes_turns_with_other_connections():
    parser = Parser(h11.SERVER)
    parser.receive_data(
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 1000
    )
    events = list(iter(parser.next_event, h11.NEED_DATA))
    assert len(events) == EVENTS


def test_a_chunked_body_of_single_bytes_is_read_as_it_is_meant(client):
    body = client.build_request("POST", PREDICT, json={"instances": [b64(png.encode(IMAGE))]}).content
    answer = client.post(PREDICT, content=(body[at : at + 1] for at in range(len(body))))
    assert answer.content == client.post(PREDICT, content=body).content


def test_breaks_leave_reading_paused_until_all_that_was_received_is_parsed(world, monkeypatch):
    changes = []
    # Newer Pythons have these methods in its base.
    transport = asyncio.selector_events._SelectorSocketTransport
    for name in ("pause_reading", "resume_reading"):
        before = getattr(transport, name)

        def counted(self, before=before):
            reading = self.is_reading()
            before(self)
            changes.append(self.is_reading() != reading)

        monkeypatch.setattr(transport, name, counted)
    with serving(world.folder) as (_, client), connect(client) as raw:
        raw.sendall(b"POST /health HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        raw.sendall(b"1\r\nx\r\n" * 5000 + b"0\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 405")
        wait_until(lambda: len(changes) > 100, 60)  # breaks, which go on after the answer
    assert sum(changes) < 100


def test_a_round_of_the_event_loop_has_turns_for_some_connections_and_for_all_that_begin():
    done = []

    class Waiting:
        def go_on(self, turns):
            done.append(turns.take())

    async def rounds():
        heads, bodies = Turns(), Turns()
        for _ in range(3 * TURNS):
            bodies.wait(Waiting())
        for number in range(1, 4):
            assert heads.take()
            await asyncio.sleep(0)
            assert done == [True] * number * TURNS
            assert not bodies.take()

    asyncio.run(rounds())


def test_connections_that_closed_keep_no_turn_from_others():
    done = []

    class Closed:
        def go_on(self, _):
            done.append(self)

    async def rounds():
        turns = Turns()
        for _ in range(3 * TURNS):
            turns.wait(Closed())
        for _ in range(4):
            await asyncio.sleep(0)

    asyncio.run(rounds())
    assert len(done) == 3 * TURNS


def test_bodies_on_more_connections_than_have_a_turn_are_read_as_they_are_meant(world, monkeypatch):
    monkeypatch.setattr(connections, "TURNS", 2)
    head = b"POST /v1/models/pets:predict HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
    body = b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n[\r\n" * 50 + b"0\r\n\r\n"
    with serving(world.folder) as (_, client), ExitStack() as stack:
        clients = [stack.enter_context(connect(client)) for _ in range(20)]
        for raw in clients:
            raw.sendall(head + body)
        answers = [b"".join(iter(partial(raw.recv, 1000), b"")) for raw in clients]
    assert all(b"is not JSON" in answer for answer in answers)


def test_a_head_without_end_is_refused(client):
    with connect(client) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 4000)
        assert raw.recv(100).startswith(b"HTTP/1.1 400")


def test_connections_without_a_request_make_room_for_others(world, monkeypatch):
    monkeypatch.setattr(connections, "CONNECTIONS", 5)
    with serving(world.folder) as (_, client), ExitStack() as stack:
        silent = [stack.enter_context(connect(client)) for _ in range(20)]
        # On a connection of its own: the one of `client` is idle and may be closed, too.
        assert httpx.get(f"{client.base_url}ready").status_code == 200
        assert silent[0].recv(1) == b""


def test_health_is_answered_while_more_clients_send_bodies_than_the_server_takes(world, monkeypatch):
    with serving(world.folder) as (server, client), ExitStack() as stack:
        for number in range(7):
            stack.enter_context(connect(client)).sendall(BODY)
            wait_until(lambda: len(server._uvicorn.server_state.tasks) > number, 60)  # noqa: B023 - called at once
        for module in ("connections", "server"):
            monkeypatch.setattr(f"perennial.live.serving.{module}.CONNECTIONS", 5)
        address = str(client.base_url)
        health, ready = httpx.get(f"{address}health"), httpx.get(f"{address}ready")
        assert health.status_code == 200
        assert ready.status_code == 503
        assert ready.headers["Retry-After"] == "1"


@pytest.fixture
def process(world, tmp_path):
    """A server of its own process, and its port."""
    command = [
        sys.executable,
        "-m",
        "perennial",
        "serve",
        "--model",
        world.folder,
        "--name",
        "pets",
        "--port",
        "0",
    ]
    log = tmp_path / "log"
    with log.open("w") as stream, subprocess.Popen(command, cwd=tmp_path, stderr=stream) as process:
        try:
            wait_until(lambda: "serving version" in log.read_text())
            yield psutil.Process(process.pid), int(re.search(r"127\.0\.0\.1:(\d+)", log.read_text())[1])
        finally:
            process.terminate()


def attacked(process, each):
    """Run hostile clients; return the times of a probe, and by how many bytes the server grew at most."""
    server, port = process
    before = server.memory_info().rss
    command = [sys.executable, "-m", "live.serving.hostile", str(port), str(server.pid), str(each)]
    environment = {**os.environ, "PYTHONPATH": str(Path(hostile.__file__).parents[2])}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as clients:
        most = before
        while clients.poll() is None:
            most = max(most, server.memory_info().rss)
            time.sleep(0.05)  # the two cores belong to clients and server
        printed = clients.stdout.read()
    assert clients.returncode == 0
    print(printed.strip(), f"- grew by {(most - before) / 1e6:.0f} MB")
    return most - before


def test_answered_requests_do_not_stay_in_memory(world):
    """Garbage collection looks through all of them, while everybody waits."""
    with serving(world.folder) as (_, client):
        client.get("health")
        before = cycles()
        for _ in range(100):
            client.get("health")
        assert cycles() - before < 10


def cycles() -> int:
    """The number of requests in memory."""
    gc.collect()
    return sum(type(each).__name__ == "RequestResponseCycle" for each in gc.get_objects())


@pytest.mark.slow
def test_hostile_clients_of_each_kind_keep_no_probe_waiting_for_ever(process):
    assert attacked(process, 2) < 2e9


@pytest.mark.slow
def test_a_thousand_hostile_clients_keep_memory_bounded_and_every_probe_is_answered(process):
    assert attacked(process, 1000 // len(hostile.KINDS)) < 2e9
