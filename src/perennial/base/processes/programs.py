"""The one way to run another program: it has an end, asks nothing, and leaves no process behind.

`run(command, limit_s=...)` returns a `Finished` with `code`, `output` and `errors`, however the program ended:

    done = programs.run(["docker", "pull", image], limit_s=limits.PULL_S)
    if done.code:
        raise PerennialError(f"docker pull failed: {done.last_lines()}")

What it promises:

- The program runs in its own session, with an empty standard input unless `stdin` is given, and inherits no
  descriptor of this process, so no lock either. It has no terminal, and prompts of git and ssh are off.
- After `limit_s` seconds (multiplied by PERENNIAL_TIMEOUT_FACTOR, see `limits`) the whole process group gets
  SIGTERM, and SIGKILL after `grace_s`. `TimedOut` then holds the program's own last lines.
- The same happens if this process is interrupted. If it is killed, a guard does it. The guard holds `lock`
  until the group is gone, so the next process that waits for that lock never meets a program of this one.
- A program that has ended is not waited for again because a daemon that it started (ssh's ControlPersist, git's
  credential cache) keeps its output open. Such daemons are left alone.

`to` gets each line of the output as it comes; `merged` sends stderr into stdout, as a terminal shows them.
"""

import math
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from perennial.base import limits
from perennial.base.errors import ConfigError, PerennialError, redacted

LINES = 5  # of a program's message
POLL_S = 0.1  # for the end of a program whose output another process keeps open
CHUNK = 1 << 16
# Ends process group $1, with $2 seconds of grace, when the process that feeds its standard input is gone.
GUARD = """
read -r ended
kill -s TERM -- "-$1"
left=$2
while [ "$left" -gt 0 ] && kill -s 0 -- "-$1"; do sleep 1; left=$((left - 1)); done
kill -s KILL -- "-$1"
"""


class Missing(ConfigError):
    """A program is not installed, or not on the PATH."""

    def __init__(self, name: str | Path) -> None:
        """`name`: of the program."""
        what = f"{name} is not installed, or not on the PATH"
        super().__init__(f"{what}; install it, or add its folder to PATH")


class TimedOut(PerennialError):
    """A program did not end within its limit, and was stopped with all its processes."""

    def __init__(self, name: str, limit_s: float, said: str) -> None:
        """`said`: the program's own last lines."""
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


def run(  # noqa: PLR0913 - as for `subprocess.run`, each is a choice of its own
    command: Sequence[str | Path],
    *,
    limit_s: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | bytes = b"",
    to: Callable[[str], None] | None = None,
    merged: bool = False,
    most: int | None = None,
    lock: int | None = None,
    guarded: bool = True,
    grace_s: float = limits.GRACE_S,
) -> Finished:
    """Run a program to its end.

    env: all variables of the program, by default this process's.
    most: stop the program after so many bytes of output, with code 0.
    lock: a descriptor of a lock that is held until the program is gone, even if this process is killed.
    guarded: stop the program if this process is killed; without it, a short program starts faster.

    Raises:
        Missing: there is no such program.
        TimedOut: it did not end in time.
    """
    limit_s, variables = limits.scaled(limit_s), without_prompts(os.environ if env is None else env)
    found = shutil.which(command[0], path=variables.get("PATH", os.defpath))
    if found is None:
        raise Missing(command[0])
    with _started([found, *command[1:]], cwd, variables, stdin, merged=merged) as process:
        read = _Reader(process, to, most)
        with _guard(process.pid, grace_s, lock, needed=guarded or lock is not None):
            try:
                in_time = read.until(time.monotonic() + limit_s)
            except BaseException:
                _end(process, read, grace_s)
                raise
            if read.full or not in_time:
                _end(process, read, grace_s)
    stdout, stderr = map(bytes, read.contents)
    if not in_time:
        name = " ".join((Path(command[0]).name, *map(str, command[1:2])))
        raise TimedOut(name, limit_s, last_lines(_text(stderr or stdout, "replace")))
    return Finished(0 if read.full else process.returncode, stdout, stderr)


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


