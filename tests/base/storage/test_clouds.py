"""The stores of Azure and Google against their emulators, behind a proxy that fails requests."""

import hashlib
import random
import socketserver

import pytest
from support import emulators, s3

from perennial.base import retries
from perennial.base.errors import ConfigError, DataError, PerennialError
from perennial.base.storage import Changed, Missing, bucket, open_store, together

CONTENT = random.Random(0).randbytes(3 << 20)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
SERVERS = {
    "azure": (emulators.Azure(), emulators.azure_server),
    "gs": (emulators.Google(), emulators.google_server),
}


@pytest.fixture(scope="module", params=SERVERS)
def cloud(request):
    """A provider and the URL of its emulator."""
    provider, start = SERVERS[request.param]
    with start() as url:
        yield provider, url


@pytest.fixture
def proxy(cloud, monkeypatch):
    """A proxy with faults before the emulator, which the environment leads to; retries pause shortly."""
    proxy = s3.Proxy(cloud[1])
    for name, value in cloud[0].variables(proxy.url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(retries, "STORE_PAUSE_S", 0.001)
    yield proxy
    proxy.end()


@pytest.fixture
def store(cloud, proxy, request):
    """A store in an empty bucket."""
    name = f"bucket-{abs(hash(request.node.nodeid))}"
    cloud[0].create(cloud[1], name)
    return open_store(f"{cloud[0].scheme}://{name}/some/prefix")


def test_what_was_put_is_listed_and_read_again(store, tmp_path):
    put = store.put("a/b", CONTENT)
    (listed,) = store.list()
    assert (listed.key, listed.size, listed.etag) == ("a/b", len(CONTENT), put.etag)
    assert listed.md5 == hashlib.md5(CONTENT).hexdigest()
    got = store.get("a/b", tmp_path / "new" / "b", if_match=listed.etag, size=listed.size, sha256=SHA256)
    assert (tmp_path / "new" / "b").read_bytes() == CONTENT
    assert got.etag == put.etag
    assert store.get_bytes("a/b")[0] == CONTENT


def test_folders_with_numbers_and_empty_objects(store, tmp_path):
    for key in ("2/x", "10/x", "word/x", "3"):
        store.put(key, b"")
    assert store.numbers() == (2, 10)
    assert [entry.key for entry in store.list("2")] == ["2/x"]
    store.get("3", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == store.get_bytes("3")[0] == b""
    store.clear()
    assert list(store.list()) == []
    store.delete("3")


def test_conditional_writes_have_one_winner(store):
    first = store.put("key", b"one", if_none_match=True)
    with pytest.raises(Changed):
        store.put("key", b"two", if_none_match=True)
    second = store.put("key", b"two", if_match=first.etag)
    with pytest.raises(Changed):
        store.put("key", b"three", if_match=first.etag)
    content, entry = store.get_bytes("key")
    assert (content, entry.etag) == (b"two", second.etag)
    store.delete("key")
    with pytest.raises(Changed):
        store.put("key", b"four", if_match=second.etag)
    assert store.conditional() is True


def test_a_conditional_write_whose_answer_was_lost_counts_as_done(store, proxy):
    proxy.plan = ["lost"]
    put = store.put("key", b"unique", if_none_match=True)
    proxy.plan = ["lost"]
    assert store.put("key", b"next", if_match=put.etag).etag == store.get_bytes("key")[1].etag
    assert len(proxy.failed) == 2


def test_a_large_file_is_put_in_parts(store, tmp_path, monkeypatch, proxy):
    monkeypatch.setattr(bucket, "SINGLE_BYTES", 1 << 20)
    monkeypatch.setattr(bucket, "PART_BYTES", 1 << 20)
    (tmp_path / "large").write_bytes(CONTENT)
    proxy.plan = ["500", None, "503", "reset", None, None, None, "lost"]
    put = store.put("large", tmp_path / "large", if_none_match=True)
    assert (store.get_bytes("large")[0], store.get_bytes("large")[1].etag) == (CONTENT, put.etag)
    assert len(proxy.failed) == 4


def test_another_version_is_refused(store, tmp_path):
    before = store.put("key", b"one")
    store.put("key", b"two")
    with pytest.raises(Changed):
        store.get("key", tmp_path / "file", if_match=before.etag)
    assert not (tmp_path / "file").exists()
    with pytest.raises(DataError, match="expected"):
        store.get("key", tmp_path / "file", sha256=SHA256)
    with pytest.raises(Missing, match="does not exist"):
        store.get_bytes("other")


@pytest.mark.parametrize("fault", s3.FAST_FAULTS)
def test_a_request_that_fails_is_tried_again(store, proxy, tmp_path, fault):
    proxy.plan = [fault] * 3
    put = store.put("key", CONTENT)
    proxy.plan = [fault] * 3
    store.get("key", tmp_path / "file", if_match=put.etag, sha256=SHA256)
    proxy.plan = [fault] * 3
    assert [entry.size for entry in store.list()] == [len(CONTENT)]


@pytest.mark.parametrize("rate", [0.05, 0.2])
def test_many_objects_come_whole_through_many_failures(store, proxy, tmp_path, rate):
    contents = {f"{number:03}": random.Random(number).randbytes(number * 1000) for number in range(60)}
    proxy.rate, proxy.faults = rate, s3.FAST_FAULTS
    list(together(store, lambda key: store.put(key, contents[key]), contents))
    list(together(store, lambda entry: store.get(entry.key, tmp_path / entry.key), store.list()))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name[0] != "."} == contents
    assert proxy.failed


def test_a_missing_bucket_is_named(cloud, proxy):
    store = open_store(f"{cloud[0].scheme}://not-there-1")
    with pytest.raises(ConfigError, match="does not exist; create it"):
        list(store.list())


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_is_a_configuration_error(store, proxy, monkeypatch, status):
    monkeypatch.setitem(s3.FAULTS, "denied", s3.refused(status, "AuthorizationFailure"))
    proxy.plan = ["denied"] * 2  # Google's client asks again after a 401
    with pytest.raises(ConfigError, match=r"access denied|no credentials"):
        store.put("key", b"one")


def test_a_server_that_is_not_there_is_named(cloud, monkeypatch):
    with socketserver.TCPServer(("127.0.0.1", 0), None) as free:
        url = f"http://127.0.0.1:{free.server_address[1]}"
    for name, value in cloud[0].variables(url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(retries, "STORE_PAUSE_S", 0.001)
    with pytest.raises(PerennialError, match="cannot be reached"):
        open_store(f"{cloud[0].scheme}://bucket").get_bytes("key")


ANSWERS = {
    (409, "BlobAlreadyExists"): Changed,
    (412, "ConditionNotMet"): Changed,
    (403, "AuthorizationFailure"): ConfigError,
    (404, "BlobNotFound"): Missing,
    (503, "ServerBusy"): PerennialError,
}


@pytest.mark.parametrize("provider", [emulators.Azure(), emulators.Google()], ids=lambda each: each.scheme)
@pytest.mark.parametrize(("answer", "expected"), ANSWERS.items(), ids=str)
def test_an_answer_that_is_an_error_is_translated(provider, answer, expected, monkeypatch):
    proxy = s3.Proxy("http://127.0.0.1:9")  # passes nothing on
    for name, value in provider.variables(proxy.url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(retries, "STORE_PAUSE_S", 0.001)
    monkeypatch.setitem(s3.FAULTS, "answer", s3.refused(*answer))
    proxy.rate, proxy.faults = 1, ["answer"]
    store = open_store(f"{provider.scheme}://bucket/prefix")
    try:
        with pytest.raises(expected) as caught:
            store.get_bytes("key")
        assert caught.type is expected
        assert len(proxy.asked) == (retries.STORE_TRIES if answer[0] == 503 else 1)
    finally:
        proxy.end()


def test_an_extra_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install 'perennial-ml\[gcs\]'"):
        open_store("gs://bucket/prefix")


def test_azure_without_an_account_names_the_variables(monkeypatch):
    for name in ("AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=r"no account; .*AZURE_STORAGE_ACCOUNT"):
        open_store("azure://container")


def test_google_without_credentials_names_the_variable(monkeypatch, tmp_path):
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(ConfigError, match=r"no credentials .*GOOGLE_APPLICATION_CREDENTIALS"):
        open_store("gs://bucket")
