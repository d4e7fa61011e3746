"""Tasks on the cores of this machine."""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerContext
from types import FrameType
from typing import Any, Literal

from perennial import process
from perennial.errors import Interrupted, PerennialError

WAITING = 2  # results a process that may wait for the one who asked
SIGNALS = {signal.SIGINT, signal.SIGTERM}
_given: list[Any] = []  # a worker's function and its shared argument
_working: list[None] = []  # not empty while a worker runs the function
_stopped: list[None] = []  # not empty once a worker was told to stop


class _Stopped(BaseException):
    """A worker was told to stop. No Exception, so that no library takes it for an error of its own."""


def count(processes: int | Literal["auto"]) -> int:
    """How many processes: those asked for, or one for each core that this process may use."""
    return len(os.sched_getaffinity(0)) if processes == "auto" else processes


def prepare(function: Callable[[Any, Any], Any]) -> None:
    """Starts the process that the others come from; by the time they are wanted it has imported all code."""
    _context().set_forkserver_preload([function.__module__])
    with process.signals_held():
        resource_tracker.ensure_running()  # first, because it ends with both signals let through
        # A signal to the whole group would end what starts here with a traceback, and the workers with it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def mapped(
    function: Callable[[Any, Any], Any], shared: Any, tasks: Iterable[Any], *, count: int
) -> Iterator[Any]:
    """`function(shared, task)` of each task in order; with a count of 1 in this process.

    Raises:
        PerennialError: a process was killed, by the kernel for want of memory perhaps.
    """
    if count == 1:
        yield from (function(shared, task) for task in tasks)
        return
    prepare(function)
    others = set(multiprocessing.active_children())
    executor = ProcessPoolExecutor(count, _context(), _begin, (os.getpid(), function, shared))
    waiting: deque[Future[Any]] = deque()
    try:
        for task in tasks:
            with process.signals_held():  # it may start a process
                waiting.append(executor.submit(_call, task))
            if len(waiting) == WAITING * count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise PerennialError(
            f"one of {count} processes was killed, perhaps because memory ran out; "
            "nothing was changed; run this again, with a smaller compute.processes if it recurs"
        ) from error
    finally:
        _end(executor, others)


def _context() -> ForkServerContext:
    # Not fork: this process has threads, and what they hold at that moment would stay held in the children.
    return multiprocessing.get_context("forkserver")


def _begin(owner: int, function: Callable[[Any, Any], Any], shared: Any) -> None:
    """A worker leaves interrupts to its owner, and ends when the owner is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    process.die_with(owner)
    process.keep_freed_memory()
    _given[:] = (function, shared)


def _stop(_number: int, _frame: FrameType | None) -> None:
    """Ends the function, but never the worker in the midst of a message: its owner would wait for the rest."""
    _stopped.append(None)
    _raise_if_stopped()


def _raise_if_stopped() -> None:
    if _working and _stopped:
        raise _Stopped


def _call(task: Any) -> Any:
    function, shared = _given
    try:
        _working.append(None)
        _raise_if_stopped()
        return function(shared, task)
    except _Stopped:
        raise Interrupted("SIGTERM ended a process of this stage; nothing was changed; run it again") from None
    finally:
        _working.clear()


def _end(executor: ProcessPoolExecutor, others: set[multiprocessing.process.BaseProcess]) -> None:
    """Ends the workers; those that still work, because the caller gave up, at once."""
    executor.shutdown(wait=False, cancel_futures=True)
    for child in set(multiprocessing.active_children()) - others:
        child.terminate()
    executor.shutdown()
