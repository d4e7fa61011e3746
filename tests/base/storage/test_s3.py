"""The store on S3, against moto over HTTP, behind a proxy that fails requests."""

import hashlib
import random
import socketserver
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import HTTPClientError
from support import s3

from perennial.base import files, retries
from perennial.base.errors import ConfigError, DataError, PerennialError
from perennial.base.storage import Changed, open_store, s3_errors, s3_requests, together
from perennial.base.storage import s3 as module

CONTENT = random.Random(0).randbytes(3 << 20)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
HALF = len(CONTENT) // 2
ODD = ("s3://bucket/key?a=word", "s3://bucket/key#word", "s3://bucket//key")  # DVC takes the last two as names
PAGE = b"<html><title>Sign in</title></html>"
OTHERS = {"to where it leads": s3.refused(301, "x"), "is not S3": lambda sent, _: sent.answer(200, [], PAGE)}


@pytest.fixture
def store(bucket, proxy):
    """A store behind the proxy."""
    return open_store(f"{bucket.url}/some/prefix")


@pytest.fixture
def read(proxy, monkeypatch):
    """The offset of the first byte of each read."""
    seen, forward = [], s3.Handler.forward

    def noting(handler):
        asked = handler.headers.get("Range") or "bytes=0-"
        seen.append(int(asked.removeprefix("bytes=").partition("-")[0]))
        forward(handler)

    proxy.only = "GET"
    monkeypatch.setattr(s3.Handler, "do_GET", noting)
    return seen


def test_objects_beside_the_prefix_are_not_listed(bucket, store):
    store.put("a", CONTENT)
    for key in ("some/prefixed", "some/prefix", "some/prefix/folder/"):
        bucket.put_object(Bucket=bucket.name, Key=key, Body=b"")
    assert [(entry.key, entry.md5) for entry in store.list()] == [("a", hashlib.md5(CONTENT).hexdigest())]
    keys = ["some/prefix", "some/prefix/a", "some/prefixed"]  # at the root, without markers of folders
    assert [entry.key for entry in open_store(bucket.url).list()] == keys


@pytest.mark.slow
def test_a_listing_holds_every_page_in_the_order_of_the_keys(store):
    keys = [f"{each:04}/x" for each in range(1203)]  # pages have 1000
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda key: store.put(key, b"x"), keys))
    assert [entry.key for entry in store.list()] == keys
    assert [entry.key for entry in store.list("12")] == keys[1200:]
    assert store.numbers() == tuple(range(1203))


def test_a_conditional_write_whose_answer_was_lost_counts_as_done(store, proxy):
    proxy.plan = ["lost"]
    put = store.put("key", b"unique", if_none_match=True)
    proxy.plan = ["lost"]
    assert store.put("key", b"next", if_match=put.etag).etag == store.get_bytes("key")[1].etag
    assert [fault for fault, *_ in proxy.failed] == ["lost"] * 2


def test_the_store_is_probed_for_conditions_once(store, proxy):
    assert store.conditional() is True
    assert store.conditional() is True
    assert len(proxy.asked) == 3


def test_a_store_that_ignores_conditions_is_found_out(store, monkeypatch, tmp_path):
    ask = s3.Handler.ask

    def ignoring(handler, body):
        for name in ("If-None-Match", "If-Match"):
            del handler.headers[name]
        return ask(handler, body)

    monkeypatch.setattr(s3.Handler, "ask", ignoring)
    assert store.conditional() is False
    store.put("key", b"one")
    with pytest.raises(Changed, match=r"expected the ETag .*, got "):
        store.get("key", tmp_path / "key", if_match='"other"')


def test_a_large_file_is_put_in_parts(store, tmp_path, monkeypatch, bucket, proxy):
    monkeypatch.setattr(module, "SINGLE_BYTES", 1 << 20)
    monkeypatch.setattr(module, "PART_BYTES", 5 << 20)
    (tmp_path / "large").write_bytes(CONTENT * 4)
    proxy.plan = ["500", None, "503", "reset", None, "lost", "short"]
    put = store.put("large", tmp_path / "large", if_none_match=True)
    assert store.get_bytes("large")[0] == CONTENT * 4
    assert put.etag == next(store.list()).etag
    assert not bucket.list_multipart_uploads(Bucket=bucket.name).get("Uploads")


def test_the_lost_answer_to_the_end_of_an_upload_in_parts_is_found_out(store, tmp_path, monkeypatch, proxy):
    monkeypatch.setattr(module, "SINGLE_BYTES", 1)
    (tmp_path / "large").write_bytes(CONTENT)
    proxy.plan = [None, None, "lost"]  # begin, part, end
    store.put("large", tmp_path / "large")
    assert store.get_bytes("large")[0] == CONTENT
    assert len(proxy.failed) == 1


