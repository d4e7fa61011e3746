"""The store on S3, against moto over HTTP, behind a proxy that fails requests."""

import hashlib
import random

import pytest
from support import s3

from perennial.base import files, retries
from perennial.base.errors import ConfigError, DataError, PerennialError
from perennial.base.storage import Changed, Missing, open_store, together
from perennial.base.storage import bucket as module

CONTENT = random.Random(0).randbytes(3 << 20)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def store(bucket):
    return open_store(f"s3://{bucket.name}/some/prefix")


@pytest.fixture
def failing(bucket, proxy):
    """A store behind the proxy."""
    return open_store(f"s3://{bucket.name}/some/prefix")


def test_what_was_put_is_listed_and_read_again(store, tmp_path):
    put = store.put("a/b", CONTENT)
    (listed,) = store.list()
    assert listed.key == "a/b"
    assert listed.size == len(CONTENT)
    assert listed.etag == put.etag
    got = store.get("a/b", tmp_path / "new" / "b", if_match=listed.etag, size=listed.size, sha256=SHA256)
    assert (tmp_path / "new" / "b").read_bytes() == CONTENT
    assert got.etag == put.etag
    assert [path.name for path in (tmp_path / "new").iterdir() if path.suffix == ".part"] == []


@pytest.mark.slow
def test_a_listing_holds_every_page_in_the_order_of_the_keys(store, monkeypatch, proxy):
    keys = [f"{number:04}/x" for number in range(1203)]
    list(together(store, lambda key: store.put(key, b"x"), keys))
    assert [entry.key for entry in store.list()] == keys
    assert [entry.key for entry in store.list("12")] == keys[1200:]
    assert store.numbers() == tuple(range(1203))


@pytest.mark.parametrize("single", [len(CONTENT), 1 << 20])
def test_a_server_that_rejects_checksums_in_headers_is_usable(failing, proxy, tmp_path, monkeypatch, single):
    monkeypatch.setattr(module, "SINGLE_BYTES", single)
    proxy.without_checksums = True
    (tmp_path / "file").write_bytes(CONTENT)
    failing.put("a", tmp_path / "file", if_none_match=True)
    assert failing.get_bytes("a")[0] == CONTENT
    failing.clear()
    assert list(failing.list()) == []
    assert proxy.failed == []


def test_a_setting_that_the_server_rejects_is_named_at_once(bucket, proxy, monkeypatch):
    proxy.without_checksums = True
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_supported")
    store = open_store(f"s3://{bucket.name}/some/prefix")
    with pytest.raises(PerennialError, match=r"501 .*unset AWS_REQUEST_CHECKSUM_CALCULATION"):
        store.put("a", b"1")
    assert len(proxy.asked) == 1


def test_objects_beside_the_prefix_are_not_listed(bucket, store):
    store.put("a", b"1")
    for key in ("some/prefixed", "some/prefix", "some/prefix/folder/"):
        bucket.put_object(Bucket=bucket.name, Key=key, Body=b"")
    assert [entry.key for entry in store.list()] == ["a"]


def test_a_store_at_the_root_of_a_bucket(bucket):
    store = open_store(f"s3://{bucket.name}")
    store.put("a", b"1")
    assert [(entry.key, store.get_bytes(entry.key)[0]) for entry in store.list()] == [("a", b"1")]


def test_a_large_file_is_put_in_parts(store, tmp_path, monkeypatch, failing, proxy):
    monkeypatch.setattr(module, "SINGLE_BYTES", 1 << 20)
    monkeypatch.setattr(module, "PART_BYTES", 5 << 20)
    (tmp_path / "large").write_bytes(CONTENT * 4)
    proxy.plan = ["500", None, "503", "reset", None, "lost", "short"]
    put = failing.put("large", tmp_path / "large")
    assert store.get_bytes("large")[0] == CONTENT * 4
    assert put.etag == next(store.list()).etag
    assert not store._client.list_multipart_uploads(Bucket=store.bucket).get("Uploads")


