"""Clients that send or read slowly, or not at all, and clients in great number."""

import gc
import re
import socket
from contextlib import ExitStack

import httpx
import numpy as np
import pytest
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
        assert (health.status_code, ready.status_code, ready.headers["Retry-After"]) == (200, 503, "1")


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
