"""What DVC prints when a bucket refuses: the remedy is named, and nothing is retried."""

from pathlib import Path

import pytest

from perennial.base import failures
from perennial.base.dvc import dvc_program
from perennial.base.errors import Failure
from perennial.base.storage.provider_hints import remedy


@pytest.mark.fast_rows("PUT")
@pytest.mark.parametrize("method", ["PUT", "GET"])
def test_a_bucket_that_grants_no_right_is_a_refusal(tmp_path, monkeypatch, bucket, proxy, method):
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
        ("Authentication to Azure Blob Storage requires either account_name or connection_string.", "AZURE_"),
        ("DefaultAzureCredential failed to retrieve a token from the included", "AZURE_STORAGE_ACCOUNT with"),
        ("Cannot connect to host nosuch.blob.core.windows.net:443 ssl:default", "AZURE_STORAGE_ACCOUNT with"),
        ("Signature not valid in the specified time frame: Start [Thu", "a new AZURE_STORAGE_SAS_TOKEN"),
        ("ErrorCode:AuthorizationPermissionMismatch", "Storage Blob Data Contributor"),
        ("The specified container does not exist. ErrorCode:ContainerNotFound", "create the bucket or"),
        ("ERROR: failed to transfer 'ab' - [Errno 2] No such container: 'nobucket'", "create the bucket or"),
        (
            "ERROR: failed to transfer 'ab' - http://host/upload/storage/v1/b/no-1/o\nERROR: 1",
            "create the bucket",
        ),
        ("Anonymous caller does not have storage.objects.get access", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("me@x.iam.gserviceaccount.com does not have storage.objects.create access", "Storage Object Admin"),
        (
            "('invalid_grant: Bad Request', {'error_subtype': 'invalid_rapt'})",
            "gcloud auth application-default",
        ),
        ("invalid_grant: Invalid JWT: Token must be in a reasonable timeframe", "set the clock"),
        ("gs is supported, but requires 'dvc-gs' to be installed", "perennial-ml[gcs]"),
        ("azure is supported, but requires 'dvc-azure' to be installed", "requirements/azure.txt"),
    ],
)
def test_a_refusal_in_the_words_of_dvc_has_its_remedy(said: str, expected: str) -> None:
    assert expected in (remedy(said, dvc_program.WORDS_OF_DVC) or "")