def test_the_lost_answer_to_the_end_of_an_upload_in_parts_is_found_out(
    store, tmp_path, monkeypatch, failing, proxy
):
    monkeypatch.setattr(module, "SINGLE_BYTES", 1)
    (tmp_path / "large").write_bytes(CONTENT)
    proxy.only, proxy.plan = "uploadId", [None, "lost"]
    failing.put("large", tmp_path / "large")
    assert store.get_bytes("large")[0] == CONTENT
    assert len(proxy.failed) == 1


def test_conditional_writes_have_one_winner(store):
    first = store.put("key", b"one", if_none_match=True)
    with pytest.raises(Changed):
        store.put("key", b"two", if_none_match=True)
    second = store.put("key", b"two", if_match=first.etag)
    with pytest.raises(Changed):
        store.put("key", b"three", if_match=first.etag)
    content, entry = store.get_bytes("key")
    assert content == b"two"
    assert entry.etag == second.etag
    store.delete("key")
    with pytest.raises(Changed, match="no longer exists"):
        store.put("key", b"four", if_match=second.etag)


def test_a_conditional_write_whose_answer_was_lost_counts_as_done(failing, proxy):
    proxy.plan = ["lost"]
    put = failing.put("key", b"unique", if_none_match=True)
    proxy.plan = ["lost"]
    assert failing.put("key", b"next", if_match=put.etag).etag == failing.get_bytes("key")[1].etag
    assert [fault for fault, *_ in proxy.failed] == ["lost"] * 2


def test_the_store_is_probed_for_conditions_once(failing, proxy):
    assert failing.conditional() is True
    assert failing.conditional() is True
    assert len(proxy.asked) == 3


def test_a_store_that_ignores_conditions_is_found_out(failing, proxy, monkeypatch, tmp_path):
    ask = s3.Handler.ask

    def ignoring(handler, body):
        for name in ("If-None-Match", "If-Match"):
            del handler.headers[name]
        return ask(handler, body)

    monkeypatch.setattr(s3.Handler, "ask", ignoring)
    assert failing.conditional() is False
    failing.put("key", b"one")
    with pytest.raises(Changed, match=r"expected the ETag .*, got "):
        failing.get("key", tmp_path / "key", if_match='"other"')


@pytest.mark.fast_rows("503", "lost")
@pytest.mark.parametrize("fault", s3.FAST_FAULTS)
def test_a_request_that_fails_is_tried_again(failing, proxy, tmp_path, fault):
    proxy.plan = [fault] * 3
    failing.put("key", CONTENT)
    proxy.plan = [fault] * 3
    failing.get("key", tmp_path / "file", sha256=SHA256)
    proxy.plan = [fault] * 3
    assert [entry.size for entry in failing.list()] == [len(CONTENT)]
    assert len(proxy.failed) == 9


@pytest.mark.parametrize("fault", s3.FAULTS_THAT_WAIT)
def test_a_server_that_stalls_is_asked_again(bucket, proxy, tmp_path, fault, monkeypatch):
    monkeypatch.setattr(module, "STALL_S", 1)
    store = open_store(f"s3://{bucket.name}")
    store.put("key", CONTENT)
    proxy.plan = [fault]
    store.get("key", tmp_path / "file", sha256=SHA256)
    assert len(proxy.failed) == 1


@pytest.mark.fast_rows("0.2")
@pytest.mark.parametrize("rate", [0.2, 0.5])
def test_many_objects_come_whole_through_many_failures(failing, store, proxy, tmp_path, rate):
    contents = {f"{number:03}": random.Random(number).randbytes(number * 1000) for number in range(100)}
    proxy.rate, proxy.faults = rate, s3.FAST_FAULTS
    list(together(failing, lambda key: failing.put(key, contents[key]), contents))
    list(together(failing, lambda entry: failing.get(entry.key, tmp_path / entry.key), failing.list()))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name[0] != "."} == contents
    assert len(proxy.failed) > 10


