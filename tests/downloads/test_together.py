"""Several processes that want the same file."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
from downloads.fault_server import CONTENT, Timer, hang

import perennial
from perennial.errors import PerennialError

ONE = """
import sys
from pathlib import Path
from perennial.downloads.fetch import fetch
from perennial.downloads.limits import LIMITS
from perennial.downloads.wanted import Wanted
print("ready", flush=True)
sys.stdin.readline()
url, folder, size, digest = sys.argv[1:]
fetch(Wanted(name="file.bin", bytes=int(size), sha256=digest), [url], Path(folder), LIMITS)
"""


def test_eight_processes_download_once(fetching, server):
    environment = {**os.environ, "PYTHONPATH": str(Path(perennial.__file__).parents[1])}
    arguments = [server.url, str(fetching.folder), str(len(CONTENT)), fetching.wanted.sha256]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", ONE, *arguments],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(8)
    ]  # fmt: skip
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        process.communicate()
    assert [process.returncode for process in processes] == [0] * 8
    assert (len(server.asked), fetching.file.read_bytes()) == (1, CONTENT)


def test_a_lock_that_is_never_given_back_is_told(fetching, server):
    fetching.folder.mkdir()
    fetching.limit(total_s=0.3)
    with fetching.file.with_name("file.bin.lock").open("w") as held, Timer() as timer:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(PerennialError, match=r"another process has held .*file\.bin\.lock for 0\.3 s"):
            fetching()
    assert (timer.seconds < 2, server.asked) == (True, [])


def test_a_lock_is_given_back_when_the_fetching_failed(fetching, server):
    server.plan = [hang]
    fetching.limit(total_s=0.2)
    fetching.refusal()
    with fetching.file.with_name("file.bin.lock").open("w") as free:
        fcntl.flock(free, fcntl.LOCK_EX | fcntl.LOCK_NB)
