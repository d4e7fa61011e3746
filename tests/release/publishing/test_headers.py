"""A bucket that demands headers of each write: publishing, checkpoints and DVC's remote take DVC's options."""

from types import SimpleNamespace

import pytest
from support import s3
from support.exports import decide, write_export

from perennial.base import files
from perennial.base.errors import ConfigError
from perennial.base.storage import open_store
from perennial.base.storage import s3 as module
from perennial.model.training.uploader import prepared
from perennial.release.publishing.publish import publish

pytestmark = pytest.mark.usefixtures("forked_dvc")
SSE = "x-amz-server-side-encryption"
KEY = "A" * 42 + "8="  # 32 bytes in base64


def demand(proxy, header, value):
    """Refuse writes without a header, as the policy of a bucket does."""

    def denies(method, path, headers):
        starts = (method == "PUT" and "uploadId=" not in path) or (
            method == "POST" and path.endswith("uploads")
        )
        return starts and headers.get(header) != value

    proxy.denies = denies


@pytest.fixture
def config(load, bucket, proxy):
    """Parameters with a promoted export, and a bucket that demands encryption, which is DVC's remote, too."""
    url, mine = f"s3://{bucket.name}/dvc", f"s3://{bucket.name}/mine"
    remotes = {
        "store": {"url": url, "sse": "aws:kms", "sse_kms_key_id": "alias/models"},
        "mine": {"url": mine, "sse_customer_key": KEY},
    }
    lines = ["[core]", "no_scm = true", "remote = store"]
    for name, options in remotes.items():
        lines += [f"['remote \"{name}\"']", *(f"{key} = {value}" for key, value in options.items())]
    files.write_bytes(load().paths.work.parent / ".dvc" / "config", "\n".join(lines).encode())
    demand(proxy, SSE, "aws:kms")

    def make(**values):
        found = load(**{"publish.url": f"s3://{bucket.name}/models", **values})
        write_export(found)
        decide(found, promote=True)
        return found

    return make


def test_publishing_takes_the_options_of_a_dvc_remote(config, bucket):
    with pytest.raises(ConfigError, match="access denied"):
        publish(config())
    assert publish(config(**{"publish.dvc_remote": "store"})).version == 1
    listed = bucket.list_objects_v2(Bucket=bucket.name, Prefix="models/1/")["Contents"]
    for each in listed:
        found = bucket.head_object(Bucket=bucket.name, Key=each["Key"])
        assert (found["ServerSideEncryption"], found["SSEKMSKeyId"]) == ("aws:kms", "alias/models")
    with pytest.raises(ConfigError, match="DVC has no remote other; known: mine, store"):
        publish(config(**{"publish.dvc_remote": "other"}))


def test_a_customer_s_key_is_refused_for_models_and_taken_for_checkpoints(config, bucket, proxy, tmp_path):
    with pytest.raises(ConfigError, match="sse_customer_key, without which nobody could fetch the model"):
        publish(config(**{"publish.dvc_remote": "mine"}))
    demand(proxy, f"{SSE}-customer-algorithm", "AES256")
    remote = f"s3://{bucket.name}/checkpoints"
    values = {"checkpoints.remote": remote, "checkpoints.dvc_remote": "mine"}
    alone = SimpleNamespace(is_chief=True, barrier=lambda: None)
    uploader = prepared(config(**values).checkpoints, tmp_path / "run", alone, clean=False)
    uploader._run._store.put("checkpoint", b"weights")
    asked = len(proxy.asked)
    assert uploader._run._store.get_bytes("checkpoint")[0] == b"weights"
    assert len(proxy.asked) > asked


@pytest.mark.parametrize("single_bytes", [1 << 20, 1 << 30])
def test_large_files_have_the_headers_too(bucket, proxy, tmp_path, monkeypatch, single_bytes):
    monkeypatch.setattr(module, "SINGLE_BYTES", single_bytes)
    demand(proxy, SSE, "AES256")
    (tmp_path / "file").write_bytes(b"x" * (3 << 20))
    store = open_store(f"s3://{bucket.name}/p", {"sse": "AES256", "grant_read": "id=1", "jobs": "4"})
    store.put("file", tmp_path / "file")
    assert bucket.head_object(Bucket=bucket.name, Key="p/file")["ServerSideEncryption"] == "AES256"


def test_a_key_that_is_not_base64_is_named_without_its_text():
    with pytest.raises(ConfigError, match="must be in base64") as refused:
        open_store("s3://bucket/p", {"sse_customer_key": s3.SECRET + "!"})
    assert s3.SECRET not in str(refused.value)
