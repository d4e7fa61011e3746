"""Published versions, fetched from a folder and from S3."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import forks
from support.exports import content, write_export

from perennial.base import files
from perennial.base.errors import ConfigError, DataError
from perennial.base.storage import open_store
from perennial.release.publishing import fetch_version
from perennial.release.publishing.publish import publish


@pytest.fixture
def config(load):
    return load()


@pytest.fixture(params=["folder", "s3"])
def url(request, config, workspace):
    """Where version 1 is published."""
    place = "served/digits"
    if request.param == "s3":
        place = f"s3://{request.getfixturevalue('bucket').name}/models/digits"
    write_export(config, "a")
    publish(config, to=place)
    return place


def publish_next(config, url, model="b"):
    write_export(config, model)
    return publish(config, to=url)


def test_the_current_version_comes_into_a_folder_named_for_it(config, url):
    expected = content(config.paths.export)
    expected.pop(".perennial", None)
    fetched = fetch_version.fetch(url)
    assert (fetched.version, fetched.path, fetched.moved) == (1, "digits-1", True)
    found = content(Path("digits-1"))
    assert found.pop(".perennial") == files.mark("fetch")
    assert found == expected
    assert fetched.files == len(expected) + 2  # record and provenance


def test_a_version_is_fetched_by_its_own_url(config, url):
    publish_next(config, url)
    assert fetch_version.fetch(f"{url}/1").path == "digits-1"
    assert fetch_version.fetch(url).path == "digits-2"


def test_a_folder_is_replaced_when_another_version_is_current(config, url):
    assert fetch_version.fetch(url, Path("model")).moved
    assert not fetch_version.fetch(url, Path("model")).moved
    publish_next(config, url)
    assert fetch_version.fetch(url, Path("model")).version == 2
    assert Path("model", "saved_model.pb").read_text() == "graph of b"


def test_files_of_a_person_are_not_replaced(url):
    Path("model").mkdir()
    Path("model", "mine").touch()
    with pytest.raises(ConfigError, match=r"model was not made by `perennial fetch`.*--to"):
        fetch_version.fetch(url, Path("model"))
    assert [path.name for path in Path("model").iterdir()] == ["mine"]


@pytest.mark.fast_rows("folder-file", "s3-missing")
@pytest.mark.parametrize("damage", ["file", "record", "missing"])
def test_a_damaged_version_is_refused_and_the_old_folder_stays(config, url, damage):
    fetch_version.fetch(url, Path("model"))
    publish_next(config, url)
    store = open_store(url)
    if damage == "file":
        store.put("2/saved_model.pb", b"graph of c")
    elif damage == "record":
        store.put("2/assets.extra/published.json", b"{}")
    else:
        store.delete("2/variables/variables.index")
    with pytest.raises(DataError):
        fetch_version.fetch(url, Path("model"))
    assert Path("model", "saved_model.pb").read_text() == "graph of a"
    assert sorted(path.name for path in Path.cwd().iterdir() if "model" in path.name) == ["model", "models"]


def test_a_record_cannot_lead_out_of_the_folder(config, url):
    store = open_store(url)
    record = json.loads(store.get_bytes("1/assets.extra/published.json")[0])
    record["files"]["../outside"] = record["files"].pop("saved_model.pb")
    store.put("1/assets.extra/published.json", json.dumps(record).encode())
    with pytest.raises(DataError):
        fetch_version.fetch(f"{url}/1", Path("model"))
    assert not Path("outside").exists()


def test_a_place_without_a_version_is_a_data_error(url):
    with pytest.raises(DataError, match="holds no published version"):
        fetch_version.fetch(f"{url}/elsewhere")


def test_a_model_is_cached_by_its_content_and_verified(config, bucket, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    url = f"s3://{bucket.name}/digits"
    publish_next(config, url, "a")
    folder = fetch_version.cached(url)
    assert folder.is_relative_to(tmp_path / "cache")
    inode = folder.stat().st_ino
    assert fetch_version.cached(url) == folder
    assert fetch_version.cached(f"{url}/1") == folder
    assert folder.stat().st_ino == inode
    (folder / "saved_model.pb").write_text("changed")
    assert (fetch_version.cached(url) / "saved_model.pb").read_text() == "graph of a"
    publish_next(config, url, "b")
    assert fetch_version.cached(url) != folder


@pytest.mark.parametrize(
    "variables", [{"XDG_CACHE_HOME": "/proc/nowhere"}, {"HOME": "/proc/nowhere"}, {}], ids=str
)
def test_without_a_home_the_cache_lies_among_temporary_files(monkeypatch, tmp_path, variables):
    monkeypatch.setattr(fetch_version.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setitem(sys.modules, "pwd", None)  # a user without an entry, as in a container
    for name in ("XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert fetch_version._cache().parent == tmp_path
    assert fetch_version._cache().stat().st_mode & 0o777 == 0o700


@pytest.mark.fast_rows("s3")
def test_the_command_prints_version_and_path(url, capfd):
    for moved in (True, False):
        subprocess.run([forks.python(), "-m", "perennial", "fetch", url, "--to", "model", "--json"], check=True)
        printed = json.loads(capfd.readouterr().out)
        assert {"version": 1, "path": "model", "moved": moved}.items() <= printed.items()


@pytest.mark.slow
def test_the_cache_keeps_the_versions_that_were_used_last(config, bucket, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(fetch_version, "CACHED", 2)
    url = f"s3://{bucket.name}/models/digits"
    folders = []
    for number, model in enumerate("abcd"):
        publish_next(config, url, model)
        folders.append(fetch_version.cached(url))
        os.utime(folders[-1], (number, number))
    (own := folders[0].parent / "notes").mkdir()
    os.utime(own, (0, 0))
    fetch_version.cached(f"{url}/1")
    assert [each.exists() for each in (*folders, own)] == [True, False, False, True, True]
    assert (folders[0] / "saved_model.pb").read_text() == "graph of a"


def test_a_version_that_another_process_uses_meanwhile_stays_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(fetch_version, "CACHED", 1)
    locked = fetch_version._locked

    def used_before_it_is_locked(folder, timeout_s):
        if folder.name == "used":
            os.utime(folder)
        return locked(folder, timeout_s)

    monkeypatch.setattr(fetch_version, "_locked", used_before_it_is_locked)
    for age, name in enumerate(("used", "unused", "last")):
        files.write_bytes(tmp_path / "models" / name / ".perennial", fetch_version.MADE_BY)
        os.utime(tmp_path / "models" / name, (age, age))
    fetch_version._remove_old(tmp_path / "models")
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == ["last", "used"]