@pytest.mark.fast_rows("503", "lost", "short")
@pytest.mark.parametrize("fault", s3.FAST_FAULTS)
def test_a_request_that_fails_is_tried_again(store, proxy, tmp_path, fault):
    proxy.plan = [fault] * 3
    store.put("key", CONTENT)
    proxy.plan = [fault] * 3
    store.get("key", tmp_path / "file", sha256=SHA256)
    proxy.plan = [fault] * 3
    assert [entry.size for entry in store.list()] == [len(CONTENT)]
    assert len(proxy.failed) == 9


@pytest.mark.fast_rows("stalled")
@pytest.mark.parametrize("fault", s3.FAULTS_THAT_WAIT)
def test_a_server_that_stalls_is_asked_again(bucket, proxy, tmp_path, fault, monkeypatch):
    monkeypatch.setattr(s3_requests, "STALL_S", 0.5)
    store = open_store(bucket.url)
    store.put("key", CONTENT)
    proxy.plan = [fault]
    store.get("key", tmp_path / "file", sha256=SHA256)
    assert len(proxy.failed) == 1


@pytest.mark.fast_rows("0.2")
@pytest.mark.parametrize("rate", [0.05, 0.2, 0.5])
def test_many_objects_come_whole_through_many_failures(store, proxy, tmp_path, rate):
    contents = {f"{number:02}": random.Random(number).randbytes(number * 1000) for number in range(40)}
    proxy.rate, proxy.faults = rate, s3.FAST_FAULTS
    list(together(store, lambda key: store.put(key, contents[key]), contents))
    list(together(store, lambda entry: store.get(entry.key, tmp_path / entry.key), store.list()))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name[0] != "."} == contents
    assert proxy.failed


@pytest.mark.parametrize("content", [CONTENT, CONTENT[::-1]], ids=["same", "other"])
def test_the_next_call_continues_an_interrupted_one_of_the_same_version_alone(
    store, proxy, read, tmp_path, content
):
    etag = store.put("key", CONTENT).etag
    proxy.plan = ["short", *["500"] * retries.STORE_TRIES]
    with pytest.raises(PerennialError, match="try again later"):
        store.get("key", tmp_path / "file", if_match=etag)
    assert not (tmp_path / "file").exists()
    read.clear()
    store.get("key", tmp_path / "file", if_match=store.put("key", content).etag)
    assert (tmp_path / "file").read_bytes() == content
    assert (read[0] >= HALF) is (content == CONTENT)


def test_an_object_that_changes_while_it_is_read_is_refused(store, proxy, read, tmp_path, monkeypatch):
    store.put("key", CONTENT)
    proxy.plan = ["short"]
    changed = [lambda: store.put("key", CONTENT[::-1])]
    monkeypatch.setattr(store._stopped, "wait", lambda _: changed.pop()() if changed else None)
    with pytest.raises(Changed):
        store.get("key", tmp_path / "file")
    assert not (tmp_path / "file").exists()


@pytest.mark.fast_rows("digest0-damaged", "digest1-part2", "digest1-part1")
@pytest.mark.parametrize("part", [b"damaged", CONTENT, CONTENT[:-7] + b"damaged", CONTENT + b"more"])
@pytest.mark.parametrize("digest", [{"sha256": SHA256}, {}])
def test_whatever_an_interrupted_call_left_the_file_is_right_and_alone(store, tmp_path, part, digest):
    etag = store.put("key", CONTENT).etag
    (tmp_path / ".file.part").write_bytes(part)
    (tmp_path / ".file.etag").write_text(etag)
    store.get("key", tmp_path / "file", if_match=etag, size=len(CONTENT), **digest)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [CONTENT]


def test_the_first_error_ends_the_others(store, proxy):
    def work(number):
        if number == 3:
            raise DataError("three")
        store.get_bytes("missing-while-the-server-fails")

    proxy.rate, proxy.faults = 1, ["503"]
    with pytest.raises(PerennialError):
        list(together(store, work, range(1000)))
    assert len(proxy.asked) < 1000


@pytest.mark.parametrize("single", [len(CONTENT), 1 << 20])
def test_a_server_that_rejects_checksums_in_headers_is_usable(store, proxy, tmp_path, monkeypatch, single):
    monkeypatch.setattr(module, "SINGLE_BYTES", single)
    proxy.without_checksums = True
    (tmp_path / "file").write_bytes(CONTENT)
    store.put("a", tmp_path / "file", if_none_match=True)
    assert store.get_bytes("a")[0] == CONTENT
    store.clear()
    assert list(store.list()) == []
    assert proxy.failed == []


