"""Servers that are slow on purpose: every wait has an end."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from downloads.fault_server import CONTENT, Timer, drip_body, drip_chunk_size, drip_head, hang, honest, stall

import perennial

LATE_S = 2  # that a deadline may be passed by


@pytest.mark.parametrize("fault", [drip_head, drip_body, drip_chunk_size, hang, stall(1000)])
def test_a_slow_server_is_left_at_the_deadline(fetching, server, fault):
    server.plan = [fault]
    fetching.limit(total_s=0.5, stall_s=30, rate_window_s=30)
    with Timer() as timer:
        error = fetching.refusal()
    assert (error.temporary, "0.5 s that this file may take are over" in str(error)) == (True, True)
    assert timer.seconds < 0.5 + LATE_S


@pytest.mark.parametrize("fault", [drip_chunk_size, hang, stall(1000)])
def test_a_server_that_sends_nothing_is_left_before(fetching, server, fault):
    server.plan = [fault, honest]
    fetching.limit(connect_s=0.2, stall_s=0.4)
    with Timer() as timer:
        assert fetching().read_bytes() == CONTENT
    assert timer.seconds < 0.6 + LATE_S


def test_a_server_that_drips_is_left_for_its_rate(fetching, server):
    server.plan = [drip_body]
    fetching.limit(tries=1)
    assert "less than the 1000 that are the least" in str(fetching.refusal())


def test_a_host_that_does_not_answer_is_left(fetching):
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
        with Timer() as timer:
            error = fetching.refusal()
        for each in waiting:
            each.close()
    assert (error.temporary, "no connection in time" in str(error)) == (True, True)
    assert timer.seconds < 0.3 + LATE_S


HANGING_LOOK_UP = """
import socket, sys, time
from pathlib import Path
socket.getaddrinfo = lambda *_, **__: time.sleep(60)  # a name server that says nothing
from perennial.downloads.fetch import Unavailable, fetch
from perennial.downloads.spec import Limits
from perennial.downloads.spec import FileSpec
began = time.monotonic()
try:
    fetch(FileSpec(name="f"), ["http://host.invalid/"], Path(sys.argv[1]), Limits(total_s=0.5))
except Unavailable as error:
    print(time.monotonic() - began, error)
"""


def test_a_name_look_up_that_hangs_is_left_at_the_deadline(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(Path(perennial.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", HANGING_LOOK_UP, tmp_path],
        env=environment, stdout=subprocess.PIPE, text=True, timeout=30, check=True,
    )  # fmt: skip
    seconds, error = done.stdout.split(maxsplit=1)
    assert "0.5 s that this file may take are over" in error
    assert float(seconds) < 0.5 + LATE_S