@contextmanager
def _started(
    command: Sequence[str | Path], cwd: Path | None, env: Mapping[str, str], stdin: str | bytes, *, merged: bool
) -> Iterator[subprocess.Popen[bytes]]:
    content = stdin.encode(errors="surrogateescape") if isinstance(stdin, str) else stdin
    with tempfile.TemporaryFile() if content else Path(os.devnull).open("rb") as given:
        if content:
            given.write(content)
            given.seek(0)
        process = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=given, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merged else subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:  # a second interruption
            _signal(process.pid, signal.SIGKILL)
            process.wait()
        for stream in filter(None, (process.stdout, process.stderr)):
            stream.close()


@contextmanager
def _guard(group: int, grace_s: float, lock: int | None, *, needed: bool) -> Iterator[None]:
    """Stop a process group, and hold a lock until it is gone, if this process is killed during the block."""
    if not needed:
        yield
        return
    guard = subprocess.Popen(
        ["/bin/sh", "-c", GUARD, "sh", str(group), str(math.ceil(grace_s))],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True, pass_fds=() if lock is None else (lock,),
    )  # fmt: skip
    with guard:
        try:
            yield
        finally:
            guard.kill()


class _Reader:
    """Reads what a program writes."""

    def __init__(
        self, process: subprocess.Popen[bytes], to: Callable[[str], None] | None, most: int | None
    ) -> None:
        self._process, self._to, self._most = process, to, most
        self._passed = 0  # bytes of the output that `to` got
        self._streams = selectors.DefaultSelector()
        self.contents = (bytearray(), bytearray())
        for stream, content in zip((process.stdout, process.stderr), self.contents, strict=True):
            if stream is not None:
                self._streams.register(stream, selectors.EVENT_READ, content)

    @property
    def full(self) -> bool:
        """Whether the program wrote as much as is wanted."""
        return self._most is not None and len(self.contents[0]) >= self._most

    def until(self, deadline: float) -> bool:
        """Read until the program has ended or wrote enough; False if the deadline passes before that."""
        while not self.full:
            left = deadline - time.monotonic()
            ended = self._process.poll() is not None  # asked before the read, which then gets the rest
            if not self.step(0 if ended else min(max(left, 0), POLL_S)) and ended:
                break
            if left <= 0 and not ended:
                return False
        return True

    def step(self, timeout_s: float) -> bool:
        """Read what there is, after waiting for it up to a time; whether there was anything."""
        if not self._streams.get_map():  # the program closed its output
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
            return False
        ready = self._streams.select(timeout_s)
        for key, _ in ready:
            chunk = os.read(key.fd, CHUNK)
            key.data.extend(chunk)
            if not chunk:
                self._streams.unregister(key.fileobj)
        if self._to:
            self._pass_on(self._to, whole=not self._streams.get_map())
        return bool(ready)

    def _pass_on(self, to: Callable[[str], None], *, whole: bool) -> None:
        """Pass on the lines that are complete; the last one is when there is nothing more to read."""
        output = self.contents[0]
        end = len(output) if whole else output.rfind(b"\n") + 1
        new = bytes(output[self._passed : end])
        self._passed = max(end, self._passed)
        for line in _text(new, "replace").splitlines():
            to(redacted(line))


def _end(process: subprocess.Popen[bytes], read: _Reader, grace_s: float) -> None:
    """Stop a program with all its processes: first by SIGTERM, so that git removes its locks."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        _signal(process.pid, number)
        deadline = time.monotonic() + grace_s
        while (process.poll() is None or _signal(process.pid, 0)) and time.monotonic() < deadline:
            if not read.step(POLL_S):
                time.sleep(POLL_S / 10)


def _signal(group: int, number: int) -> bool:
    """Send a signal to a process group; whether there is one."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
        return True
    return False


def _text(content: bytes, errors: str) -> str:
    return content.decode(errors=errors).replace("\r\n", "\n").replace("\r", "\n")
