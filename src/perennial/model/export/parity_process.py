"""The process that compares an export: a fork of the stage's, which has imported TensorFlow, or else a program.

A fork has only the thread that made it: native code in it that waits for another waits forever. So it is
made before TensorFlow does anything, and only while no library has started a thread.
"""

import gc
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perennial.base.devices import gpus
from perennial.base.errors import SIGNALS
from perennial.base.parallel import child
from perennial.base.processes import process
from perennial.model.export import parity

THREADS = Path("/proc/self/task")
_forked: list[tuple[int, socket.socket]] = []  # its process, and the way to it


def fork(log: Path) -> None:
    """Fork this process for a later `started`, on a machine without GPUs; its messages go to a file."""
    if gpus.found() or not THREADS.is_dir() or len(list(THREADS.iterdir())) != threading.active_count():
        return
    owner, (ours, theirs) = os.getpid(), socket.socketpair()
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until the fork no longer handles them as the stage does
    if not (number := os.fork()):
        try:
            _become_program(owner, theirs.fileno(), log)
        finally:
            os._exit(1)  # not the rest of the stage, whatever happens
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    theirs.close()
    _forked.append((number, ours))


def _become_program(owner: int, stage: int, log: Path) -> None:
    """Answer a job of the stage, and end; also where the stage has none or has ended."""
    for number, opened in enumerate((stage, stage, os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666))):
        os.dup2(opened, number)
    gc.freeze()  # else it might close a file by the number of one that is closed now
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # locks, too: they are the stage's
    signal.set_wakeup_fd(-1)
    for each in SIGNALS:
        signal.signal(each, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    process.die_with(owner)
    with open(0, "rb") as job, open(1, "wb") as answer:
        if given := job.read():
            answer.write(child.answer(parity.main, given))
            answer.flush()
            os._exit(0)


@contextmanager
def started(log: Path) -> Iterator[child.Call]:
    """Yield a function that lets the fork compare, or a program that starts now and imports TensorFlow."""
    if not _forked:
        with child.started(parity.__name__, log) as call:
            yield call
        return
    number, connection = _forked.pop()
    ended: list[int] = []  # its status

    def compare(argument: dict[str, Any]) -> Any:
        connection.sendall(child.request(argument))
        connection.shutdown(socket.SHUT_WR)
        answer = connection.makefile("rb").read()
        ended.append(os.waitpid(number, 0)[1])
        return child.result(parity.__name__, os.waitstatus_to_exitcode(ended[0]), answer, log)

    with connection:
        try:
            yield compare
        finally:
            if not ended:
                os.kill(number, signal.SIGKILL)
                os.waitpid(number, 0)
