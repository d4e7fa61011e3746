"""Tasks on the cores of this machine and calls in a thread: in order, and no process is left behind."""

import os
import signal
import subprocess
import sys
import threading
import warnings
from functools import partial
from itertools import count as numbers
from pathlib import Path

import pytest
from support import tasks
from support.checkout import wait_until

from perennial.base import documents, errors, files
from perennial.base.config.data import ComputeConfig
from perennial.base.errors import InputsChanged, Interrupted, PerennialError
from perennial.base.parallel import parallel_map, process_pool, threads
from perennial.base.processes.process import is_alive
from perennial.base.project import source_code
from perennial.data.records import manifest

TESTS, SOURCE = Path(tasks.__file__).parents[1], Path(files.__file__).parents[2]
OWNER = """
import sys
from pathlib import Path
from perennial.base.parallel import process_pool
from support import tasks
list(process_pool.map_in_processes(tasks.wait, Path(sys.argv[1]), range(1, 10), count=2))
"""


def running(folder):
    """The processes that noted themselves in a folder and have not ended."""
    return [path.name for path in folder.iterdir() if path.name.isdecimal() and is_alive(int(path.name))]


WAYS = [*(partial(process_pool.map_in_processes, count=count) for count in (1, 2, 3)),
        partial(process_pool.map_in_threads, count=2)]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_results_are_those_of_the_tasks(way):
    assert list(way(tasks.product, 7, range(20))) == [7 * task for task in range(20)]


@pytest.mark.parametrize(
    ("count", "kind", "here"),
    [(1, {}, True), (2, {"small": True}, True), (2, {}, False), (2, {"unlocked": True}, True),
     (3, {"unlocked": True}, False)],
)  # fmt: skip
def test_one_process_small_work_and_two_threads_are_this_process(count, kind, here):
    compute = ComputeConfig(engine="processes", processes=count)
    used = set(parallel_map.map_ordered(compute, tasks.process, None, range(3), **kind))
    assert (used == {os.getpid()}, os.getpid() in used) == (here, here)


@pytest.mark.parametrize("way", WAYS)
def test_only_a_few_tasks_are_taken_ahead_of_their_results(way):
    taken = numbers()
    results = way(tasks.product, 1, taken)
    for _ in range(10):
        next(results)
    results.close()
    assert next(taken) <= 10 + process_pool.WAITING * way.keywords["count"]
    assert not [each for each in threading.enumerate() if each.name.startswith("ThreadPoolExecutor")]


@pytest.mark.parametrize("way", WAYS[1:])
@pytest.mark.parametrize("error", [*errors.ERRORS, ValueError, MemoryError])
def test_an_error_of_a_task_is_raised_unchanged(way, error):
    with pytest.raises(error, match="task 0 is refused") as raised:
        list(way(tasks.refuse, error, range(5)))
    assert raised.type is error


def test_threads_at_work_show_no_warnings_and_leave_the_filters_as_they_were(recwarn):
    before = list(warnings.filters)
    assert list(WAYS[-1](tasks.warn, "of a decoder", range(9))) == [None] * 9
    assert (len(recwarn), warnings.filters) == (0, before)


@pytest.mark.parametrize("killed", [0, 3])
def test_a_killed_process_is_an_error_after_which_others_work(killed):
    with pytest.raises(PerennialError, match="killed") as raised:
        list(process_pool.map_in_processes(tasks.be_killed, killed, range(8), count=2))
    assert raised.value.exit_code == 1
    assert list(process_pool.map_in_processes(tasks.product, 7, range(3), count=2)) == [0, 7, 14]


def test_a_caller_that_gives_up_does_not_wait_for_what_is_being_done_and_leaves_no_process(tmp_path):
    results = process_pool.map_in_processes(tasks.wait, tmp_path, range(9), count=2)
    next(results)
    results.close()
    assert list(tmp_path.glob("done-*")) == [tmp_path / "done-0"]
    wait_until(lambda: not running(tmp_path))


def test_no_process_outlives_the_one_that_started_it(tmp_path):
    folder = tmp_path / "workers"
    folder.mkdir()
    paths = os.pathsep.join((str(SOURCE), str(TESTS)))
    command = [sys.executable, "-c", OWNER, str(folder)]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": paths}) as owner:
        wait_until(lambda: len(running(folder)) == 2)
        owner.send_signal(signal.SIGKILL)
    wait_until(lambda: not running(folder))


def test_sigterm_to_a_worker_interrupts_the_caller(tmp_path):
    results = process_pool.map_in_processes(tasks.wait, tmp_path, range(9), count=2)
    next(results)
    wait_until(lambda: len(running(tmp_path)) == 2)
    for number in running(tmp_path):
        os.kill(int(number), signal.SIGTERM)
    with pytest.raises(Interrupted, match="SIGTERM"):
        list(results)


def test_the_result_of_a_call_blocks_until_it_is_there_or_raises_its_error():
    gate = threading.Event()
    result = threads.start(lambda: gate.wait(600))
    gate.set()
    assert result() is True
    with pytest.raises(ZeroDivisionError):
        threads.start(lambda: 1 // 0)()


def test_the_end_of_the_process_does_not_wait_for_a_call():
    code = "import time; from perennial.base.parallel import threads; threads.start(lambda: time.sleep(1e6))"
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(SOURCE)}, check=True)


def test_every_consumer_gets_every_chunk_in_order_and_an_error_of_one_is_raised():
    first, second = [], []
    threads.feed(iter([b"a", b"b", b"c"]), first.append, second.append)
    assert (first, second) == ([b"a", b"b", b"c"], [b"a", b"b", b"c"])
    with pytest.raises(ValueError, match="not found"):
        threads.feed(iter([b"a", b"b"]), b"nothing".index)


def test_a_process_that_keeps_freed_blocks_has_no_page_faults_for_the_next_ones():
    code = """import resource
from perennial.base.parallel import process_pool
process_pool.keep_freed_blocks()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        blocks = [bytearray(4 << 20) for _ in range(2)]
        for block in blocks:
            block[::4096] = block[::4096]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
first = faults()
print(first, faults())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, again = map(int, done.stdout.split())
    assert again < first / 4


def test_code_that_changed_while_processes_loaded_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_code, "AT_START", {})
    source_code.note_start()
    assert list(process_pool.map_in_processes(tasks.product, 2, range(3), count=2)) == [0, 2, 4]
    source_code.AT_START[str(manifest.__file__)] = (0, 0, 0)
    with pytest.raises(InputsChanged, match=r"records/manifest.py changed while this process loaded its code"):
        list(process_pool.map_in_processes(tasks.product, 2, range(3), count=2))
    source_code.AT_START[str(manifest.__file__)] = source_code.signature(manifest.__file__)
    source_code.AT_START[str(documents.__file__)] = (0, 0, 0)  # which decides nothing
    assert list(process_pool.map_in_processes(tasks.product, 2, range(3), count=2)) == [0, 2, 4]
