"""The one way to run another program: it has an end, asks nothing, and leaves no process behind.

`run(command, limit_s=...)` returns a `Finished` with `code`, `output` and `errors`, however the program ended:

    done = programs.run(["docker", "pull", image], limit_s=limits.PULL_S)
    if done.code:
        raise PerennialError(f"docker pull failed: {done.last_lines()}")

A `Program` runs beside this process, which talks to it; the end of the block is its end, too:

    with Program([sys.executable, "-m", module], feed=True) as program:
        ...
        done = program.finish(b"what it reads", limit_s=None)

What both promise:

- The program runs in its own session, without a terminal, and prompts of git and ssh are off. Its input is
  empty unless it is fed. It inherits no descriptor of this process but `inherits`, so no lock either.
- After `limit_s` seconds (multiplied by PERENNIAL_TIMEOUT_FACTOR, see `limits`) the whole process group gets
  SIGTERM, and SIGKILL after `grace_s`. `TimedOut` then holds the program's own last lines.
- The same happens if this process is interrupted. If it is killed, a guard does it. The guard holds `lock`
  until the group is gone, so the next process that waits for that lock never meets a program of this one.
- A daemon that keeps the output of an ended program open (ssh's ControlPersist, git's credential cache) is not
  waited for. `run` leaves such daemons alone; the end of a block ends them.
- However much a program writes, this process keeps the last megabyte of its errors, and of lines passed on.

`to` gets each line of the output as it comes, `log` each of the errors; `merged` sends stderr into stdout.
"""

import math
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self, TypedDict, Unpack

from perennial.base import limits
from perennial.base.errors import ConfigError, PerennialError, redacted

LINES = 5  # of a program's message
POLL_S = 0.1  # for the end of a program whose output another process keeps open
CHUNK = 1 << 16
DEVNULL, STDOUT = subprocess.DEVNULL, subprocess.STDOUT
KEPT = 1 << 20  # bytes of its errors
# Reads a process group from its standard input; ends it, with $1 seconds of grace, when who feeds that is gone.
GUARD = """
read -r group && ! read -r ended || exit
kill -s TERM -- "-$group"
left=$1
while [ "$left" -gt 0 ] && kill -s 0 -- "-$group"; do sleep 1; left=$((left - 1)); done
kill -s KILL -- "-$group"
"""
To = Callable[[str], object]  # takes a line
Command = Sequence[str | Path] | Callable[[Mapping[str, str]], Any]


class Missing(ConfigError):
    """A program is not installed, or not on the PATH."""

    def __init__(self, name: str | Path) -> None:
        super().__init__(f"{name} is not installed, or not on the PATH; install it, or add its folder to PATH")


class TimedOut(PerennialError):
    """A program did not end within its limit, and was stopped; `said`: its own last lines."""

    def __init__(self, name: str, limit_s: float, said: str) -> None:
        self.name, self.limit_s, self.said = name, limit_s, said
        last = f"; its last lines: {said}" if said else ", and it said nothing"
        remedy = f"{limits.FACTOR}=2 allows twice the time"
        super().__init__(f"{name} did not end within {limit_s:g} s and was stopped{last}; {remedy}")


@dataclass(frozen=True)
class Finished:
    """How a program ended, and what it wrote; `code` is negative if a signal ended it."""

    code: int
    stdout: bytes
    stderr: bytes

    @property
    def output(self) -> str:
        """Standard output; bytes that are no UTF-8 become surrogates, as in Python's file names."""
        return _text(self.stdout, "surrogateescape")

    @property
    def errors(self) -> str:
        """Standard error."""
        return _text(self.stderr, "replace")

    def last_lines(self, most: int = LINES) -> str:
        """The program's last lines, without secrets: of its errors, else of its output; else its exit code."""
        said = last_lines(self.errors, most) or last_lines(_text(self.stdout, "replace"), most)
        return said or f"exit code {self.code}"


class Options(TypedDict, total=False):
    """How a program runs."""

    cwd: Path | None
    env: Mapping[str, str] | None  # all its variables; by default, those of this process
    to: To | None
    log: To | None
    lock: int | None  # a descriptor of a lock that is held until it is gone, even if this process is killed
    guarded: bool  # stop it if this process is killed; without it, a short program starts faster
    grace_s: float


