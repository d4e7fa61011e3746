"""A folder as a store."""

import random
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from perennial.base.errors import ConfigError, DataError
from perennial.base.runtime import locks
from perennial.base.storage import Changed, Missing, file_below, local, open_store


@pytest.fixture
def store(tmp_path):
    return open_store(str(tmp_path / "store"))


def test_what_was_put_is_listed_and_read_again(store, tmp_path):
    put = store.put("a/b", b"content")
    assert list(store.list()) == [put]
    assert store.get("a/b", tmp_path / "new" / "b", if_match=put.etag, size=7) == put
    assert (tmp_path / "new" / "b").read_bytes() == b"content"


def test_keys_are_listed_in_the_order_of_their_bytes(store):
    keys = ["a/b", "a.b", "a-b/c", "a/b/c2", "b", "é", "a!"]
    for key in keys:
        if key != "a/b":
            store.put(key, b"")
    expected = sorted(set(keys) - {"a/b"}, key=str.encode)
    assert [entry.key for entry in store.list()] == expected
    for prefix in ("a", "a/", "a/b", "a/b/", "c"):
        assert [each.key for each in store.list(prefix)] == [key for key in expected if key.startswith(prefix)]


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


def test_a_file_is_copied_whole(store, tmp_path):
    content = random.Random(0).randbytes(3_000_000)
    (tmp_path / "file").write_bytes(content)
    store.put("key", tmp_path / "file")
    assert store.get_bytes("key")[0] == content


def test_conditional_writes_have_one_winner(store):
    first = store.put("key", b"one", if_none_match=True)
    with pytest.raises(Changed):
        store.put("key", b"two", if_none_match=True)
    second = store.put("key", b"two", if_match=first.etag)
    assert first.etag != second.etag
    with pytest.raises(Changed):
        store.put("key", b"six", if_match=first.etag)
    assert (store.get_bytes("key")[0], store.conditional()) == (b"two", True)
    store.delete("key")
    with pytest.raises(Changed, match="no longer exists"):
        store.put("key", b"four", if_match=second.etag)


def test_a_changed_file_is_refused(store, tmp_path):
    before = store.put("key", b"one")
    store.put("key", b"two")
    with pytest.raises(Changed):
        store.get("key", tmp_path / "file", if_match=before.etag)
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize("options", [{"size": 4}, {"sha256": "0" * 64}])
def test_other_content_than_expected_is_refused(store, tmp_path, options):
    store.put("key", b"three")
    with pytest.raises(DataError, match="expected"):
        store.get("key", tmp_path / "file", **options)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_what_is_missing_is_a_data_error(store):
    with pytest.raises(Missing):
        list(store.list())
    store.put("key", b"")
    with pytest.raises(Missing):
        store.get_bytes("other")
    store.delete("other")


def test_a_folder_without_objects_goes_with_its_last_one(store, tmp_path):
    for key in ("a/b/one", "a/b/two", "a/c"):
        store.put(key, b"")
    (tmp_path / "store" / "a" / "b" / ".three.tmp").touch()  # of a killed put
    store.delete("a/b/one")
    assert (tmp_path / "store" / "a" / "b" / ".three.tmp").exists()
    store.delete("a/b/two")
    assert not (tmp_path / "store" / "a" / "b").exists()
    assert [entry.key for entry in store.list()] == ["a/c"]


def test_clearing_leaves_nothing(store, tmp_path):
    store.clear()
    store.put("a/b", b"")
    store.clear()
    assert list(tmp_path.iterdir()) == []


def test_numbers_are_those_of_folders(store):
    for key in ("1/a", "10/a", "x/a", "7"):
        store.put(key, b"")
    assert store.numbers() == (1, 10)


@pytest.mark.parametrize("key", ["../a", "/a", "a//b", ".", "a/../b", "", "a\0b"])
def test_a_key_never_leaves_the_folder(tmp_path, key):
    with pytest.raises(DataError, match="cannot be a file"):
        file_below(tmp_path, key)


def test_another_protocol_is_refused():
    with pytest.raises(ConfigError, match="neither a folder nor s3"):
        open_store("ftp://user:word@host/folder")
