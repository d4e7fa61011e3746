"""Checkpoints: what is saved comes back bit by bit, damage is found, a failure is reported."""

import itertools
import json
import logging
import os
import re
import resource
import shutil
import subprocess
import threading
from contextlib import contextmanager

import numpy as np
import pytest
import tensorflow as tf

from perennial.base.errors import DataError, PerennialError
from perennial.model.training import checkpoints
from perennial.model.training.checkpoints import Checkpoints

THOROUGH = os.environ.get("FAULTS") == "all"  # `make faults`
FILES = ("checkpoint.json", "variables.data-00000-of-00001", "variables.index")
# Signalling NaN, negative zero, the smallest subnormal, infinity, one and a third.
BITS = np.array([0x7FA00001, 0x80000000, 1, 0x7F800000, 0x3F800000, 0x3EAAAAAB], np.uint32)


def variables(number):
    """A model and an optimizer of every type that there is, all full of a number."""
    return {
        "model": [tf.Variable(tf.fill([3, 4], float(number)), name="kernel")],
        "optimizer": [
            tf.Variable(number, dtype=tf.int64, name="iteration"),
            tf.Variable(tf.cast(tf.fill([5], number), tf.bfloat16), name="momentum"),
            tf.Variable([True, bool(number % 2)], name="seen"),
        ],
    }


def numbers(of):
    """What number each of the variables is full of."""
    kernel, iteration, momentum, seen = (one.numpy() for one in (*of["model"], *of["optimizer"]))
    assert seen.tolist() == [True, bool(iteration % 2)]
    return {float(one) for one in (*kernel.flat, iteration, *momentum)}


def save(folder, *steps, max_to_keep=2):
    """Saves variables full of its number at each step."""
    with Checkpoints(folder, max_to_keep=max_to_keep) as these:
        for step in steps:
            these.save(step, variables(step), {"epoch": step / 10})


def restored(folder):
    """The step that a training in a folder continues from, after a look at its variables."""
    into = variables(0)
    with Checkpoints(folder, max_to_keep=2) as these:
        found = these.restore(into)
    if found is None:
        return None
    assert numbers(into) == {found.step}
    assert found.facts == {"epoch": found.step / 10}
    return found.step


@pytest.fixture
def two(tmp_path):
    """A folder with the checkpoints of steps 10 and 20; gives the newer one."""
    save(tmp_path / "run", 10, 20)
    return tmp_path / "run" / "step-000000020"


def test_floats_come_back_with_every_bit(tmp_path):
    values = {
        "float32": BITS.view(np.float32), "bfloat16": tf.bitcast(BITS.view(np.uint16), tf.bfloat16),
        "float16": BITS.view(np.float16), "int64": np.array([-(2**63), 2**63 - 1]),
        "bool": np.array([[True], [False]]), "int32": np.int32(-7),
    }  # fmt: skip
    saved = [tf.Variable(value) for value in values.values()]
    with Checkpoints(tmp_path, max_to_keep=2) as these:
        these.save(1, {"all": saved}, {}, wait=True)
        into = [tf.Variable(tf.zeros_like(one)) for one in saved]
        these.restore({"all": into})
    found = [one.numpy() for one in into]
    assert [one.tobytes() for one in found] == [one.numpy().tobytes() for one in saved]
    assert [one.dtype for one in found] == list(values)


def test_facts_come_back_as_they_were_when_they_were_given(tmp_path):
    facts = {"best": {"accuracy": 0.1 + 0.2, "step": 3}, "log": ["a\u00e9"], "none": None}
    with Checkpoints(tmp_path, max_to_keep=2) as these:
        these.save(1, variables(1), facts)
        facts["best"]["step"] = 4
        these.wait()
        assert these.restore(variables(0)).facts == {**facts, "best": {"accuracy": 0.1 + 0.2, "step": 3}}


def test_facts_that_are_no_json_are_refused_before_anything_is_written(tmp_path):
    with Checkpoints(tmp_path, max_to_keep=2) as these, pytest.raises(ValueError, match="JSON"):
        these.save(1, variables(1), {"loss": float("nan")})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.fast_rows("False")
@pytest.mark.parametrize("xla", [False, True])
def test_updates_made_before_it_is_written_do_not_reach_it(tmp_path, xla):
    weights = [tf.Variable(tf.fill([300, 300], float(number))) for number in range(8)]
    before = [one.numpy() for one in weights]

    @tf.function(jit_compile=xla)
    def update():
        for one in weights:
            one.assign_add(tf.ones_like(one))

    begin = threading.Event()
    with Checkpoints(tmp_path, max_to_keep=2) as these:
        these._writer.submit(begin.wait)
        these.save(1, {"model": weights}, {})
        for _ in range(3):
            update()
        weights[0].scatter_nd_add([[0, 0]], [5.0])
        begin.set()
        these.wait()
        these.restore({"model": weights})
    assert all(np.array_equal(old, new.numpy()) for old, new in zip(before, weights, strict=True))