def run(
    command: Command,
    *,
    limit_s: float | None,
    stdin: str | bytes = b"",
    merged: bool = False,
    most: int | None = None,
    **options: Unpack[Options],
) -> Finished:
    """Run a program to its end.

    limit_s: None if whoever started this process ends it.
    most: stop the program after so many bytes of output, with code 0.
    """
    content = stdin.encode(errors="surrogateescape") if isinstance(stdin, str) else stdin
    errors = STDOUT if merged else subprocess.PIPE
    with Program(command, feed=bool(content), stderr=errors, **options) as program:
        return program.finish(content, limit_s=limit_s, most=most, leave_daemons=True)


class Program:
    """A program that runs beside this process; at the end of the block, all its processes end.

    command: a program and its arguments, or a function that starts a process with the variables that it gets.
    feed: it has a standard input, which `finish` gives it, and which ends with this process.
    stdout, stderr: as for `subprocess.Popen`; by default, they are read.
    inherits: descriptors of this process that it gets.
    """

    def __init__(
        self,
        command: Command,
        *,
        feed: bool = False,
        stdout: int | IO[bytes] | None = subprocess.PIPE,
        stderr: int | IO[bytes] | None = subprocess.PIPE,
        inherits: Sequence[int] = (),
        **options: Unpack[Options],
    ) -> None:
        env, lock = options.get("env"), options.get("lock")
        variables = without_prompts(os.environ if env is None else env)
        self._grace_s = options.get("grace_s", limits.GRACE_S)
        guarded = options.get("guarded", True) or lock is not None
        self._process: subprocess.Popen[bytes]
        if callable(command):
            self._name, self._process = "a process", command(variables)
            # Not before: a fork would hold the guard's input open after this process.
            self._guard = _guard(self._grace_s, lock) if guarded else None
        else:
            found = shutil.which(command[0], path=variables.get("PATH", os.defpath))
            if found is None:
                raise Missing(command[0])
            self._name = " ".join((Path(command[0]).name, *map(str, command[1:2])))
            # Before the program: this process may be killed as soon as that runs.
            self._guard = _guard(self._grace_s, lock) if guarded else None
            try:
                self._process = subprocess.Popen(
                    [found, *command[1:]], cwd=options.get("cwd"), env=variables, stdout=stdout, stderr=stderr,
                    stdin=subprocess.PIPE if feed else DEVNULL, pass_fds=inherits, start_new_session=True,
                )  # fmt: skip
            except BaseException:
                if self._guard:
                    self._guard.communicate()  # it ends, since it has no group
                raise
        self.pid = self._process.pid
        if self._guard and self._guard.stdin:
            os.write(self._guard.stdin.fileno(), f"{self.pid}\n".encode())
        self.own = {self.pid, self._guard.pid} if self._guard else {self.pid}  # this process's children
        self._closed = False
        self._pending = memoryview(b"")  # what it has not read yet
        self._output, self._errors = _Stream(options.get("to")), _Stream(options.get("log"), KEPT)
        self._streams = selectors.DefaultSelector()
        for stream, read in ((self._process.stdout, self._output), (self._process.stderr, self._errors)):
            if stream is not None:
                self._streams.register(stream, selectors.EVENT_READ, read)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def poll(self) -> int | None:
        """The exit code, negative after a signal; None while it runs."""
        return self._process.poll()

    def signal(self, number: int) -> None:
        """Send a signal to the program, but not to what it started; does nothing if it has ended."""
        self._process.send_signal(number)

    def wait(self, limit_s: float = math.inf, until: Callable[[], bool] = lambda: False) -> int | None:
        """Wait for its end, or `until`, and read what it writes; returns the exit code, None if it runs."""
        self._read(time.monotonic() + limit_s, None, until)
        return self.poll()

    def finish(
        self, content: bytes = b"", *, limit_s: float | None, most: int | None = None,
        leave_daemons: bool = False,
    ) -> Finished:  # fmt: skip
        """Give it its input and run it to its end, as `run` does; raises TimedOut."""
        limit_s = math.inf if limit_s is None else limits.scaled(limit_s)
        with self:
            if self._process.stdin is not None:
                self._pending = memoryview(content)
                os.set_blocking(self._process.stdin.fileno(), False)
                self._streams.register(self._process.stdin, selectors.EVENT_WRITE)
            in_time = self._read(time.monotonic() + limit_s, most)
            full = most is not None and len(self._output.content) >= most
            if leave_daemons and in_time and not full:
                self._close()
        stdout, stderr = bytes(self._output.content), bytes(self._errors.content)
        if not in_time:
            raise TimedOut(self._name, limit_s, last_lines(_text(stderr or stdout, "replace")))
        return Finished(0 if full else self._process.returncode or 0, stdout, stderr)

    def stop(self) -> bool:
        """Stop all its processes, first by SIGTERM, so that they save; whether that was enough."""
        if self._closed:
            return True
        try:
            saved = self._ended_by(signal.SIGTERM)
            if not saved:
                self._ended_by(signal.SIGKILL)
            return saved
        finally:
            self._close()

    def _ended_by(self, number: int) -> bool:
        """Signal all its processes; whether they have ended after the grace."""
        _signal(self.pid, number)
        deadline = time.monotonic() + self._grace_s
        while alive := self.poll() is None or _signal(self.pid, 0):
            if time.monotonic() >= deadline:
                break
            if not self._step(POLL_S):
                time.sleep(POLL_S / 10)
        return not alive

    def _close(self) -> None:
        self._closed = True
        if self.poll() is None:  # a second interruption
            _signal(self.pid, signal.SIGKILL)
            self._process.wait()
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
        self._streams.close()
        for stream in filter(None, (self._process.stdin, self._process.stdout, self._process.stderr)):
            with suppress(BrokenPipeError):
                stream.close()

    def _read(self, deadline: float, most: int | None, until: Callable[[], bool] = lambda: False) -> bool:
        """Read until it has ended or wrote enough; False if the deadline passes before that."""
        while not until() and (most is None or len(self._output.content) < most):
            left = deadline - time.monotonic()
            ended = self.poll() is not None  # asked before the read, which then gets the rest
            if not self._step(0 if ended else min(max(left, 0), POLL_S)) and ended:
                break
            if left <= 0 and not ended:
                return False
        return True

    def _step(self, timeout_s: float) -> bool:
        """Read what there is, after waiting for it up to a time; whether there was anything."""
        if not self._streams.get_map():  # the program closed its output
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
            return False
        ready = self._streams.select(timeout_s)
        for key, _ in ready:
            goes_on = key.data.add(os.read(key.fd, CHUNK)) if key.data else self._feed(key.fd)
            if not goes_on:
                self._streams.unregister(key.fileobj)
            if not goes_on and self._process.stdin is key.fileobj:
                self._process.stdin.close()
        return bool(ready)

    def _feed(self, descriptor: int) -> bool:
        """Write what the program can take now; whether there is more, and it has not closed its input."""
        try:
            self._pending = self._pending[os.write(descriptor, self._pending[:CHUNK]) :]
        except BrokenPipeError:
            return False
        return bool(self._pending)


