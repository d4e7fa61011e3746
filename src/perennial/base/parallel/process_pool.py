"""Tasks in parallel processes of this machine, or in threads."""

import ctypes
import multiprocessing
import os
import signal
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerContext
from types import FrameType
from typing import Any, Literal, TypeVar

from perennial.base.errors import SIGNALS, Interrupted, PerennialError
from perennial.base.processes import process
from perennial.base.project import source_code

Shared = TypeVar("Shared")
Task = TypeVar("Task")
Result = TypeVar("Result")
WAITING = 2  # finished results that may wait for the caller, per process or core
# Workers reuse freed blocks up to this size: page faults took a quarter of the time of converting MNIST.
KEPT_BYTES = 32 << 20  # its maximum
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # mallopt(3)
_given: list[Any] = []  # a worker's function and its shared argument
_working: list[None] = []  # not empty while a worker runs the function
_stopped: list[None] = []  # not empty once a worker received SIGTERM


def count(processes: int | Literal["auto"]) -> int:
    """Number of processes; `auto` is one for each core that this process may use."""
    return len(os.sched_getaffinity(0)) if processes == "auto" else processes


def map_in_processes(
    function: Callable[[Any, Any], Any], shared: Any, tasks: Iterable[Any], *, count: int
) -> Iterator[Any]:
    """`map_ordered` in `count` processes of this machine; 1 is this process."""
    if count == 1:
        yield from (function(shared, task) for task in tasks)
        return
    others = set(multiprocessing.active_children())
    executor = _executor(function, shared, count)

    def submit(task: Any) -> Future[Any]:
        with process.signals_held():  # it may start a process
            return executor.submit(_call, task)

    try:
        for number, result in enumerate(ordered(tasks, submit, Future.result, WAITING * count)):
            if number == 0:  # the processes have loaded their code
                source_code.require_unchanged()
            yield result
    except BrokenProcessPool as error:
        raise PerennialError(
            f"one of {count} processes was killed, perhaps because memory ran out; "
            "nothing was changed; run this again, with a smaller compute.processes if it recurs"
        ) from error
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        executor.shutdown()


def map_in_threads(
    function: Callable[[Any, Any], Any], shared: Any, tasks: Iterable[Any], *, count: int
) -> Iterator[Any]:
    """`map_ordered` in `count` threads of this process."""
    executor = ThreadPoolExecutor(count)

    def submit(task: Any) -> Future[Any]:
        return executor.submit(function, shared, task)

    # Two threads that ignore warnings for a while would show those of each other.
    with warnings.catch_warnings(action="ignore"):
        try:
            yield from ordered(tasks, submit, Future.result, WAITING * count)
        finally:
            executor.shutdown(cancel_futures=True)


def _executor(function: Callable[[Any, Any], Any], shared: Any, count: int) -> ProcessPoolExecutor:
    start_server(function)
    return ProcessPoolExecutor(count, _context(), _begin, (os.getpid(), function, shared))


class Worker:
    """A process for a function whose C code holds the interpreter lock; starts again if it was killed."""

    def __init__(self, function: Callable[[Any, Any], Any], shared: Any) -> None:
        self._given = function, shared
        self._executor: ProcessPoolExecutor | None = None

    def __call__(self, task: Any) -> Any:
        """Return `function(shared, task)`, or raise its error."""
        self._executor = self._executor or _executor(*self._given, count=1)
        try:
            return self._executor.submit(_call, task).result()
        except BrokenProcessPool:
            self._executor = None
            raise

    def close(self) -> None:
        """Let the process end after its current call."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)


def ordered(
    tasks: Iterable[Any], submit: Callable[[Any], Any], result: Callable[[Any], Any], most: int
) -> Iterator[Any]:
    """The results in order, with at most `most` submitted tasks ahead."""
    waiting: deque[Any] = deque()
    for task in tasks:
        waiting.append(submit(task))
        if len(waiting) == most:
            yield result(waiting.popleft())
    while waiting:
        yield result(waiting.popleft())


def start_server(function: Callable[..., object]) -> None:
    """Start the process that workers are forked from; it imports the code of the function and of workers."""
    _context().set_forkserver_preload([function.__module__, __name__])
    for variable in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"):
        os.environ.setdefault(variable, str(KEPT_BYTES))
    with process.signals_held():
        resource_tracker.ensure_running()  # first, because it ends with these signals unblocked
        # A signal to the whole group would end what starts here with a traceback, and the workers with it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def keep_freed_blocks() -> None:
    """Let this process, whose threads work, reuse freed blocks as workers do."""
    for option in (TRIM_THRESHOLD, MMAP_THRESHOLD):
        with suppress(AttributeError):  # only glibc has the function
            ctypes.CDLL(None).mallopt(option, KEPT_BYTES)


def _context() -> ForkServerContext:
    # Not fork: this process has threads, and locks that they hold would stay locked in the children.
    return multiprocessing.get_context("forkserver")


def _begin(owner: int, function: Callable[[Any, Any], Any], shared: Any) -> None:
    """Set up a worker process: it leaves interrupts to its owner, and ends when the owner is gone."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    process.die_with(owner)
    _given[:] = (function, shared)


def _stop(_number: int, _frame: FrameType | None) -> None:
    """Stop the function, but not while the worker sends a message: its owner would wait for the rest."""
    _stopped.append(None)
    _raise_if_stopped()


def _raise_if_stopped() -> None:
    if _working and _stopped:
        raise process.Signalled("SIGTERM")


def _call(task: Any) -> Any:
    function, shared = _given
    try:
        _working.append(None)
        _raise_if_stopped()
        return function(shared, task)
    except process.Signalled:
        raise Interrupted("SIGTERM ended a process of this stage; nothing was changed; run it again") from None
    finally:
        _working.clear()
