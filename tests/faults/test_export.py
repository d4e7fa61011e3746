"""`perennial export`, killed at a file operation: its folder is the old, the new or absent, never partial.

Two kills here, between the two renames and in the middle of the new folder; `make faults` adds the rest.
"""

import os
import shutil
import signal
from collections import Counter

import pytest
from support import kills
from support.checkout import processes_under, wait_until
from support.exports import content
from support.training import PLAIN, prepare, run

from perennial.base import files
from perennial.stages.evaluate import evaluate

pytestmark = pytest.mark.timing

THOROUGH = os.environ.get("FAULTS") == "all"
OLD = {files.MARK: b"", "saved_model.pb": b"old", "variables/variables.index": b"old"}


class Exporting:
    """Copies of a folder in which a model was trained and scored, and which holds an older export."""

    def __init__(self, folder):
        self.folder, self.before = folder, folder / "before"
        self.before.mkdir()
        prepare(self.before, PLAIN)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.before)
            run({}, evaluate)
        for name, text in OLD.items():
            files.write_bytes(self.before / "models" / "export" / name, text)
        command = kills.COMMAND.format(imports="import perennial.stages.export", arguments="'export'")
        self.worker = kills.Worker(command)
        whole = self.worker.whole(self.copy("whole"))
        assert whole.code == 0, whole.message
        self.new = content(whole.folder / "models" / "export")
        self.operations = whole.changes(whole.folder / "models")

    def copy(self, name):
        return shutil.copytree(self.before, self.folder / name)

    def found(self, operation, number):
        """What a kill leaves in the export's place, and what it is once the next export has begun."""
        folder = self.copy(f"kill-{operation}-{number}")
        ended, export = self.worker.stopped(folder, operation, number), folder / "models" / "export"
        # At another operation of the same name, should the order of all of them ever differ, it proves nothing.
        assert (ended.code, ended.changes(folder / "models")[-1:]) == (-signal.SIGKILL, [(operation, number)])
        wait_until(lambda: not processes_under(folder))
        left = content(export) if export.exists() else None
        with pytest.raises(Broken), files.new_folder(export):
            raise Broken
        held = content(export), sorted(path.name for path in export.parent.iterdir())
        shutil.rmtree(folder)
        return left, held


class Broken(Exception):
    """What ends the next export before it has an answer."""


@pytest.fixture(scope="module")
def exporting(tmp_path_factory):
    exporting = Exporting(tmp_path_factory.mktemp("exports"))
    yield exporting
    exporting.worker.close()


@pytest.mark.slow
def test_an_export_killed_at_any_file_operation_leaves_the_old_or_the_new_one_or_none(exporting):
    names = {"absent": None, "old": OLD, "new": exporting.new}
    last = max(number for name, number in exporting.operations if name == "rename")
    # Before the last one there is none; the first time that something is put on the disk the new one is begun.
    usual = [("rename", last), next(each for each in exporting.operations if each[0] == "fsync")]
    found = Counter()
    for operation, number in exporting.operations if THOROUGH else usual:
        left, (held, beside) = exporting.found(operation, number)
        state = next((name for name, value in names.items() if value == left), "partial")
        assert state != "partial", (operation, number)
        assert (held in (OLD, exporting.new), beside) == (True, ["export", "weights"]), (operation, number)
        found[state] += 1
    assert found.keys() >= {"absent", "old"}
    print("killed:", found.total(), "found:", dict(found), Counter(name for name, _ in exporting.operations))
