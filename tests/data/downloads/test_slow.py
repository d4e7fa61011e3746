"""Slow servers: every wait has a timeout."""

import socket

import pytest
from data.downloads.fault_server import CONTENT, drip_body, drip_chunk_size, drip_head, gated, hang, honest


@pytest.mark.parametrize("fault", [drip_head, drip_body, drip_chunk_size, hang, gated(1000)])
def test_a_slow_server_fails_at_the_deadline(fetching, server, fault):
    server.plan = [fault]
    fetching.limit(total_s=0.2)
    error = fetching.refusal()
    assert (error.temporary, "limit of 0.2 s" in str(error)) == (True, True)


@pytest.mark.parametrize("fault", [drip_chunk_size, hang, gated(1000)])
def test_a_stalled_server_times_out_and_is_tried_again(fetching, server, fault):
    server.plan = [fault, honest]
    fetching.limit(connect_s=0.2, stall_s=0.4, tries=100)  # a busy machine may stall, too
    assert fetching().read_bytes() == CONTENT


def test_a_server_below_the_minimum_rate_fails(fetching, server):
    server.plan = [drip_body]
    fetching.limit(rate_window_s=0.3, tries=1)
    assert "minimum of 1000" in str(fetching.refusal())


def test_a_host_that_does_not_accept_times_out(fetching):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        # A full queue: what connects now waits for good.
        waiting = [socket.socket() for _ in range(3)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(silent.getsockname())
        fetching.mirrors = [f"http://127.0.0.1:{silent.getsockname()[1]}/"]
        fetching.limit(connect_s=0.3, tries=1)
        error = fetching.refusal()
        for each in waiting:
            each.close()
    assert error.temporary


def test_a_hanging_name_resolution_fails_at_the_deadline(fetching, server, monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: server.open.wait(600))
    fetching.mirrors = ["http://host.invalid/"]
    fetching.limit(total_s=0.2)
    assert "limit of 0.2 s" in str(fetching.refusal())
