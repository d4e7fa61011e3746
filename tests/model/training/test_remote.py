"""Copies of checkpoints: what another machine gets, in a folder and in the buckets of all providers."""

import logging
import shutil
import threading
from datetime import timedelta

import pytest
from model.training.test_checkpoints import FILES, restored, save, variables
from support.checkout import wait_until

from perennial.base import files
from perennial.base.errors import ConfigError
from perennial.base.storage import open_store
from perennial.model.training import checkpoints, remote, uploader
from perennial.model.training.checkpoints import Checkpoints
from perennial.model.training.remote import HISTORY, MANIFEST, RemoteRun
from perennial.model.training.run_directory import FINISHED
from perennial.model.training.uploader import Uploader

pytestmark = pytest.mark.timing

DIGEST = "5e" * 32
HEADER = b"step,loss\n"


@pytest.fixture(params=["folder", "s3"])
def url(request, tmp_path):
    """A remote; buckets are behind a proxy."""
    if request.param == "folder":
        return str(tmp_path / "remote")
    request.getfixturevalue("proxy")
    return f"{request.getfixturevalue('bucket').url}/some/work"


class Machine:
    """A machine with the run folder of a training."""

    def __init__(self, base, url):
        self.folder, self.url = base / DIGEST, url
        self.run = RemoteRun(url, self.folder)

    def save(self, *steps):
        """Saves these steps, logs steps beyond them, and copies them."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for step in steps:
            save(self.folder, step)
            rows = b"".join(b"%d,0.5\n" % row for row in range(1, step + 4))
            (self.folder / "steps.csv").write_bytes(HEADER + rows)
            self.run.put(checkpoints.committed(self.folder)[-1])
        return self

    def fetch(self):
        """The step that a training continues from after a look at the remote."""
        self.run.fetch()
        return restored(self.folder)

    def copies(self):
        """The files of each copy, by its name."""
        found = {}
        for entry in open_store(f"{self.url}/{DIGEST}").list():
            name, _, file = entry.key.partition("/")
            found.setdefault(name, []).append(file)
        return found

    def steps(self):
        return [int(name.split("-")[1]) for name in self.copies()]


@pytest.fixture
def machine(tmp_path, url):
    """Makes machines that share the remote."""
    return lambda name: Machine(tmp_path / name, url)


@pytest.fixture
def warnings(caplog):
    """Our warnings so far: the S3 server of the tests logs errors of its own, which the client tries again."""
    caplog.set_level("INFO")
    return lambda: [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING and record.name.startswith("perennial")
    ]


@pytest.mark.fast_rows("s3")
def test_another_machine_gets_the_newest_with_all_that_was_logged_until_then(machine, warnings):
    one, other = machine("one").save(10, 20, 30), machine("other")
    assert other.fetch() == 30
    assert (other.folder / "steps.csv").read_bytes().splitlines()[-1] == b"30,0.5"
    assert files.digests(other.folder / "step-000000030") == files.digests(one.folder / "step-000000030")
    assert sorted(path.name for path in other.folder.iterdir()) == ["step-000000030", "steps.csv"]
    assert warnings() == []


@pytest.mark.fast_rows("folder")
def test_two_are_kept_and_each_is_whole(machine):
    one = machine("one").save(10, 20, 30, 40)
    assert one.steps() == [30, 40]
    assert all(sorted(present) == sorted([*FILES, HISTORY, MANIFEST]) for present in one.copies().values())


@pytest.mark.fast_rows("folder")
def test_what_a_machine_has_itself_is_not_fetched(machine):
    one = machine("one").save(10, 20)
    assert one.run.fetch() is None
    save(one.folder, 30)
    assert one.run.fetch() is None
    assert one.fetch() == 30


@pytest.mark.fast_rows("folder")
def test_a_copy_takes_the_place_of_a_damaged_checkpoint(machine):
    one = machine("one").save(10, 20)
    (one.folder / "step-000000020" / "checkpoint.json").write_bytes(b"")
    assert one.fetch() == 20
    assert [path.name for path in checkpoints.committed(one.folder)][-1] == "step-000000020-2"


@pytest.mark.fast_rows("folder-4", "s3-1")
@pytest.mark.parametrize("left", [1, 4])
def test_of_half_a_copy_nothing_is_taken_and_the_next_one_takes_its_place(machine, url, warnings, left):
    one = machine("one").save(10, 20)
    name, present = list(one.copies().items())[-1]
    order = [*(file for file in present if file != MANIFEST), MANIFEST]
    for file in order[left:]:
        open_store(f"{url}/{DIGEST}").delete(f"{name}/{file}")
    assert machine("other").fetch() == 10
    assert warnings() == []
    assert machine("third").save(15, 25, 35).steps() == [25, 35]


@pytest.mark.fast_rows(
    "folder-checkpoint.json-changed", "folder-variables.data-00000-of-00001-changed", "s3-manifest.json-changed"
)
@pytest.mark.parametrize(
    ("file", "damage"),
    [*((file, "changed") for file in (*FILES, HISTORY, MANIFEST)), (FILES[1], "missing"), (FILES[2], "cut")],
)
def test_a_damaged_copy_is_refused_and_the_one_before_it_taken(machine, url, warnings, file, damage):
    store, one = open_store(f"{url}/{DIGEST}"), machine("one").save(10, 20)
    name = list(one.copies())[-1]
    content, _ = store.get_bytes(f"{name}/{file}")
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    if damage == "missing":
        store.delete(f"{name}/{file}")
    else:
        store.put(f"{name}/{file}", flipped if damage == "changed" else content[:-1])
    other = machine("other")
    assert other.fetch() == 10
    *_, said = warnings()  # a bucket's object is read again first
    assert said.startswith("damaged copy of a checkpoint: ")
    assert f"{name}/{file}" in said
    assert other.save(15).steps() == [10, 15]  # the damaged one made room


@pytest.mark.fast_rows("folder")
def test_a_copy_that_is_removed_while_it_is_fetched_gives_way_to_newer_ones(machine, monkeypatch, warnings):
    one, other = machine("one").save(10, 20), machine("other")
    get = RemoteRun._get

    def late(run, name):
        monkeypatch.setattr(RemoteRun, "_get", get)
        one.save(30, 40)
        return get(run, name)

    monkeypatch.setattr(RemoteRun, "_get", late)
    assert other.fetch() == 40
    assert warnings() == []


@pytest.mark.fast_rows("folder")
def test_a_machine_that_is_behind_sends_nothing(machine):
    machine("ahead").save(30, 40)
    behind = machine("behind").save(10, 20)
    assert behind.steps() == [30, 40]


@pytest.mark.fast_rows("s3")
def test_two_machines_at_once_leave_whole_copies(machine, warnings):
    both = [machine("one"), machine("other")]
    threads = [threading.Thread(target=each.save, args=range(10, 60, 10)) for each in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(set(both[0].steps())) == [40, 50]
    assert machine("third").fetch() == 50
    assert warnings() == []


@pytest.mark.fast_rows("folder")
def test_machines_that_computed_something_else_do_not_mix(machine):
    one, other = machine("one").save(10), machine("other")
    other.folder.mkdir(parents=True)
    save(other.folder, 10)
    (other.folder / "steps.csv").write_bytes(HEADER + b"10,0.25\n")
    other.run.put(checkpoints.committed(other.folder)[-1])
    assert one.steps() == [10, 10]
    assert machine("third").fetch() == 10


def test_a_copy_costs_eleven_requests(bucket, proxy, tmp_path):
    one = Machine(tmp_path / "one", f"s3://{bucket.name}/work").save(10, 20)
    asked = len(proxy.asked)
    one.save(30)
    methods = sorted(method for method, _ in proxy.asked[asked:])
    assert methods == ["DELETE"] * 5 + ["GET"] + ["PUT"] * 5


@pytest.mark.fast_rows("folder")
def test_copies_of_trainings_that_ended_a_week_ago_are_removed(machine, url, monkeypatch):
    store = open_store(url)
    for name, ended in (("aa" * 32, True), ("bb" * 32, False)):
        store.put(f"{name}/step-000000010-{'0' * 16}/{MANIFEST}", b"{}")
        if ended:
            store.put(f"{FINISHED}/{name}", b"{}")
    store.put(f"{FINISHED}/notes", b"by a person")
    one = machine("one").save(10)
    (one.folder / FINISHED).write_bytes(b"{}")
    one.run.finish()
    assert len({entry.key[:64] for entry in store.list()} & {"aa" * 32, "bb" * 32, DIGEST}) == 3
    monkeypatch.setattr(remote, "FINISHED_FOR", timedelta(seconds=-5))
    one.run.finish()
    left = {entry.key for entry in store.list() if DIGEST not in entry.key}
    assert left == {f"{'bb' * 32}/step-000000010-{'0' * 16}/{MANIFEST}", f"{FINISHED}/notes"}


class Slow:
    """Copies the first checkpoint for a long time."""

    def __init__(self):
        self.first = None

    def submit(self, checkpoint):
        self.first = self.first or checkpoint

    def holds(self, checkpoint):
        return checkpoint == self.first


def test_a_checkpoint_stays_until_it_is_copied(tmp_path):
    slow = Slow()
    with Checkpoints(tmp_path, max_to_keep=2, copies=slow) as these:
        for step in (10, 20, 30, 40):
            these.save(step, variables(step), {}, wait=True)
        assert checkpoints.steps(tmp_path) == [10, 30, 40]
        slow.first = tmp_path
        these.save(50, variables(50), {}, wait=True)
    assert checkpoints.steps(tmp_path) == [40, 50]


class TestTheUploader:
    @pytest.fixture(autouse=True)
    def _soon(self, monkeypatch):
        monkeypatch.setattr(uploader, "COPY_PAUSE_S", 0.01)

    def uploader(self, machine, interval_s=0.0):
        return Uploader(machine.run, interval_s=interval_s)

    def saved(self, machine, *steps):
        machine.folder.mkdir(parents=True, exist_ok=True)
        save(machine.folder, *steps, max_to_keep=9)
        (machine.folder / FINISHED).write_bytes(b"{}")
        return checkpoints.committed(machine.folder)[-len(steps) :]

    @pytest.mark.fast_rows("folder")
    def test_copies_the_newest_of_those_that_wait_and_the_last_at_the_end(self, machine):
        one = machine("one")
        paths = self.saved(one, 10, 20, 30)
        with self.uploader(one, interval_s=900.0) as copies:
            copies.submit(paths[0])
            wait_until(lambda: not copies.holds(paths[0]))
            for path in paths[1:]:
                copies.submit(path)
            assert [copies.holds(path) for path in paths] == [False, False, True]
        assert one.steps() == [10, 30]

    @pytest.mark.slow
    def test_reports_once_that_a_remote_is_away_and_that_it_is_back(
        self, bucket, proxy, tmp_path, warnings, caplog
    ):
        one = Machine(tmp_path / "one", f"s3://{bucket.name}/work")
        paths = self.saved(one, 10, 20)
        proxy.rate, proxy.faults = 1.0, ["500"]
        copies = self.uploader(one)
        copies.prepare(clean=False)
        with copies:
            for path in paths:
                failed = len(proxy.failed)
                copies.submit(path)
                wait_until(lambda failed=failed: len(proxy.failed) > failed + 30)
            (said,) = warnings()
            assert "training continues" in said
            proxy.rate = 0.0
            wait_until(lambda: not copies.holds(paths[1]))
        assert one.steps() == [20]
        assert len(warnings()) == 1
        assert "are copied to s3://" in caplog.text

    def test_waits_so_long_for_the_last_copy(self, bucket, proxy, tmp_path, warnings, monkeypatch):
        monkeypatch.setattr(uploader, "SHORT_S", 0.2)
        one = Machine(tmp_path / "one", f"s3://{bucket.name}/work")
        (path,) = self.saved(one, 10)
        copies = self.uploader(one)
        proxy.plan = ["silent"]
        copies.submit(path)
        with pytest.raises(KeyboardInterrupt), copies:
            raise KeyboardInterrupt
        (said,) = warnings()
        assert "was not copied to s3://" in said

    @pytest.mark.fast_rows("folder")
    def test_clean_removes_the_copies(self, machine):
        one = machine("one").save(10, 20)
        self.uploader(one).prepare(clean=True)
        shutil.rmtree(one.folder)
        assert machine("other").fetch() is None

    def test_a_remote_that_is_no_place_is_refused_before_the_training(self, tmp_path):
        with pytest.raises(ConfigError, match="neither a folder nor s3"):
            Uploader(RemoteRun("ftp://host/work", tmp_path / DIGEST), interval_s=0)
