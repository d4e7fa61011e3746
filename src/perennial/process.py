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
from perennial.files import naming

# Names a process whose end must end the stage too, besides its parent: the flow above DVC.
STARTED_BY = "PERENNIAL_STARTED_BY"
STARTED = time.monotonic()
PARENT = os.getppid()  # asked at import, before a parent that is killed early can be missed
POLL_S = 0.5
GRACE_S = 25  # between the polite end of an orphan, which may save a large checkpoint, and the certain one
_received: list[str] = []  # names of signals, in the order they came
_holds: list[None] = []  # one a block that signals wait for
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
def alone(work: Path, stage: str, worker: int = 0) -> Iterator[None]:
    """Holds the lock of the checkout while the block runs.

    Workers that train together, told by number, have a lock each: they may share a checkout.

    Raises:
        PerennialError: another stage still held it after 30 s.
    """
    work.mkdir(parents=True, exist_ok=True)
    file = work / (f"worker-{worker}.lock" if worker else "stage.lock")
    with locked(file, stage, "another stage works in this checkout"):
        yield


@contextmanager
def locked(file: Path, what: str, busy: str) -> Iterator[None]:
    """Holds the lock of a file while the block runs; the kernel frees it however the process ends.

    Raises:
        PerennialError: another process still held it after 30 s; `busy` and what it does there are told.
    """
    with file.open("a+") as lock:
        deadline = time.monotonic() + LOCK_WAIT_S
        while not taken(lock.fileno()):
            if time.monotonic() > deadline:
                lock.seek(0)
                raise PerennialError(
                    f"{busy} ({lock.read().strip()}, lock {lock.name}); "
                    "nothing was changed; wait for it or end it, then run this again"
                )
            time.sleep(POLL_S)
        with naming(file):
            lock.truncate(0)
            lock.write(f"{what}, process {os.getpid()}\n")
            lock.flush()
        yield


def taken(descriptor: int) -> bool:
    """Takes the lock of an open file, unless another process holds it; whether it did."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Signalled(BaseException):
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
    except Signalled as signalled:
        raise Interrupted(
            f"{signalled} ended the stage; no half-written output was left; run it again"
        ) from None


def _interrupt(number: int, _frame: FrameType | None) -> None:
    # A second signal must not break the clean-up that the first one began.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    _received.append(signal.Signals(number).name)
    if not _holds:
        raise_if_signalled()


@contextmanager
def signals_held() -> Iterator[None]:
    """Lets a signal wait for the end of the block, which leaves things consistent; it is raised there."""
    _holds.append(None)
    try:
        yield
    finally:
        _holds.pop()
    raise_if_signalled()


def raise_if_signalled() -> None:
    """Ends the block of `interruptible` if a signal came; for where native code may have swallowed it."""
    if _received:
        raise Signalled(_received[0])


def die_with_starter() -> None:
    """Ends this process soon after its parent, or the process that PERENNIAL_STARTED_BY names, is gone."""
    starters = {PARENT}
    if os.environ.get(STARTED_BY, "").isdigit():
        starters.add(int(os.environ[STARTED_BY]))
    threading.Thread(target=_watch, args=(PARENT, starters, signal.SIGTERM), daemon=True).start()


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
    """Ends this process, which has nothing to clean up, soon after the one with that number is gone."""
    threading.Thread(target=_watch, args=(os.getppid(), {owner}, signal.SIGKILL), daemon=True).start()


def _watch(parent: int, starters: set[int], number: signal.Signals) -> None:
    while os.getppid() == parent and all(_alive(starter) for starter in starters):
        time.sleep(POLL_S)
    os.kill(os.getpid(), number)
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
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="latin-1")
    except OSError:
        return True  # there is no /proc here
    # One that has ended stays until it is asked for, perhaps by one who waits for this very process to end.
    return status.rpartition(")")[2].split()[0] not in {"Z", "X"}
