"""A folder as a store."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from perennial.base.errors import ConfigError, DataError
from perennial.base.processes import locks
from perennial.base.storage import Missing, file_below, local, open_store


@pytest.fixture
def store(tmp_path):
    return open_store(str(tmp_path / "store"))


def test_two_that_delete_the_last_file_of_a_folder_at_once_do_not_fail(store, tmp_path, monkeypatch):
    store.put("a/b", b"content")
    waits, held = threading.Event(), locks.held

    def announced(*arguments, **options):
        waits.set()
        return held(*arguments, **options)

    folder = tmp_path / "store"
    with ThreadPoolExecutor(1) as threads:
        with held(folder / local.LOCK, "test", busy="busy"):
            monkeypatch.setattr(locks, "held", announced)
            deleting = threads.submit(store.delete, "a/b")
            waits.wait()
            shutil.rmtree(folder / "a")
        deleting.result()
    assert list(store.list()) == []


def test_a_folder_that_is_not_there_is_a_data_error(store):
    with pytest.raises(Missing):
        list(store.list())


def test_a_folder_without_objects_goes_with_its_last_one(store, tmp_path):
    for key in ("a/b/one", "a/b/two", "a/c"):
        store.put(key, b"")
    (tmp_path / "store" / "a" / "b" / ".three.tmp").touch()  # of a killed put
    store.delete("a/b/one")
    assert (tmp_path / "store" / "a" / "b" / ".three.tmp").exists()
    store.delete("a/b/two")
    assert not (tmp_path / "store" / "a" / "b").exists()
    assert [entry.key for entry in store.list()] == ["a/c"]


@pytest.mark.parametrize("key", ["../a", "/a", "a//b", ".", "a/../b", "", "a\0b"])
def test_a_key_never_leaves_the_folder(tmp_path, key):
    with pytest.raises(DataError, match="cannot be a file"):
        file_below(tmp_path, key)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://user:word@host/folder", "neither a folder nor s3"),
        ("gs://bucket", "AWS_ENDPOINT_URL=https://storage.googleapis.com"),
        ("azure://container/prefix", "azure:// is not supported; use a folder or s3"),
    ],
)
def test_another_protocol_is_refused(url, why):
    with pytest.raises(ConfigError, match=why) as refused:
        open_store(url)
    assert "word" not in str(refused.value)
