"""`perennial publish`, killed at a file operation or refused one: `current` is the old version or the new.

Here it publishes into a folder that holds a version, or goes back to one, and is stopped at every operation
that names something and at the first and last of each other kind; `make faults` tries all, and an empty
folder.
"""

import errno
import os
import re
import shutil
import signal
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest
import tensorflow as tf
from support import kills
from support.exports import content, list_files, write_export
from support.parameters import change_params

from perennial.base import config
from perennial.release.publishing import publish_to_folder as registry
from perennial.release.publishing.publish import verified_digests
from perennial.release.publishing.version_layout import AllowedExport

pytestmark = pytest.mark.timing

SYNCED = re.compile(r"^fsync\(\d+<(.*)>\)", re.MULTILINE)
ROOT = Path(__file__).parents[2]
THOROUGH = os.environ.get("FAULTS") == "all"
STARTS = ["next", pytest.param("first", marks=pytest.mark.skipif(not THOROUGH, reason="only with FAULTS=all"))]


class Publishing:
    """Copies of a folder with a promoted export of `new`, which is published into `served`.

    With the start `back` it is version 1 there, and version 2 is gone back from.
    """

    def __init__(self, folder, start):
        self.folder, self.before, self.back = folder, folder / "before", start == "back"
        self.before.mkdir()
        shutil.copy(ROOT / "params.yaml", self.before)
        change_params(self.before / "params.yaml", {"publish.url": "served"})
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.before)
            parameters = config.load(Path("params.yaml"))
            for model in {"first": (), "next": ("old",), "back": ("new", "old")}[start]:
                add(Path("served"), write_model(parameters, model))
            self.old = self.current(self.before)
            self.new = content(Path("served", "1") if self.back else write_model(parameters, "new"))
        arguments = "'publish', '--rollback'" if self.back else "'publish'"
        self.worker = kills.Worker(
            kills.COMMAND.format(imports="import perennial.release.publishing.publish", arguments=arguments)
        )
        self.whole = self.worker.whole(self.copy("whole"))
        assert self.whole.code == 0
        assert self.current(folder / "whole") == self.new
        self.operations = self.whole.changes(folder / "whole")

    def copy(self, name):
        return shutil.copytree(self.before, self.folder / name, symlinks=True)

    def current(self, folder):
        """What servers find."""
        return content(folder / "served" / "current")

    def stopped(self, operation, number, how="signal=SIGKILL"):
        """The folder and the end of a publish that was stopped."""
        folder = self.copy(f"{how.partition('=')[2]}-{operation}-{number}")
        return folder, self.worker.stopped(folder, operation, number, how)

    def again(self, folder):
        """What is current after the next publish, and the names in the folder."""
        served = folder / "served"
        if self.back:
            registry.roll_back(served, 1)
        else:
            add(served, folder / "models" / "export")
        return self.current(folder), sorted(path.name for path in served.iterdir())

    def tidy(self):
        """What a folder holds after a publish."""
        versions, marks = ["1", "2"] if self.old else ["1"], ["rolled_back.json"] if self.back else []
        return [".publish.lock", *versions, "current", *marks]


def write_model(parameters, model):
    """An export that TensorFlow loads; it says which one it is."""
    export, module = write_export(parameters, model), tf.Module()
    module.model = tf.Variable(model)
    tf.saved_model.save(module, str(export))
    list_files(export)
    return export


def add(served, export):
    registry.add(
        served, AllowedExport(export=export, digests=verified_digests(export), decision={}, provenance=b"{}")
    )


@contextmanager
def started(folder, start):
    publishing = Publishing(folder, start)
    yield publishing
    publishing.worker.close()


@pytest.fixture(scope="module", params=STARTS)
def publishing(request, tmp_path_factory):
    with started(tmp_path_factory.mktemp(request.param), request.param) as publishing:
        yield publishing


@pytest.fixture(scope="module")
def going_back(tmp_path_factory):
    with started(tmp_path_factory.mktemp("back"), "back") as publishing:
        yield publishing


