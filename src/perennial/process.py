"""A stage as a process: it works alone in its checkout, ends when told to, never outlives its starter."""

import ctypes
import fcntl
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from perennial.errors import ConfigError, Interrupted, PerennialError

# Names a process whose end must end the stage too, besides its parent: the flow above DVC.
STARTED_BY = "PERENNIAL_STARTED_BY"
PARENT = os.getppid()  # asked at import, before a parent that is killed early can be missed
POLL_S = 0.5
GRACE_S = 10  # between the polite end of an orphan and the certain one
_received: list[str] = []  # names of signals, in the order they came
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
KEPT_BYTES = 32 << 20  # the most that glibc takes for either
LOCK_WAIT_S = 30  # longer than GRACE_S, so that a killed run's orphan is outlived and not reported


def require_own_checkout(folder: Path) -> None:
    """Refuses to run the code of one checkout on the parameters of another.

    Raises:
        ConfigError: `folder` lies in a checkout whose code is not this code.
    """
    here = Path(__file__).resolve().parent
    for checkout in (folder.resolve(), *folder.resolve().parents):
        theirs = checkout / "src" / "perennial"
        if theirs.is_dir():
            if theirs != here:
                raise ConfigError(
                    f"{checkout} has its own code in {theirs}, but the code that runs is {here}; "
                    f"put {checkout}/.venv/bin first on the PATH, or set PYTHONPATH={checkout}/src"
                )
            return


@contextmanager
def alone(work: Path, stage: str) -> Iterator[None]:
    """Holds the lock of the checkout while the block runs; the kernel frees it however the process ends.

    Raises:
        PerennialError: another stage still held it after 30 s.
    """
    work.mkdir(parents=True, exist_ok=True)
    with (work / "stage.lock").open("a+") as lock:
        deadline = time.monotonic() + LOCK_WAIT_S
        while not taken(lock.fileno()):
            if time.monotonic() > deadline:
                lock.seek(0)
                raise PerennialError(
                    f"another stage works in this checkout ({lock.read().strip()}, lock {lock.name}); "
                    "nothing was changed; wait for it or end it, then run this again"
                )
            time.sleep(POLL_S)
        lock.truncate(0)
        lock.write(f"{stage}, process {os.getpid()}\n")
        lock.flush()
        yield


def taken(descriptor: int) -> bool:
    """Takes the lock of an open file, unless another process holds it; whether it did."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _Signalled(BaseException):
    """A signal came. No Exception, so that no library on the way takes it for an error of its own."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Lets SIGTERM and SIGINT end the block, which then cleans up.

    Raises:
        Interrupted: a signal came.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)
    try:
        yield
        raise_if_signalled()
    except _Signalled as signalled:
        raise Interrupted(
            f"{signalled} ended the stage; no half-written output was left; run it again"
        ) from None


def _interrupt(number: int, _frame: FrameType | None) -> None:
    # A second signal must not break the clean-up that the first one began.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    _received.append(signal.Signals(number).name)
    raise_if_signalled()


def raise_if_signalled() -> None:
    """Ends the block of `interruptible` if a signal came; for where native code may have swallowed it."""
    if _received:
        raise _Signalled(_received[0])


def die_with_starter() -> None:
    """Ends this process soon after its parent, or the process that PERENNIAL_STARTED_BY names, is gone."""
    starters = {PARENT}
    if os.environ.get(STARTED_BY, "").isdigit():
        starters.add(int(os.environ[STARTED_BY]))
    threading.Thread(target=_watch, args=(PARENT, starters), daemon=True).start()


def keep_freed_memory() -> None:
    """Lets the C library reuse freed blocks of megabytes, where it would give them back and ask again.

    Only glibc does, and only it is asked. The page faults took a quarter of the time of converting MNIST.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


def die_with(owner: int) -> None:
    """Ends this process soon after the one with that number is gone."""
    threading.Thread(target=_watch, args=(os.getppid(), {owner}), daemon=True).start()


def _watch(parent: int, starters: set[int]) -> None:
    while os.getppid() == parent and all(_alive(starter) for starter in starters):
        time.sleep(POLL_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
