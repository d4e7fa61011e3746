"""A save that is killed at a file operation, or refused one, leaves the checkpoint before it or the new one.

strace stops the saving process at the N-th operation of a kind. Here the first and the last of each kind are
tried; `make faults` tries every one.
"""

import logging
import re
import shutil
import signal
from collections import Counter

import pytest
from model.training.test_checkpoints import FILES, THOROUGH, save
from support import kills

from perennial.model.training import checkpoints

pytestmark = pytest.mark.timing

OLD, NEW = 20, 30

SAVE = """
import threading
import tensorflow as tf
from model.training.test_checkpoints import variables
from perennial.model.training.checkpoints import Checkpoints

def first(folder):
    # A thread's first one opens /dev/urandom, and TensorFlow crashes where it cannot.
    tf.raw_ops.SaveV2(prefix=f"{folder}.first", tensor_names=["a"], shape_and_slices=[""], tensors=[1])
    return threading.get_native_id()

def work(folder):
    # Large enough for several writes.
    large = {"large": [tf.Variable(tf.fill([300_000], 30.0))]}
    into = variables(0)
    with Checkpoints(folder, max_to_keep=2) as these:
        these.restore(into)
        yield these._writer.submit(first, folder).result()
        these.save(30, {**variables(30), **large}, {"epoch": 3.0}, wait=True)
"""


@pytest.fixture(scope="module")
def worker():
    """Saves step 30 under the eyes of strace."""
    worker = kills.Worker(SAVE)
    yield worker
    worker.close()


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """Makes folders that hold steps 10 and 20."""
    folder = tmp_path_factory.mktemp("kills")
    save(folder / "before", 10, OLD)
    return lambda name: shutil.copytree(folder / "before", folder / name)


@pytest.fixture(scope="module")
def whole(worker, before):
    """A save that nobody disturbed."""
    ended = worker.whole(before("whole"))
    assert ended.code == 0
    assert state(ended.folder) == NEW
    return ended


@pytest.fixture(scope="module")
def operations(whole):
    """How often one save does each file operation."""
    return Counter(re.findall(r"^(\w+)\(", whole.trace, re.MULTILINE))


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


def test_all_is_on_the_disk_before_it_gets_its_name_and_the_name_before_the_old_one_goes(whole):
    folder = whole.folder
    (new,) = set(re.findall(rf'rename\("({folder}/\.step-000000030\.\w+\.tmp)", ', whole.trace))
    before, after = whole.trace.split(f'rename("{new}", ')
    synced = re.findall(r"^f\w*sync\(\d+<(.*)>\)", before, re.MULTILINE)
    assert {new, *(f"{new}/{name}" for name in FILES)} <= set(synced)
    assert re.search(r"^f\w*sync\(\d+<(.*)>\)", after, re.MULTILINE)[1] == str(folder)
    assert after.index("fsync") < after.index("step-000000010")


@pytest.mark.slow
def test_a_save_killed_at_any_file_operation_leaves_the_old_or_the_new(worker, before, operations, caplog):
    found = Counter()
    for name, number in chosen(operations):
        ended = worker.stopped(before(f"kill-{name}-{number}"), name, number)
        folder = ended.folder
        assert ended.code == -signal.SIGKILL
        found[state(folder)] += 1
        save(folder, 40)
        assert len(content(folder)) == 2
        assert content(folder)[-1] == "step-000000040"
    damaged = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert damaged == []
    assert found.keys() == {OLD, NEW}
    print("killed:", found.total(), "found old, new:", dict(found))


# Of each kind of refusal the operation where it is most usual, and the removal of an old checkpoint.
@pytest.mark.fast_rows("ENOSPC-usual0")
@pytest.mark.parametrize(
    ("error", "usual"), [("ENOSPC", ("write", 1)), ("EIO", ("fsync", 1)), ("EROFS", ("rename", 1))]
)
def test_a_save_that_is_refused_any_file_operation_says_so_and_loses_nothing(
    worker, before, operations, error, usual
):
    found, removal = Counter(), ("rename", operations["rename"])
    for name, number in chosen(operations):
        if not THOROUGH and (name, number) not in {usual, removal}:
            continue
        ended = worker.stopped(before(f"{error}-{name}-{number}"), name, number, f"error={error}")
        folder, code = ended.folder, ended.code
        # Not to be able to remove an old one is no reason to stop; 3: not to be able to look what is there.
        assert (code, state(folder)) == (0, NEW) or (code in {1, 3} and str(folder) in ended.message)
        assert not [left for left in content(folder) if left.endswith(".tmp")]
        found[code, state(folder)] += 1
        save(folder, 40)
        assert len(content(folder)) == 2
        assert content(folder)[-1] == "step-000000040"
    assert (0, NEW) in found
    assert any(code == 1 for code, _ in found)
    print("refused:", found.total(), "found code and step:", dict(found))