def chosen(publishing, kinds, always=()):
    """Operations of some kinds, with their place in the order: the first and last of each, or all of them."""
    numbers = {name: [each for kind, each in publishing.operations if kind == name] for name in kinds}
    for place, (name, number) in enumerate(publishing.operations):
        if name in kinds and (THOROUGH or name in always or number in (numbers[name][0], numbers[name][-1])):
            yield place, name, number


def test_all_is_on_the_disk_before_it_gets_its_name_and_the_version_before_it_is_current(publishing):
    served, number = publishing.folder / "whole" / "served", 2 if publishing.old else 1
    trace = publishing.whole.trace
    temporary = rf"{served}/\.{number}\.\w+\.tmp"
    copied, new, named = re.split(rf'rename\("({temporary})", "{served}/{number}"\)', trace)
    expected = {f"{new}/{name}" for name in publishing.new}
    assert expected <= set(SYNCED.findall(copied))
    listed, moved = re.split(r'rename\("served/\.current\.\w+\.tmp", "served/current"\)', named)
    assert SYNCED.findall(listed) == [str(served)]
    assert SYNCED.findall(moved)[0] == str(served)


def killed(publishing):
    """How often which version was current after a kill; each is loaded the first time that it is found."""
    found = Counter()
    for _, operation, number in chosen(publishing, kills.OPERATIONS, always=kills.NAMES):
        folder, ended = publishing.stopped(operation, number)
        current = publishing.current(folder)
        assert ended.code == -signal.SIGKILL
        assert current in (publishing.old, publishing.new)
        name = "new" if current == publishing.new else "old" if current else "none"
        if current and not found[name]:
            loaded = tf.saved_model.load(str(folder / "served" / "current"))
            assert loaded.model.numpy().decode() == name
        found[name] += 1
        assert publishing.again(folder) == (publishing.new, publishing.tidy()), (operation, number)
    print("killed:", found.total(), "found:", dict(found), Counter(name for name, _ in publishing.operations))
    return found


def test_a_publish_killed_at_any_file_operation_leaves_the_old_or_the_new_version(publishing):
    assert killed(publishing).keys() == {"old" if publishing.old else "none", "new"}


def test_a_rollback_killed_at_any_file_operation_leaves_the_one_version_or_the_other(going_back):
    assert killed(going_back).keys() == {"old", "new"}


REFUSALS = {"ENOSPC": (*kills.WRITES, "mkdir", "symlink"), "EIO": kills.SYNCS, "EROFS": kills.NAMES}


@pytest.mark.fast_rows("next-ENOSPC")
@pytest.mark.parametrize("error", REFUSALS)
def test_a_publish_that_is_refused_a_file_operation_names_the_file_and_keeps_the_old_version(publishing, error):
    renames = [place for place, (name, _) in enumerate(publishing.operations) if name == "rename"]
    moved, found = renames[-2], Counter()  # the last one is of the stage's seconds
    for place, operation, number in chosen(publishing, REFUSALS[error]):
        folder, ended = publishing.stopped(operation, number, f"error={error}")
        if ended.code:  # a folder may be there already
            expected = publishing.new if place > moved else publishing.old
            assert publishing.current(folder) == expected
            assert re.search(
                rf"( \.|served|\.work|{re.escape(str(folder))})\S*: {os.strerror(getattr(errno, error))}",
                ended.message,
            )
        assert publishing.again(folder) == (publishing.new, publishing.tidy()), (operation, number)
        found[ended.code, place > moved] += 1
    assert found[1, False]
    print(error, "exit code, after the link was moved:", dict(found))


def test_a_file_system_without_links_is_refused_before_anything_is_copied(publishing):
    folder, ended = publishing.stopped("symlink", 1, "error=EPERM")
    assert ended.code == 2
    assert "symbolic link" in ended.message
    assert (folder / "served" / "2").exists() is False
    assert publishing.current(folder) == publishing.old
