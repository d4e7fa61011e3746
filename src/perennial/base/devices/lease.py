"""Exclusive GPUs for one process on this machine, first come, first served.

Each GPU has a file under `$PERENNIAL_HOME/gpus`, whose lock (flock) is its lease: the kernel releases it
however the process ends. The first waiting process holds the lock of the queue, on which the others block in
order of arrival; polling alone would serve them in any order.
"""

import fcntl
import json
import logging
import os
import platform
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from perennial.base.devices import gpus
from perennial.base.errors import ConfigError
from perennial.base.files import home, make_folder, naming
from perennial.base.processes.process import is_alive

log = logging.getLogger(__name__)
RUN = "PERENNIAL_RUN"
ORDER = "CUDA_DEVICE_ORDER"
POLL_S = 0.1


@dataclass(frozen=True, kw_only=True)
class Lease:
    """Devices that only this process computes on."""

    devices: str  # as in train.devices, counted among the GPUs that are visible now
    gpus: tuple[str, ...] = ()


@contextmanager
def leased(
    devices: str, count: int | Literal["all"], *, key: str, name: str, one: bool = False
) -> Iterator[Lease]:
    """Lease the GPUs of a parameter such as train.devices for the block, and hide the others from CUDA.

    `gpu:N` takes any N of them, `gpu:0,2` these, `auto` compute.gpus (`count`) of them, `cpu:N` none; with
    `one`, only the first is taken. Waits until they are free. Call it before anything imports TensorFlow in
    this process, or for a child; children find the same GPUs. On a machine without GPUs nothing happens.
    """
    candidates, wanted = _wanted(devices, count, key=key, one=one)
    if not wanted:
        yield Lease(devices=devices)
        return
    with ExitStack() as stack:
        run = f", run {os.environ[RUN]}" if os.environ.get(RUN) else ""
        taken = _take(stack, candidates, wanted, f"{name} in {Path.cwd()}{run}")
        chosen = tuple(name for name in candidates if name in taken)
        stack.enter_context(_visible(chosen))
        yield Lease(devices=devices if devices == "auto" else f"gpu:{wanted}", gpus=chosen)


def _wanted(devices: str, count: int | Literal["all"], *, key: str, one: bool) -> tuple[list[str], int]:
    """The GPUs to choose from, and how many of them; 0 for the CPU."""
    kind, _, which = devices.partition(":")
    if kind == "cpu":
        return [], 0
    found = gpus.visible()
    numbers = [int(number) for number in which.split(",")] if which else []
    if kind == "auto":
        wanted, text = len(found) if count == "all" else count, f"compute.gpus is {count}"
        advice = f"set compute.gpus to all, or {key} to cpu:1"
    else:
        if not found:  # here; TensorFlow knows more kinds, and refuses what is not there
            return [], 0
        several = len(numbers) > 1
        wanted, text = max(numbers) + 1 if several else numbers[0], f"{key} is {devices}"
        advice = f"set {key} to fewer"
    if wanted > len(found):
        raise ConfigError(f"{text}, but {gpus.described()}; nothing was started; {advice}")
    if len(numbers) > 1:
        found = [found[number] for number in numbers]
        wanted = len(found)
    if one and wanted:
        return (found[:1] if len(numbers) > 1 else found), 1
    return found, wanted


def _take(stack: ExitStack, candidates: Sequence[str], count: int, holder: str) -> dict[str, int]:
    """Lock `count` of the GPUs until the stack closes; returns the lock descriptors."""
    folder = home() / "gpus"
    make_folder(folder)
    files = {name: folder / f"{_file_name(name)}.lock" for name in candidates}
    # Homes may be shared by machines, whose GPUs have different UUIDs: each machine has its own queue.
    queue = folder / f"queue-{platform.node()}.lock"
    started, taken, waited = time.monotonic(), dict[str, int](), False
    with ExitStack() as waiting:
        first = _open(waiting, queue)
        if not _locked(first):
            waited = _log_wait(count, files, queue, taken)
            fcntl.flock(first, fcntl.LOCK_EX)  # ends with a signal's exception
        _sign(first, holder)
        opened = {name: _open(stack, file) for name, file in files.items()}
        while True:
            for name, lock in opened.items():
                if len(taken) < count and name not in taken and _locked(lock):
                    taken[name] = lock
                    stack.callback(os.ftruncate, lock, 0)
                    _sign(lock, holder)
            if len(taken) == count:
                break
            waited = waited or _log_wait(count, files, queue, taken)
            time.sleep(POLL_S)
        os.ftruncate(first, 0)
    if waited:
        log.info("got GPU %s after %.0f s", ", ".join(taken), time.monotonic() - started)
    return taken


def _log_wait(count: int, files: Mapping[str, Path], queue: Path, taken: Collection[str]) -> bool:
    """Log what this process waits for; returns True."""
    others = {name: file for name, file in files.items() if name not in taken}
    used = [f"{name} by {text}" for name, file in others.items() if (text := _holder(file)[1])]
    process, text = _holder(queue)
    ahead = f"; first in the queue: {text}" if process not in {0, os.getpid()} else ""
    log.info(
        "waiting for %d of %d GPUs; in use: %s%s",
        count, len(files), "; ".join(used) or "by a process that just started", ahead,
    )  # fmt: skip
    return True


@contextmanager
def _visible(chosen: Sequence[str]) -> Iterator[None]:
    """Show only these GPUs to CUDA, in this process and those that it starts."""
    before = {name: os.environ.get(name) for name in (gpus.VISIBLE, ORDER)}
    os.environ[gpus.VISIBLE] = ",".join(chosen)
    os.environ.setdefault(ORDER, "PCI_BUS_ID")  # that of nvidia-smi; CUDA numbers the fastest first
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _file_name(gpu: str) -> str:
    """The lock file's name: a UUID is unique, but a GPU's number only on its machine."""
    return (gpu if "-" in gpu else f"{platform.node()}-{gpu}").replace("/", "_")


def _open(stack: ExitStack, file: Path) -> int:
    with naming(file):
        opened = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)  # children do not inherit it
    stack.callback(os.close, opened)
    return opened


def _locked(opened: int) -> bool:
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sign(opened: int, holder: str) -> None:
    """Write the holder of a lock to its file, for the log of waiting processes."""
    os.ftruncate(opened, 0)
    os.pwrite(opened, json.dumps({"process": os.getpid(), "holder": holder}).encode(), 0)


def _holder(file: Path) -> tuple[int, str]:
    """The process that holds a lock, or held it last, and a text about it."""
    try:
        found = json.loads(file.read_bytes())
        process, ended = int(found["process"]), "" if is_alive(found["process"]) else ", which ended"
        return process, f"{found['holder']}, process {process}{ended}"
    except (OSError, ValueError, LookupError, TypeError):
        return 0, ""
