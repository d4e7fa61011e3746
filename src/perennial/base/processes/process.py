"""How a process ends: signals stop it cleanly, and it does not outlive the process that started it."""

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import psutil

from perennial.base import limits
from perennial.base.errors import SIGNALS, Interrupted, PerennialError

STARTED_BY = "PERENNIAL_STARTED_BY"  # process whose end also ends the stage: the flow above DVC
PARENT = os.getppid()  # read at import, to notice a parent that is killed early
POLL_S = 0.5
GRACE_S = limits.SAVE_GRACE_S  # of an orphan, which may save a large checkpoint
REPEAT_S = 1.0  # Ctrl-C often arrives twice at once: from the terminal and from a parent
NAMES = {signal.SIGINT: "Ctrl-C"}  # in messages; other signals by their own
REMINDER = signal.SIGUSR1
STARTED = time.monotonic()  # this process, or nearly so
_received: list[str] = []  # names of signals, oldest first
_arrived: list[float] = []  # arrival times, known at once; `_received` is updated only when native code returns
_holds: list[None] = []  # one for each open `signals_held`
_blocks: list[None] = []  # one for each open `interruptible`


class Signalled(BaseException):
    """A signal arrived. Not an Exception, so that libraries do not handle it as an error of their own."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM, SIGINT and SIGHUP end the block, including its clean-up.

    The first signal raises Signalled. If a library swallows it, it is raised again every REPEAT_S until it ends
    the block, but never during the clean-up that it started. A second signal at least REPEAT_S after the first,
    or a third one, ends the process at once with code 75, whatever the process does.
    """
    try:
        with _handlers():
            yield
            raise_if_signalled()
    except Signalled as signalled:
        raise Interrupted(f"{signalled} ended it; no half-written output was left; run it again") from None
    except Exception as error:
        # Native code can turn the exception of a signal into another error.
        if not _received or isinstance(error, PerennialError | OSError):
            raise
        raise Interrupted(f"{_received[0]} ended it ({type(error).__name__}); run it again") from error


@contextmanager
def _handlers() -> Iterator[None]:
    """Handle signals while the outermost block runs; nested blocks share its handlers."""
    if _blocks:
        yield
        return
    _blocks.append(None)
    _received.clear()
    _arrived.clear()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    listener = threading.Thread(target=_listen, args=(reader,), daemon=True)
    listener.start()
    handlers = {number: signal.signal(number, _handle) for number in (*SIGNALS, REMINDER)}
    # C code writes to it when a signal arrives, so the listener notices even if the main thread never returns.
    wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield
    finally:
        _holds.append(None)
        os.write(writer, b"\0")
        listener.join()
        signal.set_wakeup_fd(wakeup)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)
        _holds.pop()
        _blocks.pop()


def _handle(number: int, _frame: FrameType | None) -> None:
    if number != REMINDER:
        _received.append(_name(number))
    if not _holds and not handling(Signalled):
        raise_if_signalled()


def handling(kind: type[BaseException]) -> bool:
    """Whether this thread is handling such an exception of a signal, which a second one must not break."""
    error = sys.exception()
    while error is not None and not isinstance(error, kind):
        error = error.__context__
    return error is not None


def _listen(reader: int) -> None:
    """Remind the main thread of a signal; end the process when the signal is repeated."""
    announced = False
    while True:
        ready, _, _ = select.select([reader], [], [], REPEAT_S if _arrived else None)
        for number in os.read(reader, 1024) if ready else b"":
            if not number:
                return
            if number in SIGNALS:
                _arrived.append(time.monotonic())
                if len(_arrived) > 2 or _arrived[-1] - _arrived[0] >= REPEAT_S:
                    said = f"a repeated {_name(number)} ended it at once"
                    _report(f"{said}; complete files and checkpoints are kept; run it again")
                    os._exit(Interrupted.exit_code)
        if _arrived and not ready:
            if not announced:
                _report("finishing what a signal interrupted; send it again to end at once")
                announced = True
            signal.pthread_kill(threading.main_thread().ident or 0, REMINDER)


def _name(number: int) -> str:
    found = signal.Signals(number)
    return NAMES.get(found, found.name)


def _report(text: str) -> None:
    with suppress(OSError):
        os.write(2, f"perennial: {text}\n".encode())


@contextmanager
def signals_held() -> Iterator[None]:
    """Delay the exception of a signal to the end of the block, which must not be interrupted."""
    _holds.append(None)
    try:
        yield
    finally:
        _holds.pop()
    raise_if_signalled()


def raise_if_signalled() -> None:
    """Raise Signalled if a signal arrived; for use after native code that may have swallowed it."""
    if _received:
        raise Signalled(_received[0])


def die_with_starter() -> None:
    """End this process soon after its parent, or the process that STARTED_BY names, is gone."""
    named = os.environ.get(STARTED_BY, "")
    starters = {PARENT, int(named) if named.isdigit() else PARENT}
    threading.Thread(target=_watch, args=(PARENT, starters, signal.SIGTERM), daemon=True).start()


def die_with(owner: int) -> None:
    """End this process, which has nothing to save, soon after process `owner` is gone."""
    threading.Thread(target=_watch, args=(os.getppid(), {owner}, signal.SIGKILL), daemon=True).start()


def _watch(parent: int, starters: set[int], number: signal.Signals) -> None:
    while os.getppid() == parent and all(is_alive(starter) for starter in starters):
        time.sleep(POLL_S)
    # After a signal to the whole group this one would count as repeated, and cut the clean-up short.
    if number == signal.SIGKILL or not _arrived:
        os.kill(os.getpid(), number)
    time.sleep(GRACE_S)
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def is_alive(process: int) -> bool:
    """Whether a process has not ended."""
    try:
        # A zombie counts as gone: its parent may be waiting for this very process.
        return psutil.Process(process).status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    except (psutil.NoSuchProcess, ValueError):  # or no number of a process, in a damaged file
        return False
    except psutil.AccessDenied:
        return True


def children(process: int, *, all_below: bool = False) -> list[int]:
    """The processes that a process started and that have not ended; or all below it, the deepest first."""
    with suppress(psutil.NoSuchProcess):
        found = psutil.Process(process).children(recursive=all_below)
        return [child.pid for child in reversed(found) if is_alive(child.pid)]
    return []