def test_equal_variables_give_equal_bytes(tmp_path):
    for name in ("a", "b"):
        save(tmp_path / name, 1)
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / name / "step-000000001").iterdir()}
        for name in ("a", "b")
    )
    assert sorted(first) == sorted(FILES)
    assert first == second
    assert sorted(json.loads(first["checkpoint.json"])) == ["facts", "files", "sha256", "step"]


def test_one_group_is_read_without_knowing_the_others(two):
    assert list(checkpoints.read(two, "model").values) == ["model/kernel"]
    assert list(checkpoints.newest(two.parent, "model").values) == ["model/kernel"]
    kernel = tf.train.load_variable(str(two / "variables"), "model/kernel")  # and without us
    assert np.array_equal(kernel, np.full([3, 4], 20, np.float32))


def test_nothing_to_restore_is_none(tmp_path):
    assert restored(tmp_path / "nowhere") is None
    assert checkpoints.steps(tmp_path / "nowhere") == []


@pytest.mark.parametrize("max_to_keep", [2, 3])
def test_the_newest_are_kept(tmp_path, max_to_keep):
    save(tmp_path, 1, 2, 3, 4, 5, max_to_keep=max_to_keep)
    assert checkpoints.steps(tmp_path) == [1, 2, 3, 4, 5][-max_to_keep:]
    assert restored(tmp_path) == 5
    assert len(list(tmp_path.iterdir())) == max_to_keep


def test_of_one_a_reserve_is_kept_and_logged(tmp_path, caplog):
    caplog.set_level("INFO")
    save(tmp_path, 1, 2, 3, max_to_keep=1)
    save(tmp_path / "two", 1, max_to_keep=2)
    assert checkpoints.steps(tmp_path) == [2, 3]
    assert caplog.text.count("max_to_keep") == 1


class Away:
    """Copies that cannot be asked."""

    def submit(self, checkpoint):
        assert checkpoint.is_dir()

    def holds(self, checkpoint):
        raise OSError(f"{checkpoint} is away")


def test_old_ones_that_cannot_be_removed_end_no_training(tmp_path, caplog):
    with Checkpoints(tmp_path, max_to_keep=2, copies=Away()) as these:
        for step in (1, 2, 3):
            these.save(step, variables(step), {}, wait=True)
    assert checkpoints.steps(tmp_path) == [1, 2, 3]
    assert (
        f"old checkpoints in {tmp_path} cannot be removed: {tmp_path / 'step-000000001'} is away" in caplog.text
    )


def test_of_one_step_the_last_saved_is_the_newest(tmp_path):
    with Checkpoints(tmp_path, max_to_keep=2) as these:
        for best in range(12):
            these.save(7, variables(7), {"best": best})
    assert [path.name for path in checkpoints.committed(tmp_path)] == ["step-000000007-11", "step-000000007-12"]
    assert checkpoints.newest(tmp_path).facts == {"best": 11}


def test_a_folder_with_signs_that_mean_something_to_tensorflow_is_read(tmp_path):
    folder = tmp_path / "a [b] *c? \\d"
    save(folder, 1)
    assert restored(folder) == 1


