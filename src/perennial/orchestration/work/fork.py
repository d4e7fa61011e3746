"""Forks of this process that look like programs: what is imported need not be imported again."""

import gc
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from io import FileIO, TextIOWrapper
from typing import NoReturn

POLL_S = 0.01


class Fork:
    """A fork of this process that calls a function and ends; like a Popen, as far as it is used here."""

    stdin = None

    def __init__(self, function: Callable[[], object], variables: Mapping[str, str]) -> None:
        self.returncode: int | None = None
        pipes = os.pipe(), os.pipe()
        self.pid = os.fork()
        if not self.pid:
            try:
                _become(function, variables, *(writer for _, writer in pipes))
            finally:
                os._exit(1)  # not the rest of this program, whatever happens
        for _, writer in pipes:
            os.close(writer)
        self.stdout, self.stderr = (FileIO(reader) for reader, _ in pipes)

    def poll(self) -> int | None:
        """The exit code, once it has ended."""
        if self.returncode is None:
            process, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if process else None
        return self.returncode

    def wait(self, timeout: float = math.inf) -> int:
        """Wait for its end; raises TimeoutExpired."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a fork", timeout)
            time.sleep(POLL_S)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal; nothing, if it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


def _become(function: Callable[[], object], variables: Mapping[str, str], output: int, errors: int) -> NoReturn:
    """Make a fork look like a program that has just started, and call the function."""
    os.setsid()
    gc.freeze()  # else it might close a file by the number of one that is closed now
    for number, opened in enumerate((os.open(os.devnull, os.O_RDONLY), output, errors)):
        os.dup2(opened, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # locks, too: they are not this process's
    sys.stdout, sys.stderr = (TextIOWrapper(FileIO(each, "w"), "utf-8", write_through=True) for each in (1, 2))
    os.environ.clear()
    os.environ.update(variables)
    code: object = None
    try:
        function()
    except SystemExit as ended:
        code = ended.code
    os._exit(code if isinstance(code, int) else int(code is not None))
