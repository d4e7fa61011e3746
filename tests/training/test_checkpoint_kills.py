"""A save that is killed at a file operation, or refused one, leaves the checkpoint before it or the new one.

strace stops the saving process at the N-th operation of a kind. Here the first and the last of each kind are
tried; `make faults` tries every one.
"""

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from training.test_checkpoints import FILES, THOROUGH, save

import perennial
from perennial.training import checkpoints

WRITES = ("openat", "write", "pwrite64", "writev", "ftruncate", "fallocate", "copy_file_range", "sendfile")
SYNCS = ("fsync", "fdatasync", "sync_file_range", "sync", "syncfs")
NAMES = ("mkdir", "mkdirat", "rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat")
REMOVALS = ("unlink", "unlinkat", "rmdir")
OLD, NEW = 20, 30

# Importing TensorFlow takes seconds, so one process does, and each save is done by a copy of it.
SAVER = """
import os, sys, threading
from pathlib import Path
import tensorflow as tf
from training.test_checkpoints import variables
from perennial.errors import PerennialError
from perennial.training.checkpoints import Checkpoints

lines = open(0, "rb", buffering=0)  # shared with the copies: nobody may read ahead

def say(*words):
    print(*words, flush=True)

def first(folder):
    # A thread's first one opens /dev/urandom, and TensorFlow crashes where it cannot.
    tf.raw_ops.SaveV2(prefix=f"{folder}.first", tensor_names=["a"], shape_and_slices=[""], tensors=[1])
    return threading.get_native_id()

def save(folder):
    # Large enough for several writes.
    large = {"large": [tf.Variable(tf.fill([300_000], 30.0))]}
    into = variables(0)
    with Checkpoints(folder, max_to_keep=2) as these:
        these.restore(into)
        writer = these._writer.submit(first, folder).result()
        say("writer", writer)
        lines.readline()
        these.save(30, {**variables(30), **large}, {"epoch": 3.0}, wait=True)

while line := lines.readline():
    copy = os.fork()
    if not copy:
        try:
            save(Path(line.decode().strip()))
        except PerennialError as error:
            say("told", type(error).exit_code, error)
            os._exit(1)
        os._exit(0)
    say("code", os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]))
"""


class Saver:
    """Saves step 30 into folders that hold steps 10 and 20, under the eyes of strace."""

    def __init__(self, folder):
        self.folder = folder
        save(folder / "before", 10, OLD)
        tests, source = Path(__file__).parents[1], Path(perennial.__file__).parents[1]
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", SAVER],
            env={**os.environ, "PYTHONPATH": f"{source}:{tests}", "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def save(self, name, *strace):
        """Where it saved, the code it ended with, and what it told."""
        folder = shutil.copytree(self.folder / "before", self.folder / name)
        print(folder, file=self.process.stdin)
        writer = self.answer("writer")
        # Of the thread that writes alone: what others open is no part of the save.
        command = ["strace", "-p", writer, "-o", self.folder / f"{name}.trace", *strace]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
            said = tracer.stderr.readline()
            print("go", file=self.process.stdin)
            told, code = "", self.process.stdout.readline()
            if code.startswith("told"):
                told, code = code, self.process.stdout.readline()
            tracer.stderr.read()
        if "attached" not in said:
            pytest.skip(f"strace may not trace here: {said}")
        return folder, int(code.removeprefix("code ")), told

    def answer(self, kind):
        word, value = self.process.stdout.readline().split()
        assert word == kind
        return value


@pytest.fixture(scope="module")
def saver(tmp_path_factory):
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed, so no save is killed at its file operations")
    saver = Saver(tmp_path_factory.mktemp("kills"))
    yield saver
    saver.close()


@pytest.fixture(scope="module")
def operations(saver):
    """How often one save does each file operation."""
    known = ",".join(f"?{name}" for name in (*WRITES, *SYNCS, *NAMES, *REMOVALS))  # ?: if there is one
    folder, code, _ = saver.save("whole", "-y", "-e", f"trace={known}")
    assert (code, state(folder)) == (0, NEW)
    trace = (saver.folder / "whole.trace").read_text()
    return Counter(re.findall(r"^(\w+)\(", trace, re.MULTILINE))


def chosen(operations):
    """Which to stop at: name and number."""
    for name, count in sorted(operations.items()):
        for number in range(1, count + 1):
            if THOROUGH or number in {1, count}:
                yield name, number


def state(folder):
    """The step that is found, after a look at every variable."""
    found = checkpoints.newest(folder)
    assert all((value == found.step).all() for name, value in found.values.items() if name != "optimizer/seen")
    assert found.facts == {"epoch": found.step / 10}
    return found.step


def content(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_save_does_its_operations_in_the_thread_that_is_stopped(operations):
    assert {"openat", "write", "fsync", "mkdir", "rename"} <= operations.keys()
    print("one save:", sum(operations.values()), "file operations", dict(operations))


def test_all_is_on_the_disk_before_it_gets_its_name_and_the_name_before_the_old_one_goes(saver, operations):
    folder = saver.folder / "whole"
    new = folder / ".step-000000030.tmp"
    before, after = (saver.folder / "whole.trace").read_text().split(f'rename("{new}", ')
    synced = re.findall(r"^f\w*sync\(\d+<(.*)>\)", before, re.MULTILINE)
    assert {str(path) for path in (new, *(new / name for name in FILES))} <= set(synced)
    assert re.search(r"^f\w*sync\(\d+<(.*)>\)", after, re.MULTILINE)[1] == str(folder)
    assert after.index("fsync") < after.index("step-000000010")


def test_a_save_killed_at_any_file_operation_leaves_the_old_or_the_new(saver, operations, caplog):
    found = Counter()
    for name, number in chosen(operations):
        inject = f"inject={name}:signal=SIGKILL:when={number}"
        folder, code, _ = saver.save(f"kill-{name}-{number}", "-e", f"trace={name}", "-e", inject)
        assert code == -signal.SIGKILL
        found[state(folder)] += 1
        save(folder, 40)
        assert (len(content(folder)), content(folder)[-1]) == (2, "step-000000040")
    damaged = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert (damaged, found.keys()) == ([], {OLD, NEW})
    print("killed:", found.total(), "found old, new:", dict(found))


# Of each kind of refusal the operation where it is most usual, and the removal of an old checkpoint.
@pytest.mark.parametrize(
    ("error", "usual"), [("ENOSPC", ("write", 1)), ("EIO", ("fsync", 1)), ("EROFS", ("rename", 1))]
)
def test_a_save_that_is_refused_any_file_operation_tells_it_and_loses_nothing(saver, operations, error, usual):
    found, removal = Counter(), ("rename", operations["rename"])
    for name, number in chosen(operations):
        if not THOROUGH and (name, number) not in {usual, removal}:
            continue
        inject = f"inject={name}:error={error}:when={number}"
        folder, code, told = saver.save(f"{error}-{name}-{number}", "-e", f"trace={name}", "-e", inject)
        # Not to be able to remove an old one is no reason to stop.
        assert (code, state(folder)) == (0, NEW) or (code == 1 and str(folder) in told)
        assert not [left for left in content(folder) if left.endswith(".tmp")]
        found[code, state(folder)] += 1
        save(folder, 40)
        assert (len(content(folder)), content(folder)[-1]) == (2, "step-000000040")
    assert (0, NEW) in found
    assert any(code == 1 for code, _ in found)
    print("refused:", found.total(), "found code and step:", dict(found))
