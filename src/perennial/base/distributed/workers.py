"""The workers of one training: the failure of one ends all. `ray_workers` starts them on nodes of a cluster."""

import math
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from perennial.base import documents
from perennial.base.errors import ERRORS, DataError, Failure, InputsChanged, Interrupted, PerennialError
from perennial.base.processes import process

HOST = "127.0.0.1"
POLL_S = 0.1
NOTICE_S = 10.0  # for the others to notice and report a lost worker by themselves
GRACE_S = 22.0  # from SIGTERM to SIGKILL: less than the flow gives this process


class Worker(Protocol):
    """A worker that was started: a program, or a process on another machine."""

    def poll(self) -> int | None:
        """Look whether it has ended; returns the exit code, negative after a signal, or None."""

    def signal(self, number: int) -> None:
        """Send a signal; does nothing if it has ended."""

    def wait(self, limit_s: float) -> int | None:
        """Wait for its end, and return what `poll` does."""


def supervise(start: Callable[[int], Worker], count: int, work: Path) -> None:
    """Start workers by number, and wait until all have ended; if one fails, end the others."""
    for index in range(count):
        failure_file(work, index).unlink(missing_ok=True)
    started: list[Worker] = []
    codes: list[int] = []
    try:
        for index in range(count):
            with process.signals_held():
                started.append(start(index))
        codes = _until_one_fails(started)
    except process.Signalled as signalled:
        _end(started)
        raise Interrupted(_failure(work, 0).message or f"{signalled} ended the workers; run it again") from None
    finally:
        _end(started, patient=any(code < 0 or code == Interrupted.exit_code for code in codes))
    _raise_failure([worker.poll() or 0 for worker in started], codes, work)


def failure_file(work: Path, index: int) -> Path:
    """The file for the code and message of a worker's failure."""
    return work / f"failure-{index}.json"


def _until_one_fails(workers: Sequence[Worker]) -> list[int]:
    """Wait for nonzero exit codes and return them; empty if all workers end with 0."""
    while True:
        codes = [worker.poll() for worker in workers]
        if failed := [code for code in codes if code]:
            return failed
        if None not in codes:
            return []
        time.sleep(POLL_S)


def _end(workers: Sequence[Worker], *, patient: bool = False) -> None:
    """Stop all workers and wait for them; after SIGTERM each may save."""
    if patient:
        _wait(workers, NOTICE_S)
    for number, wait_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, math.inf)):
        for worker in workers:
            worker.signal(number)  # nothing, if it has ended
        _wait(workers, wait_s)


def _wait(workers: Sequence[Worker], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    for worker in workers:
        worker.wait(max(deadline - time.monotonic(), 0))


def _raise_failure(codes: Sequence[int], first: Sequence[int], work: Path) -> None:
    """Raise the error of the worker that failed by itself; the others only lost that one."""
    for index in (index for index, code in enumerate(codes) if code > 0 and code != Interrupted.exit_code):
        failure = _failure(work, index)
        found = next((each for each in ERRORS if each.exit_code == failure.code), PerennialError)
        text = failure.message or f"it ended with code {codes[index]}; see its log"
        raise found(f"worker {index}: {text}", kind=failure.kind)
    # SIGTERM may have ended a worker that had failed already and was on its way out.
    failures = [_failure(work, index) for index, code in enumerate(codes) if code]
    message = next((each.message for each in failures if each.message), "run it again to resume")
    if any(each.changed for each in failures):
        raise InputsChanged(next(each.message for each in failures if each.changed))
    if killed := [index for index, code in enumerate(codes) if code < 0 and code in first]:
        name = signal.Signals(-codes[killed[0]]).name
        raise Interrupted(f"worker {killed[0]} was ended by {name}, perhaps because memory ran out; {message}")
    if any(codes):
        raise Interrupted(message)


@dataclass(frozen=True)
class _Failure:
    """How a worker failed, as it wrote it to its file."""

    code: int = PerennialError.exit_code
    message: str = ""
    changed: bool = False  # what it reads
    kind: Failure = Failure.OUTSIDE


def _failure(work: Path, index: int) -> _Failure:
    """Read a worker's failure; without a message if it wrote none."""
    with suppress(DataError):
        found = documents.read_json(failure_file(work, index))
        kind = Failure(found.get("kind", _Failure.kind))
        return _Failure(
            int(found.get("code", 1)), str(found.get("message", "")), bool(found.get("changed")), kind
        )
    return _Failure()