class _Stream:
    """What a program writes to one of its outputs; passes on lines, and then keeps the last of it."""

    def __init__(self, to: To | None, kept: int | None = None) -> None:
        self._to, self._kept = to, KEPT if to else kept
        self._passed = 0  # bytes of the content that `to` got
        self.content = bytearray()

    def add(self, chunk: bytes) -> bool:
        """Take a piece; whether it was not the end."""
        self.content.extend(chunk)
        if self._to:
            end = self.content.rfind(b"\n", self._passed) + 1
            if not chunk or len(self.content) - max(end, self._passed) > CHUNK:  # the last line, or a long one
                end = len(self.content)
            new, self._passed = bytes(self.content[self._passed : end]), max(end, self._passed)
            for line in _text(new, "replace").splitlines():
                self._to(redacted(line))
        if self._kept and len(self.content) > 2 * self._kept:
            cut = len(self.content) - self._kept
            del self.content[:cut]
            self._passed = max(self._passed - cut, 0)
        return bool(chunk)


def without_prompts(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of a program that must not ask; programs that the user names for answers stay."""
    windows = () if variables.get("SSH_ASKPASS_REQUIRE") == "force" else ("SSH_ASKPASS", "SSH_ASKPASS_REQUIRE")
    kept = {name: value for name, value in variables.items() if name not in windows}
    never = {"SSH_ASKPASS_REQUIRE": "never"} if windows else {}
    return {**kept, **never, "GIT_TERMINAL_PROMPT": "0", "PIP_NO_INPUT": "1"}


def last_lines(text: str, most: int = LINES) -> str:
    """The last lines of a program's message, in one line and without secrets."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return redacted(" ".join(lines[-most:]))


def _guard(grace_s: float, lock: int | None) -> subprocess.Popen[bytes]:
    """Start what stops a process group, and holds a lock until it is gone, if this process is killed."""
    return subprocess.Popen(
        ["/bin/sh", "-c", GUARD, "sh", str(math.ceil(grace_s))],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True, pass_fds=() if lock is None else (lock,),
    )  # fmt: skip


def _signal(group: int, number: int) -> bool:
    """Send a signal to a process group; whether there is one."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
        return True
    return False


def _text(content: bytes, errors: str) -> str:
    return content.decode(errors=errors).replace("\r\n", "\n").replace("\r", "\n")