def test_a_body_continues_where_it_broke_off(failing, proxy, tmp_path):
    failing.put("key", CONTENT)
    proxy.plan = ["short"]
    proxy.asked.clear()
    seen = []
    call = failing._client.get_object
    failing._client.get_object = lambda **options: seen.append(options.get("Range")) or call(**options)
    failing.get("key", tmp_path / "file", sha256=SHA256)
    assert seen == [None, f"bytes={len(CONTENT) // 2}-"]


def test_the_next_call_continues_an_interrupted_one_of_the_same_version(failing, store, proxy, tmp_path):
    etag, seen, call = store.put("key", CONTENT).etag, [], failing._client.get_object
    failing._client.get_object = lambda **options: seen.append(options.get("Range")) or call(**options)
    proxy.plan = ["short", *["500"] * retries.STORE_TRIES]
    with pytest.raises(PerennialError, match="try again later"):
        failing.get("key", tmp_path / "file", if_match=etag)
    assert not (tmp_path / "file").exists()
    failing.get("key", tmp_path / "file", if_match=etag, sha256=SHA256)
    assert set(seen[1:]) == {f"bytes={len(CONTENT) // 2}-"}
    store.put("key", CONTENT[::-1])
    with pytest.raises(Changed):
        failing.get("key", tmp_path / "file", if_match=etag)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_bytes_of_another_version_are_never_continued(failing, store, proxy, tmp_path):
    etag = store.put("key", CONTENT).etag
    proxy.plan = ["short", *["500"] * retries.STORE_TRIES]
    with pytest.raises(PerennialError):
        failing.get("key", tmp_path / "file", if_match=etag)
    other = store.put("key", CONTENT[::-1])
    failing.get("key", tmp_path / "file", if_match=other.etag)
    assert (tmp_path / "file").read_bytes() == CONTENT[::-1]


def test_an_object_that_changes_while_it_is_read_is_refused(failing, store, proxy, tmp_path, monkeypatch):
    store.put("key", CONTENT)
    proxy.plan = ["short"]
    monkeypatch.setattr(failing._stopped, "wait", lambda _: store.put("key", CONTENT[::-1]))
    with pytest.raises(Changed):
        failing.get("key", tmp_path / "file")
    assert not (tmp_path / "file").exists()


@pytest.mark.fast_rows("digest0-damaged", "digest1-part2")
@pytest.mark.parametrize("part", [b"damaged", CONTENT, CONTENT[:-7] + b"damaged", CONTENT + b"more"])
@pytest.mark.parametrize("digest", [{"sha256": SHA256}, {}])
def test_whatever_an_interrupted_call_left_the_file_is_right_and_alone(store, tmp_path, part, digest):
    etag = store.put("key", CONTENT).etag
    (tmp_path / ".file.part").write_bytes(part)
    (tmp_path / ".file.etag").write_text(etag)
    store.get("key", tmp_path / "file", if_match=etag, size=len(CONTENT), **digest)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [CONTENT]


def test_the_etag_of_an_object_with_a_kms_key_is_not_taken_for_an_md5(
    failing, store, bucket, proxy, tmp_path, monkeypatch
):
    bucket.put_object(Bucket=bucket.name, Key="some/prefix/key", Body=CONTENT, ServerSideEncryption="aws:kms")
    (entry,) = store.list()
    (tmp_path / ".file.part").write_bytes(CONTENT[:100])
    (tmp_path / ".file.etag").write_text(entry.etag)
    proxy.asked.clear()
    monkeypatch.setattr(files, "md5", lambda _: "0" * 32)  # as on S3, where the ETag is no MD5
    failing.get("key", tmp_path / "file", if_match=entry.etag, size=entry.size)
    assert [method for method, _ in proxy.asked] == ["GET"]
    assert (tmp_path / "file").read_bytes() == CONTENT


@pytest.mark.parametrize("options", [{"size": 4}, {"sha256": "0" * 64}])
def test_other_content_than_expected_is_refused(store, tmp_path, options):
    store.put("key", b"three")
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(DataError, match=r"key has .*, expected .*was not changed"):
        store.get("key", tmp_path / "file", **options)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


