"""Several processes that download the same file."""

import fcntl

import pytest
from data.downloads import client
from data.downloads.fault_server import CONTENT, hang

from perennial.base.errors import PerennialError


def test_four_processes_download_once(fetching, server):
    barrier = client.PROCESSES.Barrier(4)
    processes = [client.start(fetching.spec, server.url, fetching.folder, barrier) for _ in range(4)]
    for process in processes:
        process.join(600)
    assert [process.exitcode for process in processes] == [0] * 4
    assert (len(server.asked), fetching.file.read_bytes()) == (1, CONTENT)


def test_a_lock_that_is_never_released_is_reported(fetching, server):
    fetching.folder.mkdir()
    fetching.limit(total_s=0.3)
    with fetching.file.with_name("file.bin.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(PerennialError, match=r"file\.bin\.lock"):
            fetching()
    assert server.asked == []


def test_a_failed_download_releases_the_lock(fetching, server):
    server.plan = [hang]
    fetching.limit(total_s=0.2)
    fetching.refusal()
    with fetching.file.with_name("file.bin.lock").open("w") as free:
        fcntl.flock(free, fcntl.LOCK_EX | fcntl.LOCK_NB)
