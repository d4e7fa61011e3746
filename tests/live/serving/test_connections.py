"""Clients that send or read slowly, or not at all, and clients in great number."""

import gc
import os
import re
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import numpy as np
import psutil
import pytest
from live.serving import hostile
from live.serving.served import MODEL, b64, serving
from support.checkout import wait_until

from perennial.data.images import png

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


def test_a_chunked_body_of_single_bytes_is_read_as_it_is_meant(client):
    body = client.build_request("POST", PREDICT, json={"instances": [b64(png.encode(IMAGE))]}).content
    answer = client.post(PREDICT, content=(body[at : at + 1] for at in range(len(body))))
    assert answer.content == client.post(PREDICT, content=body).content


def test_a_head_without_end_is_refused(client):
    with connect(client) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 4000)
        assert raw.recv(100).startswith(b"HTTP/1.1 400")


def test_health_is_answered_while_more_clients_send_bodies_than_the_server_takes(world, monkeypatch):
    with serving(world.folder) as (server, client), ExitStack() as stack:
        for number in range(7):
            stack.enter_context(connect(client)).sendall(BODY)
            wait_until(lambda: len(server._uvicorn.server_state.tasks) > number, 60)  # noqa: B023 - called at once
        monkeypatch.setattr("perennial.live.serving.server.CONNECTIONS", 5)
        address = str(client.base_url)
        health, ready = httpx.get(f"{address}health"), httpx.get(f"{address}ready")
        assert health.status_code == 200
        assert ready.status_code == 503
        assert ready.headers["Retry-After"] == "1"


@pytest.fixture
def process(world, tmp_path):
    """A server of its own process, and its port."""
    arguments = ["serve", "--model", world.folder, "--name", "pets", "--port", "0"]
    command = [sys.executable, "-m", "perennial", *arguments]
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
def test_a_thousand_hostile_clients_keep_memory_bounded_and_every_probe_is_answered(process):
    assert attacked(process, 1000 // len(hostile.KINDS)) < 2e9
