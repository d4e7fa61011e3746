"""The store on S3, against moto over HTTP, behind a proxy that fails requests."""

import hashlib
import random

import pytest
from support import s3

from perennial.base import files, retries
from perennial.base.errors import ConfigError, PerennialError
from perennial.base.storage import Changed, open_store
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
