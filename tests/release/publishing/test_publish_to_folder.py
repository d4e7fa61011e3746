"""A folder of versions, and the link to one of them."""

import os
import shutil
import threading

import pytest
from support.exports import list_files

from perennial.base import documents, files
from perennial.base.errors import ConfigError, DataError, PerennialError
from perennial.base.processes import locks
from perennial.release.publishing import publish_to_folder as registry
from perennial.release.publishing import version_layout
from perennial.release.publishing.publish import verified_digests
from perennial.release.publishing.version_layout import AllowedExport

DECISION = {"promote": True}


@pytest.fixture
def folder(tmp_path):
    """Where versions go; it is not there yet."""
    return tmp_path / "above" / "versions"


@pytest.fixture
def add(tmp_path, folder):
    """Publishes an export that holds some text."""

    def add(text, into=folder, card=""):
        export = tmp_path / "export"
        shutil.rmtree(export, ignore_errors=True)
        files.write_bytes(export / "variables" / "weights", text.encode())
        files.write_json(export / "assets.extra" / "model.json", {"weights": text})
        files.write_bytes(export / "README.md", card.encode())
        list_files(export)
        return registry.add(
            into, AllowedExport(export=export, digests=verified_digests(export), decision=DECISION)
        )

    return add


def read(folder):
    """The content of the current version."""
    return (folder / "current" / "variables" / "weights").read_text()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(("mode", "others"), [(0o755, 0o055), (0o750, 0o050), (0o777, 0o055), (0o700, 0)])
def test_who_may_list_the_folder_may_read_a_version_whatever_the_umask(folder, add, mode, others):
    folder.mkdir(parents=True)
    folder.chmod(mode)
    before = os.umask(0o077)
    try:
        add("one")
    finally:
        os.umask(before)
    modes = {path.is_dir(): path.stat().st_mode & 0o077 for path in (folder / "1").rglob("*")}
    assert (modes, (folder / "1").stat().st_mode & 0o077) == ({True: others, False: others & 0o044}, others)


def test_a_version_carries_the_digest_of_each_file_and_the_decision(folder, add):
    add("a")
    assert documents.read_json(folder / "1" / "assets.extra" / "published.json") == {
        "version": 1,
        "files": {
            name: files.sha256(folder / "1" / name)
            for name in ("README.md", "assets.extra/files.json", "assets.extra/model.json", "variables/weights")
        },
        "decision": DECISION,
    }


@pytest.mark.parametrize("name", ["7", "007"])
def test_numbers_go_on_after_the_highest_whatever_else_is_there(folder, add, name):
    for other in (name, "current.txt", "12a", ".99.tmp"):
        (folder / other).mkdir(parents=True)
    assert add("a").version == 8


def test_a_damaged_current_version_is_published_again(folder, add):
    add("a")
    (folder / "1" / "variables" / "weights").write_text("b")
    assert (add("a").version, read(folder)) == (2, "a")


def test_a_version_that_a_killed_process_did_not_make_current_is_taken_up(folder, add):
    add("a")
    add("b")
    files.point(folder / "current", "1")
    taken = add("b")
    assert (taken.version, taken.moved, read(folder)) == (2, True, "b")


def test_leftovers_of_killed_processes_are_removed_and_other_files_stay(folder, add):
    add("a")
    (folder / ".2.tmp" / "variables").mkdir(parents=True)
    (folder / ".current.tmp").symlink_to("2")
    (folder / ".theirs.tmp").touch()
    add("a")
    assert names(folder) == [".publish.lock", ".theirs.tmp", "1", "current"]


def test_a_folder_named_current_is_not_touched(folder, add):
    (folder / "current").mkdir(parents=True)
    with pytest.raises(ConfigError, match="symbolic link"):
        add("a")
    assert names(folder) == [".publish.lock", "current"]


def test_publishers_at_once_wait_for_each_other(folder, add, tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "POLL_S", 0.01)
    monkeypatch.setattr(locks, "WAIT_S", 600)
    exports = [tmp_path / f"export{number}" for number in range(4)]
    for export in exports:
        files.write_bytes(export / "variables" / "weights", export.name.encode())
        list_files(export)
    releases = [
        AllowedExport(export=each, digests=verified_digests(each), decision=DECISION) for each in exports
    ]
    threads = [threading.Thread(target=registry.add, args=(folder, release)) for release in releases]
    for thread in threads:
        thread.start()
    seen = set()
    while any(thread.is_alive() for thread in threads):
        if folder.joinpath("current").exists():
            seen.add(read(folder))
    held = {(folder / str(number) / "variables" / "weights").read_text() for number in (1, 2, 3, 4)}
    assert held == {export.name for export in exports} >= seen


def test_a_publisher_that_waited_too_long_names_the_other(folder, add, monkeypatch):
    add("a")
    monkeypatch.setattr(locks, "WAIT_S", 0)
    with (
        locks.held(folder / registry.LOCK, "publish", busy=""),
        pytest.raises(PerennialError, match=rf"{folder} \(publish, process"),
    ):
        add("b")
    assert read(folder) == "a"
    assert "2" not in names(folder)


def test_the_number_of_a_rolled_back_and_removed_version_is_not_reused(folder, add):
    for text in ("a", "b", "c"):
        add(text)
    registry.roll_back(folder, None)
    shutil.rmtree(folder / "3")
    assert (add("d").version, add("e").version, registry.roll_back(folder, None).version) == (4, 5, 4)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"versions": ["1"]}', '{"versions": 1}'])
def test_a_damaged_list_of_rolled_back_versions_is_a_data_error(folder, add, text):
    add("a")
    (folder / "rolled_back.json").write_text(text)
    with pytest.raises(DataError, match=r"rolled_back\.json .*nothing was changed"):
        add("b")
    assert read(folder) == "a"


def test_the_number_of_a_removed_current_version_is_not_reused(folder, add):
    for text in ("a", "b"):
        add(text)
    shutil.rmtree(folder / "2")
    assert (add("b").version, read(folder)) == (3, "b")


def test_other_folders_are_not_versions(folder, add):
    add("a")
    for name in ("007", "40"):
        (folder / name).mkdir()
    (folder / "50").touch()
    assert (add("b").version, registry.roll_back(folder, None).version) == (51, 1)
    with pytest.raises(DataError, match=r"version 50.*\[1, 51\], current is 1"):
        registry.roll_back(folder, 50)


@pytest.mark.parametrize("text", ["{}", "{", '{"files": {"a": 1}}'])
def test_a_version_with_a_damaged_record_cannot_be_rolled_back_to(folder, add, text):
    for content in ("a", "b"):
        add(content)
    (folder / "1" / version_layout.RECORD).write_text(text)
    with pytest.raises(DataError, match=r"published\.json .*nothing was changed"):
        registry.roll_back(folder, None)
    assert read(folder) == "b"


def test_a_missing_folder_has_nothing_to_roll_back_to(folder):
    with pytest.raises(DataError, match="does not exist"):
        registry.roll_back(folder, None)
    assert not folder.exists()