def damaged_forms(content):
    """A file cut, shortened, lengthened and zeroed in every part, and flipped bits: everywhere, if thorough."""
    stretch = max(1, len(content) // 20)
    for at in range(0, len(content), 1 if THOROUGH else max(1, len(content) // 60)):
        yield content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :]
    for at in range(0, len(content), stretch):
        yield content[:at]
        yield content[:at] + content[at + stretch :]
        yield content[:at] + content[at : at + stretch] + content[at:]
        yield content[:at] + bytes(stretch) + content[at + stretch :]
    yield content + b"\0"


@pytest.mark.fast_rows("checkpoint.json")
@pytest.mark.parametrize("name", FILES)
def test_however_the_newest_is_damaged_the_one_before_it_is_used_and_told(two, name, caplog):
    file = two / name
    content = file.read_bytes()
    forms = [form for form in damaged_forms(content) if form != content]
    for form in forms:
        file.write_bytes(form)
        caplog.clear()
        assert checkpoints.newest(two.parent).step == 10
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        assert str(file) in record.message
        assert "of step 10" in record.message
    assert len(forms) > 100


@pytest.mark.parametrize("left", ["missing", "empty", "zeroed"])
def test_what_a_power_cut_leaves_is_taken_for_damage(two, left, caplog):
    whole = {name: (two / name).read_bytes() for name in FILES}
    subsets = [set(some) for size in (1, 2, 3) for some in itertools.combinations(FILES, size)]
    for some in subsets:
        for name in FILES:
            (two / name).unlink(missing_ok=True)
            if name not in some or left != "missing":
                lost = b"" if left == "empty" else bytes(len(whole[name]))
                (two / name).write_bytes(lost if name in some else whole[name])
        assert restored(two.parent) == 10
    assert len(subsets) == 7
    if left == "empty":
        assert "variables.index has 0 bytes, expected " in caplog.text


def test_a_checkpoint_under_the_name_of_another_step_is_not_used(two, caplog):
    renamed = two.rename(two.with_name("step-000000030"))
    assert restored(two.parent) == 10
    assert f"{renamed} holds step 20" in caplog.text


def test_without_a_sound_one_a_training_does_not_start_from_zero(two):
    for path in checkpoints.committed(two.parent):
        (path / "variables.index").write_bytes(b"")
    into = variables(0)
    with Checkpoints(two.parent, max_to_keep=2) as these, pytest.raises(DataError) as refused:
        these.restore(into)
    message = str(refused.value)
    assert numbers(into) == {0}
    assert all(part in message for part in ("000010/variables.index", "000020/variables.index", "--clean"))


def test_a_folder_that_cannot_be_read_is_no_empty_one(tmp_path):
    (tmp_path / "run").write_text("a file")
    with (
        Checkpoints(tmp_path / "run", max_to_keep=2) as these,
        pytest.raises(DataError, match="Not a directory"),
    ):
        these.restore(variables(0))


def test_a_sound_checkpoint_is_not_given_up_for_a_damaged_newer_one(tmp_path):
    save(tmp_path, 10, 20, 30, max_to_keep=3)
    for step in (20, 30):
        (tmp_path / f"step-{step:09d}" / "variables.index").write_bytes(b"")
    with Checkpoints(tmp_path, max_to_keep=2) as these:
        assert these.restore(variables(0)).step == 10
        these.save(15, variables(15), {"epoch": 1.5})
    assert checkpoints.steps(tmp_path) == [10, 15]
    assert restored(tmp_path) == 15


def test_a_damaged_step_that_is_reached_again_is_made_up_for(two):
    (two / "variables.index").write_bytes(b"")
    with Checkpoints(two.parent, max_to_keep=2) as these:
        these.restore(variables(0))
        these.save(20, variables(20), {"epoch": 2.0})
    assert checkpoints.steps(two.parent) == [10, 20]
    assert restored(two.parent) == 20


def test_a_training_that_restored_nothing_cannot_push_out_what_is_there(two):
    with Checkpoints(two.parent, max_to_keep=2) as these, pytest.raises(ValueError, match="was not restored"):
        these.save(5, variables(5), {})
    assert checkpoints.steps(two.parent) == [10, 20]


def test_what_killed_writes_and_removals_left_is_not_seen_and_goes_with_the_next_save(tmp_path):
    save(tmp_path, 10)
    for left in (".step-000000020.0123456789abcdef.tmp", ".step-000000005.removed"):
        shutil.copytree(tmp_path / "step-000000010", tmp_path / left)
    (tmp_path / ".step-note").touch()  # cannot be removed as a folder
    assert restored(tmp_path) == 10
    save(tmp_path, 20)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [".step-note", "step-000000010", "step-000000020"]


def test_an_unfinished_first_checkpoint_is_none(tmp_path):
    save(tmp_path, 10)
    (tmp_path / "step-000000010").rename(tmp_path / ".step-000000010.0123456789abcdef.tmp")
    assert restored(tmp_path) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda of: of["model"].append(tf.Variable(1.0, name="bias")), "1 missing: model/bias"),
        (lambda of: of["optimizer"].clear(), "3 not expected: optimizer/iteration, "),
        (
            lambda of: of.update(model=[tf.Variable(tf.zeros([4, 3]), name="kernel")]),
            r"model/kernel is float32\[3, 4\], expected float32\[4, 3\]",
        ),
        (
            lambda of: of.update(model=[tf.Variable(tf.zeros([3, 4], tf.float16), name="kernel")]),
            r"model/kernel is float32\[3, 4\], expected float16\[3, 4\]",
        ),
    ],
    ids=["one more", "fewer", "shape", "type"],
)
def test_a_checkpoint_of_other_variables_is_refused_and_changes_none(two, change, message):
    into = variables(0)
    change(into)
    before = [one.numpy() for group in into.values() for one in group]
    with Checkpoints(two.parent, max_to_keep=2) as these, pytest.raises(DataError, match=message):
        these.restore(into)
    after = [one.numpy() for group in into.values() for one in group]
    assert all(np.array_equal(old, new) for old, new in zip(before, after, strict=True))


