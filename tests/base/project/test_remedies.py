"""The messages for common errors of storage providers, from what DVC prints."""

import pytest

from perennial.base.project.remedies import remedy


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
    assert expected in (remedy(said) or "")