def test_a_missing_object_is_a_data_error(store, tmp_path):
    with pytest.raises(Missing, match="prefix/key does not exist"):
        store.get_bytes("key")
    store.delete("key")
    store.put("a/b", b"")
    store.clear()
    assert list(store.list()) == []


def test_a_missing_bucket_is_named(bucket):
    with pytest.raises(ConfigError, match=r"s3://not-there-1/.* the bucket does not exist"):
        list(open_store("s3://not-there-1").list())


REFUSALS = {
    "AccessDenied": "access denied",
    "SignatureDoesNotMatch": "rejects the credentials",
    "InvalidAccessKeyId": "rejects the credentials",
    "InvalidToken": "rejects the credentials",
    "ExpiredToken": "credentials have expired",
    "RequestExpired": "credentials have expired",
}


@pytest.mark.parametrize(("code", "reason"), REFUSALS.items())
def test_a_refusal_of_the_server_is_a_configuration_error(failing, proxy, monkeypatch, code, reason):
    xml = s3.XML.replace("injected", f"injected {s3.SECRET} of http://user:word@host/?token=1")
    monkeypatch.setattr(s3, "XML", xml)
    monkeypatch.setitem(s3.FAULTS, "denied", s3.refused(403, code))
    proxy.plan = ["denied"]
    with pytest.raises(ConfigError, match=f"/key: .*{reason}.*injected") as caught:
        failing.get_bytes("key")
    assert not {s3.SECRET, "word", "token"} & set(str(caught.value).replace("=", " ").split())
    assert s3.SECRET not in str(caught.value)
    assert ("AWS_SESSION_TOKEN" in str(caught.value)) == ("Expired" in code)
    assert len(proxy.asked) == 1


def test_a_wrong_clock_is_named(failing, proxy, monkeypatch):
    monkeypatch.setitem(s3.FAULTS, "denied", s3.refused(403, "RequestTimeTooSkewed"))
    proxy.plan = ["denied"]
    with pytest.raises(PerennialError, match=r"RequestTimeTooSkewed: injected.*set the clock of this machine"):
        failing.get_bytes("key")


def test_an_answer_to_head_without_a_reason_names_credentials(failing, proxy, monkeypatch):
    monkeypatch.setitem(s3.FAULTS, "denied", s3.refused(400, "ExpiredToken"))  # HEAD has no body
    proxy.rate, proxy.faults = 1, ["denied"]
    with pytest.raises(ConfigError, match=r"as to expired credentials; .*AWS_SESSION_TOKEN"):
        failing._about("key")


def test_missing_credentials_are_named(bucket, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(ConfigError, match=r"no credentials .*AWS_ACCESS_KEY_ID"):
        open_store("s3://bucket").get_bytes("key")


def test_a_server_that_is_not_there_is_named_without_its_password(bucket, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://user:planted-word@127.0.0.1:9")
    monkeypatch.setattr(retries, "STORE_TRIES_INSIDE", 1)
    monkeypatch.setattr(retries, "STORE_PAUSE_S", 0.001)
    with pytest.raises(PerennialError, match=r"cannot be reached.*AWS_ENDPOINT_URL") as caught:
        open_store("s3://bucket").get_bytes("key")
    assert "planted-word" not in str(caught.value)


@pytest.mark.parametrize("url", ["s3://", "s3:///key", "s3://user:word@bucket/key", "s3://bucket/key?a=word"])
def test_a_url_without_a_bucket_or_with_a_password_is_refused(bucket, url):
    with pytest.raises(ConfigError, match="s3://bucket/prefix") as caught:
        open_store(url)
    assert "word" not in str(caught.value).split(",")[0]


def test_the_first_error_ends_the_others(failing, proxy):
    def work(number):
        if number == 3:
            raise DataError("three")
        failing.get_bytes("missing-while-the-server-fails")

    proxy.rate, proxy.faults = 1, ["503"]
    with pytest.raises(PerennialError):
        list(together(failing, work, range(1000)))
    assert len(proxy.asked) < 1000
