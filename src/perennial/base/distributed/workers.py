"""The workers of one training: they share the devices, and the failure of one ends all.

Here they are processes of this machine; `ray_workers` starts them on the nodes of a Ray cluster.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from perennial.base import documents, layout
from perennial.base.devices import gpus, lease
from perennial.base.devices.lease import Lease
from perennial.base.distributed import cluster
from perennial.base.errors import (
    ERRORS,
    ConfigError,
    DataError,
    Failure,
    InputsChanged,
    Interrupted,
    PerennialError,
)
from perennial.base.processes import process

HOST = "127.0.0.1"
POLL_S = 0.1
NOTICE_S = 10.0  # for the others to notice and report a lost worker by themselves
GRACE_S = 22.0  # from SIGTERM to SIGKILL: less than the flow gives this process


class Worker(Protocol):
    """A worker that was started: a process here, or one on another machine that its owner watches."""

    @property
    def returncode(self) -> int | None:
        """The exit code, negative after a signal; None while it runs, as far as is known."""

    def poll(self) -> int | None:
        """Look whether it has ended; returns the exit code, as above."""

    def send_signal(self, sig: int, /) -> None:
        """Send a signal; does nothing if it has ended."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; raises TimeoutExpired or TimeoutError after `timeout` seconds."""


def run(arguments: Sequence[str], count: int, taken: Lease, work: Path) -> None:
    """Run `perennial` with these arguments in `count` workers of one cluster, which hold the lease too."""
    shares = _shares(taken, count)
    addresses = _free_addresses(count)
    with ExitStack() as pipes:

        def start(index: int) -> Worker:
            started = _start(arguments, index, addresses, shares[index], taken.locks)
            if stream := started.stdout:
                pipes.callback(_prefixed(prefix(index), stream).join)
            return started

        supervise(start, count, work)


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
    _raise_failure([worker.returncode or 0 for worker in started], codes, work)


def environment(index: int, addresses: Sequence[str], share: Mapping[str, str]) -> dict[str, str]:
    """The variables of a worker, besides those of the process that starts it."""
    task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
    return {
        cluster.VARIABLE: json.dumps(task),
        "PYTHONPATH": layout.python_path(),
        process.WORKER_OF: str(os.getpid()),
        **share,
    }


def prefix(index: int) -> str:
    """What the lines of a worker start with; those of the chief with nothing."""
    return f"worker {index}: " if index else ""


def failure_file(work: Path, index: int) -> Path:
    """The file for the code and message of a worker's failure."""
    return work / f"failure-{index}.json"


def _shares(taken: Lease, count: int) -> list[dict[str, str]]:
    """The variables that give each worker its devices."""
    kind = taken.devices.partition(":")[0]
    if taken.gpus:
        each = shared(len(taken.gpus), count)
        parts = [taken.gpus[index * each : (index + 1) * each] for index in range(count)]
        devices = "auto" if kind == "auto" else f"gpu:{each}"
        return [{gpus.VISIBLE: ",".join(part), lease.GIVEN: devices} for part in parts]
    require_one_cpu_each(taken.devices, count)
    return [{lease.GIVEN: "cpu:1" if kind == "cpu" else taken.devices}] * count


def shared(number: int, count: int) -> int:
    """How many of the GPUs each worker gets."""
    each, rest = divmod(number, count)
    if rest or not each:
        raise ConfigError(
            f"compute.workers is {count}, but there are {number} GPUs to share; "
            "nothing was started; set compute.gpus or train.devices to a multiple of compute.workers"
        )
    return each


def require_one_cpu_each(devices: str, count: int) -> None:
    """Check that train.devices names one CPU for each worker, if it names CPUs."""
    kind, _, number = devices.partition(":")
    if kind == "cpu" and int(number) != count:
        raise ConfigError(
            f"compute.workers is {count}, but train.devices is {devices}, and each worker has one CPU; "
            f"nothing was started; set train.devices to cpu:{count}"
        )


def _free_addresses(count: int) -> list[str]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server((HOST, 0))) for _ in range(count)]
        return [f"{HOST}:{each.getsockname()[1]}" for each in sockets]


def _start(
    arguments: Sequence[str],
    index: int,
    addresses: Sequence[str],
    share: Mapping[str, str],
    locks: Sequence[int],
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "perennial", *arguments],
        env={**os.environ, **environment(index, addresses, share)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if index else None,
        stderr=subprocess.STDOUT if index else None,
        pass_fds=locks,
        text=True,
        errors="replace",
    )


def _prefixed(prefix: str, stream: IO[str]) -> threading.Thread:
    """Forward the output lines of a worker."""

    def pass_on() -> None:
        with stream, suppress(OSError, ValueError):
            for line in stream:
                sys.stderr.write(f"{prefix}{line}")

    thread = threading.Thread(target=pass_on, daemon=True)
    thread.start()
    return thread


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
    for number, wait_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, None)):
        for worker in workers:
            worker.send_signal(number)  # nothing, if it has ended
        _wait(workers, wait_s)


def _wait(workers: Sequence[Worker], limit_s: float | None) -> None:
    deadline = None if limit_s is None else time.monotonic() + limit_s
    for worker in workers:
        with suppress(subprocess.TimeoutExpired, TimeoutError):
            worker.wait(None if deadline is None else max(deadline - time.monotonic(), 0))


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
    kind: Failure = Failure.BUG


def _failure(work: Path, index: int) -> _Failure:
    """Read a worker's failure; without a message if it wrote none."""
    file = failure_file(work, index)
    try:
        found = documents.read_json(file) if file.exists() else {}
    except DataError:
        found = {}
    return _Failure(
        code=int(found.get("code", 1)),
        message=str(found.get("message", "")),
        changed=bool(found.get("changed")),
        kind=Failure(found.get("kind", Failure.OUTSIDE)),
    )
