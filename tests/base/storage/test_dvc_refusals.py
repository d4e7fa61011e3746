"""What DVC prints when a bucket refuses: the remedy is named, and nothing is retried."""

from pathlib import Path

import pytest

from perennial.base import failures
from perennial.base.errors import Failure
from perennial.base.project import dvc


@pytest.mark.parametrize("method", ["PUT", "GET"])
def test_a_bucket_that_grants_no_right_is_a_refusal(tmp_path, monkeypatch, bucket, proxy, method):
    monkeypatch.chdir(tmp_path)
    dvc.run("init", "--no-scm")
    dvc.run("remote", "add", "--default", "store", f"s3://{bucket.name}/dvc")
    Path("data").write_text("data")
    dvc.run("add", "data")
    proxy.denies = lambda asked, path, headers: asked == method
    with pytest.raises(dvc.DvcError, match=r"AccessDenied.*; give these credentials the right") as refused:
        dvc.run("push")
    assert failures.kind(refused.value) is Failure.REFUSED
    proxy.denies = lambda asked, path, headers: False
    assert "1 file pushed" in dvc.run("push")
