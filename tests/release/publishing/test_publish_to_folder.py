"""A folder of versions, and the link to one of them."""

import os
import shutil
import threading
from pathlib import Path

import pytest
from support.exports import Place

from perennial.base import documents, files
from perennial.base.errors import ConfigError, DataError
from perennial.base.processes import locks
from perennial.release.publishing import publish_to_folder as registry
from perennial.release.publishing import version_layout


@pytest.fixture
def place(load, tmp_path):
    """Where versions go; it is not there yet."""
    return Place(load(), str(tmp_path / "above" / "versions"), registry)


@pytest.fixture
def folder(place):
    return Path(place.url)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(("mode", "others"), [(0o755, 0o055), (0o750, 0o050), (0o777, 0o055), (0o700, 0)])
def test_who_may_list_the_folder_may_read_a_version_whatever_the_umask(folder, place, mode, others):
    folder.mkdir(parents=True)
    folder.chmod(mode)
    before = os.umask(0o077)
    try:
        place.add("one")
    finally:
        os.umask(before)
    modes = {path.is_dir(): path.stat().st_mode & 0o077 for path in (folder / "1").rglob("*")}
    assert (modes, (folder / "1").stat().st_mode & 0o077) == ({True: others, False: others & 0o044}, others)


def test_a_version_carries_the_digest_of_each_file_and_the_decision(folder, place):
    place.add("a")
    assert documents.read_json(folder / "1" / "assets.extra" / "published.json") == {
        "version": 1,
        "files": {
            name: files.sha256(folder / "1" / name)
            for name in version_layout.of_export(files.digests(folder / "1"))
        },
        "decision": {"promote": True},
        "provenance": files.sha256(folder / "1" / "assets.extra" / "provenance.json"),
    }


def test_a_damaged_current_version_is_published_again(folder, place):
    place.add("a")
    (folder / "1" / "saved_model.pb").write_text("graph of b")
    assert (place.add("a").version, place.read()) == (2, "a")


def test_a_version_that_a_killed_process_did_not_make_current_is_taken_up(folder, place):
    place.add("a")
    place.add("b")
    files.point(folder / "current", "1")
    taken = place.add("b")
    assert (taken.version, taken.moved, place.read()) == (2, True, "b")


def test_leftovers_of_killed_processes_are_removed_and_other_files_stay(folder, place):
    place.add("a")
    (folder / ".2.tmp" / "variables").mkdir(parents=True)
    (folder / ".current.tmp").symlink_to("2")
    (folder / ".theirs.tmp").touch()
    place.add("a")
    assert names(folder) == [".publish.lock", ".theirs.tmp", "1", "current"]


def test_a_folder_named_current_is_not_touched(folder, place):
    (folder / "current").mkdir(parents=True)
    with pytest.raises(ConfigError, match="symbolic link"):
        place.add("a")
    assert names(folder) == [".publish.lock", "current"]


def test_publishers_at_once_wait_for_each_other(folder, place, monkeypatch):
    monkeypatch.setattr(locks, "POLL_S", 0.01)
    monkeypatch.setattr(locks, "WAIT_S", 600)
    releases = [place.allowed(model) for model in "abcd"]
    threads = [threading.Thread(target=registry.add, args=(folder, release)) for release in releases]
    for thread in threads:
        thread.start()
    seen = set()
    while any(thread.is_alive() for thread in threads):
        if folder.joinpath("current").exists():
            seen.add(place.read())
    held = {(folder / str(number) / "saved_model.pb").read_text() for number in (1, 2, 3, 4)}
    assert held == {f"graph of {model}" for model in "abcd"} >= {f"graph of {model}" for model in seen}


def test_the_number_of_a_rolled_back_and_removed_version_is_not_reused(folder, place):
    for text in ("a", "b", "c"):
        place.add(text)
    place.roll_back()
    shutil.rmtree(folder / "3")
    assert [place.add("d").version, place.add("e").version, place.roll_back().version] == [4, 5, 4]


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"versions": ["1"]}', '{"versions": 1}'])
def test_a_damaged_list_of_rolled_back_versions_is_a_data_error(folder, place, text):
    place.add("a")
    (folder / "rolled_back.json").write_text(text)
    with pytest.raises(DataError, match=r"rolled_back\.json .*nothing was changed"):
        place.add("b")
    assert place.read() == "a"


def test_the_number_of_a_removed_current_version_is_not_reused(folder, place):
    for text in ("a", "b"):
        place.add(text)
    shutil.rmtree(folder / "2")
    assert (place.add("b").version, place.read()) == (3, "b")


def test_other_folders_are_not_versions(folder, place):
    place.add("a")
    for name in ("007", "40", "current.txt", "120a", ".99.tmp"):
        (folder / name).mkdir()
    (folder / "0050").touch()
    assert (place.add("b").version, place.roll_back().version) == (51, 1)
    with pytest.raises(DataError, match=r"version 50.*\[1, 51\], current is 1"):
        place.roll_back(50)


@pytest.mark.parametrize("text", ["{}", "{", '{"files": {"a": 1}}'])
def test_a_version_with_a_damaged_record_cannot_be_rolled_back_to(folder, place, text):
    for content in ("a", "b"):
        place.add(content)
    (folder / "1" / version_layout.RECORD).write_text(text)
    with pytest.raises(DataError, match=r"published\.json .*nothing was changed"):
        place.roll_back()
    assert place.read() == "b"


def test_a_missing_folder_has_nothing_to_roll_back_to(folder, place):
    with pytest.raises(DataError, match="does not exist"):
        place.roll_back()
    assert not folder.exists()
