"""Work that strace kills, or refuses, at a chosen file operation."""

import os
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import forks

import perennial

WRITES = ("openat", "write", "pwrite64", "writev", "ftruncate", "fallocate", "copy_file_range", "sendfile")
SYNCS = ("fsync", "fdatasync", "sync_file_range", "sync", "syncfs")
NAMES = ("mkdir", "mkdirat", "rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat")
REMOVALS = ("unlink", "unlinkat", "rmdir")
OPERATIONS = (*WRITES, *SYNCS, *NAMES, *REMOVALS)

# Imports take long, so one process does them, and each piece of work is done by a copy of it. `work(folder)`
# gives the number of the thread that is to be stopped, and does its work after that.
STARTER = """
import io, os, sys, warnings
from pathlib import Path
from perennial import cli
from perennial.base.processes import process
from perennial.base.errors import PerennialError

answers = sys.stdout
warnings.simplefilter("ignore")

def say(word, what):
    answers.write(f"{word} {what}\\n")  # at once: a copy may be killed between two writes
    answers.flush()

def run(*command):
    process.PARENT = os.getppid()  # of this copy
    sys.stdout, sys.stderr, sys.argv = io.StringIO(), io.StringIO(), ["perennial", *command]
    yield os.getpid()
    cli.main()

def end(code, message):
    say("message", " ".join(message.split()))
    os._exit(code)

lines = open(0, "rb", buffering=0)  # shared with the copies: nobody may read ahead
while line := lines.readline():
    copy = os.fork()
    if not copy:
        try:
            begun = work(Path(line.decode().strip()))
            say("thread", next(begun))
            lines.readline()
            next(begun, None)
        except PerennialError as error:
            end(error.exit_code, str(error))
        except SystemExit as ended:
            end(ended.code or 0, sys.stderr.getvalue())
        os._exit(0)
    say("code", os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]))
"""
# The command line as work: it is started in the folder.
COMMAND = """
import os
{imports}
def work(folder):
    os.chdir(folder)
    yield from run({arguments})
"""


@dataclass(frozen=True)
class Ended:
    """How a piece of work ended that was begun in a folder."""

    folder: Path
    code: int  # minus the number of a signal
    message: str
    trace: str

    def changes(self, under: Path) -> list[tuple[str, int]]:
        """The operations that changed something under a folder: name, and number among all of that name."""
        seen: Counter[str] = Counter()
        found = []
        for line in re.findall(r"^\w+\(.*", self.trace, re.MULTILINE):
            name = line.partition("(")[0]
            seen[name] += 1
            if any(path.is_relative_to(under) for path in self._changed(name, line)):
                found.append((name, seen[name]))
        return found

    def _changed(self, name: str, line: str) -> list[Path]:
        """The paths that an operation changes; of one on a number of a file, the file."""
        if name == "openat" and "O_CREAT" not in line:
            return []
        named = name in ("openat", *NAMES, *REMOVALS)
        return [self.folder / path for path in re.findall(r'"([^"]*)"' if named else r"\d<(/[^>]*)>", line)]


class Worker:
    """Does pieces of work under the eyes of strace: `code` defines `work(folder)`, see above."""

    def __init__(self, code: str) -> None:
        if shutil.which("strace") is None:
            pytest.skip("strace is not installed, so nothing is killed at its file operations")
        tests, source = Path(__file__).parents[1], Path(perennial.__file__).parents[1]
        program = forks.with_tensorflow() if "tensorflow" in code else forks.python()
        self._process = subprocess.Popen(
            [program, "-m", "-c", code + STARTER],
            env={**os.environ, "PYTHONPATH": f"{source}:{tests}"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        self._to, self._from = self._process.stdin, self._process.stdout

    def close(self) -> None:
        """Ends the process that the copies are made of."""
        self._to.close()
        self._process.wait()
        self._from.close()

    def whole(self, folder: Path) -> Ended:
        """Work that nobody disturbs, with the path behind each number of a file in its trace."""
        known = ",".join(f"?{name}" for name in OPERATIONS)  # ?: if there is one
        return self.run(folder, "-y", "-e", f"trace={known}")

    def stopped(self, folder: Path, operation: str, number: int, how: str = "signal=SIGKILL") -> Ended:
        """Work that is killed, or refused by `error=ENOSPC`, at the N-th such operation."""
        inject = f"inject={operation}:{how}:when={number}"
        return self.run(folder, "-y", "-e", f"trace={operation}", "-e", inject)

    def run(self, folder: Path, *strace: str) -> Ended:
        """Work in a folder, with options of strace; its trace lies beside the folder."""
        trace = folder.with_name(f"{folder.name}.trace")
        print(folder, file=self._to)
        word, thread = self._from.readline().split()
        assert word == "thread"
        # Of that thread alone: what others open is no part of the work.
        command = ["strace", "-p", thread, "-o", str(trace), *strace]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
            said = tracer.stderr.readline()
            print("go", file=self._to)
            message, code = "", self._from.readline()
            if code.startswith("message"):
                message, code = code, self._from.readline()
            tracer.stderr.read()
        if "attached" not in said:
            pytest.skip(f"strace may not trace here: {said}")
        return Ended(
            folder, int(code.removeprefix("code ")), message.removeprefix("message "), trace.read_text()
        )