@contextmanager
def largest_file(size):
    """Lets this process write no larger file, as if the disk were full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def large():
    return {"model": [tf.Variable(tf.zeros([50_000]))]}


def save_too_much(these):
    these.save(1, large(), {}, wait=True)
    with largest_file(100_000):
        these.save(2, large(), {})
        these._pending.exception()


@pytest.mark.parametrize(
    "call",
    [
        lambda these: these.save(3, large(), {}),
        lambda these: these.wait(),
        lambda these: these.check(),
        lambda these: these.restore(large()),
        lambda these: these.__exit__(None, None, None),
    ],
    ids=["save", "wait", "check", "restore", "exit"],
)
def test_a_write_that_failed_is_raised_by_the_next_call_whatever_it_is(tmp_path, call):
    with Checkpoints(tmp_path, max_to_keep=2) as these:
        save_too_much(these)
        with pytest.raises(PerennialError) as refused:
            call(these)
    message = str(refused.value)
    assert refused.value.exit_code == 1
    assert all(
        part in message for part in (str(tmp_path), "File too large", "of step 1 is kept", "run this again")
    )
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000001"]


def test_a_check_does_not_wait_for_a_write(tmp_path):
    begin = threading.Event()
    with Checkpoints(tmp_path, max_to_keep=2) as these:
        these.check()
        these._writer.submit(begin.wait, 10)
        these.save(1, variables(1), {})
        these.check()
        assert checkpoints.steps(tmp_path) == []
        begin.set()


def test_size_and_times_of_a_checkpoint_are_logged(tmp_path, caplog):
    caplog.set_level("INFO")
    with Checkpoints(tmp_path, max_to_keep=2) as these:
        these.save(1, large(), {})
    megabytes, seconds, pause_ms = map(float, re.findall(r"[\d.]+(?= M| s| ms)", caplog.messages[-1]))
    assert megabytes == 0.2
    assert (seconds < 60, pause_ms < 60_000) == (True, True)


def test_where_the_first_write_failed_nothing_is_kept_and_that_is_said(tmp_path):
    refused = pytest.raises(PerennialError, match="no earlier one, so the training will start from zero")
    with Checkpoints(tmp_path, max_to_keep=2) as these, largest_file(100_000), refused:
        these.save(1, large(), {}, wait=True)
    assert list(tmp_path.iterdir()) == []


def test_what_ended_the_training_is_not_hidden_by_a_write_that_failed(tmp_path, caplog):
    these = Checkpoints(tmp_path, max_to_keep=2)
    save_too_much(these)
    with pytest.raises(KeyError), these:
        raise KeyError
    assert "File too large" in caplog.text


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=700k", "none", disk], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        killed = disk / "run" / ".step-000000009.0123456789abcdef.tmp"  # what a write left that was killed
        killed.mkdir(parents=True)
        (killed / "variables").write_bytes(bytes(650_000))
        with Checkpoints(disk / "run", max_to_keep=2) as these:
            for step in (1, 2, 3):
                these.save(step, large(), {}, wait=True)
            with pytest.raises(PerennialError, match="No space left on device; the one of step 3 is kept"):
                these.save(4, {"model": [tf.Variable(tf.zeros([100_000]))]}, {}, wait=True)
        assert [path.name for path in sorted((disk / "run").iterdir())] == ["step-000000002", "step-000000003"]
        assert checkpoints.newest(disk / "run").step == 3
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_reader_beside_a_training_always_finds_a_whole_one(tmp_path):
    save(tmp_path, 1)
    seen, last = [], 40
    training = threading.Thread(target=save, args=(tmp_path, *range(2, last + 1)))
    training.start()
    while not seen or seen[-1] < last:
        found = checkpoints.newest(tmp_path, "model")
        assert (found.group("model")["kernel"] == found.step).all()
        seen.append(found.step)
        assert training.is_alive() or checkpoints.steps(tmp_path)[-1] == last
    training.join()
    assert seen == sorted(seen)


def test_one_that_is_removed_while_it_is_read_gives_way_to_the_newer_ones(two, monkeypatch, caplog):
    read = checkpoints.read

    def late(path, *groups):
        if checkpoints.steps(two.parent) == [10, 20]:
            save(two.parent, 30, 40)
        return read(path, *groups)

    monkeypatch.setattr(checkpoints, "read", late)
    assert checkpoints.newest(two.parent).step == 40
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