def test_a_setting_that_the_server_rejects_is_named_at_once(bucket, proxy, monkeypatch):
    proxy.without_checksums = True
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_supported")
    with pytest.raises(PerennialError, match=r"501 .*unset AWS_REQUEST_CHECKSUM_CALCULATION"):
        open_store(bucket.url).put("a", b"1")
    assert len(proxy.asked) == 1


def test_the_etag_of_an_object_with_a_kms_key_is_not_taken_for_an_md5(
    store, bucket, proxy, tmp_path, monkeypatch
):
    bucket.put_object(Bucket=bucket.name, Key="some/prefix/key", Body=CONTENT, ServerSideEncryption="aws:kms")
    (entry,) = store.list()
    (tmp_path / ".file.part").write_bytes(CONTENT[:100])
    (tmp_path / ".file.etag").write_text(entry.etag)
    proxy.asked.clear()
    monkeypatch.setattr(files, "md5", lambda _: "0" * 32)  # as on S3, where the ETag is no MD5
    store.get("key", tmp_path / "file", if_match=entry.etag, size=entry.size)
    assert [method for method, _ in proxy.asked] == ["GET"]
    assert (tmp_path / "file").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("code", "error", "reason"),
    [
        ("AccessDenied", ConfigError, "access denied .*injected"),
        ("SignatureDoesNotMatch", ConfigError, "rejects the credentials .*injected.*AWS_ACCESS_KEY_ID"),
        ("ExpiredToken", ConfigError, "credentials have expired .*injected.*AWS_SESSION_TOKEN"),
        ("RequestTimeTooSkewed", PerennialError, "injected.*set the clock of this machine"),
    ],
)
def test_a_refusal_is_named_with_its_remedy_and_without_secrets(store, proxy, monkeypatch, code, error, reason):
    xml = s3.XML.replace("injected", f"injected {s3.SECRET} of http://user:word@host/?token=1")
    monkeypatch.setattr(s3, "XML", xml)
    monkeypatch.setitem(s3.FAULTS, "denied", s3.refused(403, code))
    proxy.plan = ["denied"]
    with pytest.raises(error, match=f"/key: .*{reason}") as caught:
        store.get_bytes("key")
    assert not {s3.SECRET, "word", "token"} & set(str(caught.value).replace("=", " ").split())
    assert s3.SECRET not in str(caught.value)
    assert len(proxy.asked) == 1


@pytest.mark.parametrize("said", OTHERS)
def test_what_answers_in_the_place_of_s3_is_named(store, proxy, monkeypatch, said):
    monkeypatch.setitem(s3.FAULTS, "other", OTHERS[said])
    proxy.rate, proxy.faults = 1, ["other"]
    for ask in (lambda: list(store.list()), lambda: store.get_bytes("a"), lambda: store.put("a", b"1")):
        with pytest.raises(ConfigError, match=said):
            ask()


def test_endless_redirects_are_named_where_a_client_wraps_the_error():
    wrapped = HTTPClientError(error="maximum recursion depth exceeded")
    wrapped.__context__ = RecursionError()
    with pytest.raises(ConfigError, match="redirects every request"), s3_errors.translated("s3://a/b"):
        raise wrapped


def test_an_answer_to_head_without_a_reason_names_credentials(store, proxy, monkeypatch):
    monkeypatch.setitem(s3.FAULTS, "denied", s3.refused(400, "ExpiredToken"))  # HEAD has no body
    proxy.rate, proxy.faults = 1, ["denied"]
    with pytest.raises(ConfigError, match=r"as to expired credentials; .*AWS_SESSION_TOKEN"):
        store._requests.about("key")


def test_missing_buckets_and_credentials_are_named(bucket, monkeypatch):
    with pytest.raises(ConfigError, match=r"s3://not-there-1/.* does not exist; create it"):
        list(open_store("s3://not-there-1").list())
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(ConfigError, match=r"no credentials .*AWS_ACCESS_KEY_ID"):
        open_store(bucket.url).get_bytes("key")


def test_a_server_that_is_not_there_is_named_without_its_password(proxy, monkeypatch):
    with socketserver.TCPServer(("127.0.0.1", 0), None) as free:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://user:planted-word@127.0.0.1:{free.server_address[1]}")
    with pytest.raises(PerennialError, match=r"cannot be reached.*AWS_ENDPOINT_URL") as caught:
        open_store("s3://bucket").get_bytes("key")
    assert "planted-word" not in str(caught.value)


@pytest.mark.parametrize("url", ["s3://", "s3:///key", "s3://user:word@bucket/key", *ODD])
def test_a_url_without_a_bucket_or_with_a_password_is_refused(bucket, url):
    with pytest.raises(ConfigError, match="s3://bucket/prefix") as caught:
        open_store(url)
    assert "word" not in str(caught.value).split(",")[0]
