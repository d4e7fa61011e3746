"""The workers of one training on this machine: they share the devices, and the failure of one ends all."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from perennial.base import documents
from perennial.base.errors import ERRORS, ConfigError, DataError, Interrupted, PerennialError
from perennial.base.runtime import child, cluster, gpus, lease, process
from perennial.base.runtime.lease import Lease

HOST = "127.0.0.1"
POLL_S = 0.1
NOTICE_S = 10.0  # for the others to notice and report a lost worker by themselves
GRACE_S = 22.0  # from SIGTERM to SIGKILL: less than the flow gives this process


def run(arguments: Sequence[str], count: int, taken: Lease, work: Path) -> None:
    """Run `perennial` with these arguments in `count` workers of one cluster until all have ended.

    The chief writes to the terminal as a training alone does; lines of the others start with `worker N: `.
    The workers hold the lease too, so that those of a killed caller compute alone until they have ended.

    Raises:
        ConfigError: the devices cannot be shared evenly.
        Interrupted: a signal came, or a worker was killed; what was saved stays.
        PerennialError: a worker failed; the error has its class and message.
    """
    shares = _shares(taken, count)
    addresses = _free_addresses(count)
    for index in range(count):
        failure_file(work, index).unlink(missing_ok=True)
    started: list[subprocess.Popen[str]] = []
    codes: list[int] = []
    with ExitStack() as pipes:
        try:
            for index, share in enumerate(shares):
                with process.signals_held():
                    started.append(_start(arguments, index, addresses, share, taken.locks))
                if stream := started[-1].stdout:
                    pipes.callback(_prefixed(f"worker {index}: ", stream).join)
            codes = _until_one_fails(started)
        except process.Signalled as signalled:
            _end(started)
            raise Interrupted(_failure(work, 0)[1] or f"{signalled} ended the workers; run it again") from None
        finally:
            _end(started, patient=any(code < 0 or code == Interrupted.exit_code for code in codes))
    _raise_failure([worker.returncode for worker in started], codes, work)


def failure_file(work: Path, index: int) -> Path:
    """The file for the code and message of a worker's failure."""
    return work / f"failure-{index}.json"


def _shares(taken: Lease, count: int) -> list[dict[str, str]]:
    """The variables that give each worker its devices.

    Raises:
        ConfigError: the devices cannot be shared evenly.
    """
    kind, _, number = taken.devices.partition(":")
    if taken.gpus:
        each, rest = divmod(len(taken.gpus), count)
        if rest:
            raise ConfigError(
                f"compute.workers is {count}, but there are {len(taken.gpus)} GPUs to share; "
                "nothing was started; set compute.gpus or train.devices to a multiple of compute.workers"
            )
        parts = [taken.gpus[index * each : (index + 1) * each] for index in range(count)]
        devices = "auto" if kind == "auto" else f"gpu:{each}"
        return [{gpus.VISIBLE: ",".join(part), lease.GIVEN: devices} for part in parts]
    if kind == "cpu" and int(number) != count:
        raise ConfigError(
            f"compute.workers is {count}, but train.devices is {taken.devices}, and each worker has one CPU; "
            f"nothing was started; set train.devices to cpu:{count}"
        )
    return [{lease.GIVEN: "cpu:1" if kind == "cpu" else taken.devices}] * count


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
    task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
    own = {cluster.VARIABLE: json.dumps(task), "PYTHONPATH": child.python_path(), **share}
    return subprocess.Popen(
        [sys.executable, "-m", "perennial", *arguments],
        env={**os.environ, **own},
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


def _until_one_fails(workers: Sequence[subprocess.Popen[str]]) -> list[int]:
    """Wait for nonzero exit codes and return them; empty if all workers end with 0."""
    while True:
        codes = [worker.poll() for worker in workers]
        if failed := [code for code in codes if code]:
            return failed
        if None not in codes:
            return []
        time.sleep(POLL_S)


def _end(workers: Sequence[subprocess.Popen[str]], *, patient: bool = False) -> None:
    """Stop all workers and wait for them; after SIGTERM each may save."""
    if patient:
        _wait(workers, NOTICE_S)
    for number, wait_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, None)):
        for worker in workers:
            worker.send_signal(number)  # nothing, if it has ended
        _wait(workers, wait_s)


def _wait(workers: Sequence[subprocess.Popen[str]], limit_s: float | None) -> None:
    deadline = None if limit_s is None else time.monotonic() + limit_s
    for worker in workers:
        with suppress(subprocess.TimeoutExpired):
            worker.wait(None if deadline is None else max(deadline - time.monotonic(), 0))


def _raise_failure(codes: Sequence[int], first: Sequence[int], work: Path) -> None:
    """Raise the error of the worker that failed by itself; the others only lost that one."""
    for index in (index for index, code in enumerate(codes) if code > 0 and code != Interrupted.exit_code):
        code, message = _failure(work, index)
        kind = next((each for each in ERRORS if each.exit_code == code), PerennialError)
        raise kind(f"worker {index}: {message or f'it ended with code {codes[index]}; see its log'}")
    # SIGTERM may have ended a worker that had failed already and was on its way out.
    messages = filter(None, (_failure(work, index)[1] for index, code in enumerate(codes) if code))
    message = next(messages, "run it again to resume")
    if killed := [index for index, code in enumerate(codes) if code < 0 and code in first]:
        name = signal.Signals(-codes[killed[0]]).name
        raise Interrupted(f"worker {killed[0]} was ended by {name}, perhaps because memory ran out; {message}")
    if any(codes):
        raise Interrupted(message)


def _failure(work: Path, index: int) -> tuple[int, str]:
    """Read the code and message of a worker's failure, if it wrote one."""
    file = failure_file(work, index)
    try:
        found = documents.read_json(file) if file.exists() else {}
    except DataError:
        found = {}
    return int(found.get("code", 1)), str(found.get("message", ""))
