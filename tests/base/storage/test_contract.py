"""What every store does, in a folder and in S3."""

import random

import pytest

from perennial.base.errors import DataError
from perennial.base.storage import Changed, Missing, open_store

CONTENT = random.Random(0).randbytes(3 << 20)


@pytest.fixture(params=["folder", "s3"])
def store(request, tmp_path):
    if request.param == "folder":
        return open_store(str(tmp_path / "store"))
    return open_store(f"{request.getfixturevalue('bucket').url}/some/prefix")


@pytest.mark.parametrize("content", [CONTENT, b""], ids=["bytes", "nothing"])
def test_what_was_put_is_listed_and_read_again(store, tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    put = store.put("a/b", tmp_path / "file")
    (listed,) = store.list()
    assert (listed.key, listed.size, listed.etag) == ("a/b", len(content), put.etag)
    got = store.get("a/b", tmp_path / "new" / "b", if_match=listed.etag, size=listed.size)
    assert (tmp_path / "new" / "b").read_bytes() == content
    assert got.etag == put.etag
    assert store.get_bytes("a/b")[0] == content
    assert [path.name for path in (tmp_path / "new").iterdir() if path.suffix == ".part"] == []


def test_keys_are_listed_in_the_order_of_their_bytes(store):
    expected = sorted(["a.b", "a-b/c", "a/b/c2", "b", "é", "a!"], key=str.encode)
    for key in expected:
        store.put(key, b"")
    assert [entry.key for entry in store.list()] == expected
    for prefix in ("a", "a/", "a/b", "a/b/", "c"):
        assert [each.key for each in store.list(prefix)] == [key for key in expected if key.startswith(prefix)]


def test_numbers_are_those_of_folders(store):
    for key in ("1/a", "10/a", "2/a", "x/a", "7"):
        store.put(key, b"")
    assert store.numbers() == (1, 2, 10)


def test_conditional_writes_have_one_winner(store):
    first = store.put("key", b"one", if_none_match=True)
    with pytest.raises(Changed):
        store.put("key", b"two", if_none_match=True)
    second = store.put("key", b"two", if_match=first.etag)
    assert first.etag != second.etag
    with pytest.raises(Changed):
        store.put("key", b"six", if_match=first.etag)
    content, entry = store.get_bytes("key")
    assert (content, entry.etag) == (b"two", second.etag)


def test_an_object_that_was_removed_is_not_replaced(store):
    put = store.put("key", b"one")
    store.delete("key")
    with pytest.raises(Changed):
        store.put("key", b"two", if_match=put.etag)
    assert store.conditional() is True


def test_a_changed_object_is_refused(store, tmp_path):
    before = store.put("key", b"one")
    store.put("key", b"two")
    with pytest.raises(Changed):
        store.get("key", tmp_path / "file", if_match=before.etag)
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize("options", [{"size": 4}, {"sha256": "0" * 64}], ids=["size", "sha256"])
def test_other_content_than_expected_is_refused(store, tmp_path, options):
    store.put("key", b"three")
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(DataError, match=r"key has .*, expected "):
        store.get("key", tmp_path / "file", **options)
    assert (tmp_path / "file").read_bytes() == b"old"
    assert {path.name for path in tmp_path.iterdir()} <= {"file", "store"}


def test_what_is_missing_is_a_data_error(store):
    store.put("key", b"")
    with pytest.raises(Missing, match="does not exist"):
        store.get_bytes("other")
    store.delete("other")


def test_clearing_leaves_nothing(store, tmp_path):
    store.clear()
    store.put("a/b", b"")
    store.clear()
    assert not (tmp_path / "store").exists()
    if "://" in store.url:
        assert list(store.list()) == []
