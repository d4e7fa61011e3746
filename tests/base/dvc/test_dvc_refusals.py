"""What DVC prints when a bucket refuses: the remedy is named, and nothing is retried."""

from pathlib import Path

import pytest

from perennial.base import failures
from perennial.base.dvc import dvc_program
from perennial.base.errors import Failure
from perennial.base.storage.s3_errors import remedy


@pytest.mark.fast_rows("PUT")
@pytest.mark.parametrize("method", ["PUT", "GET"])
def test_a_bucket_that_grants_no_right_is_a_refusal(tmp_path, monkeypatch, bucket, proxy, forked_dvc, method):
    monkeypatch.chdir(tmp_path)
    dvc_program.run("init", "--no-scm")
    dvc_program.run("remote", "add", "--default", "store", f"s3://{bucket.name}/dvc")
    Path("data").write_text("data")
    dvc_program.run("add", "data")
    proxy.denies = lambda asked, path, headers: asked == method
    with pytest.raises(
        dvc_program.DvcError, match=r"AccessDenied.*; give these credentials the right"
    ) as refused:
        dvc_program.run("push")
    assert failures.kind(refused.value) is Failure.REFUSED
    proxy.denies = lambda asked, path, headers: False
    assert "1 file pushed" in dvc_program.run("push")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("failed to push - The provided token has expired.", "AWS_SESSION_TOKEN"),
        ("An error occurred (RequestTimeTooSkewed) when calling PutObject", "set the clock"),
        ("The difference between the request time and the current time is too large.", "set the clock"),
        ("The AWS Access Key Id you provided does not exist in our records.", "AWS_ACCESS_KEY_ID"),
        ("Unable to locate credentials", "AWS_ACCESS_KEY_ID"),
        ("An error occurred (400) when calling the HeadObject operation: Bad Request", "AWS_SESSION_TOKEN"),
        ("An error occurred (NoSuchBucket) when calling the PutObject operation", "create the bucket"),
    ],
)
def test_a_refusal_in_the_words_of_dvc_has_its_remedy(said: str, expected: str) -> None:
    assert expected in (remedy(said) or "")
