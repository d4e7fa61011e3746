"""What to do about refusals of the providers of buckets, and how clients of S3 send checksums."""

import re
from collections.abc import Mapping

# Newer S3 clients send checksums, which some servers reject; objects are compared by digests of their own.
S3_CHECKSUMS = {
    "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
    "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
}


def install_hint(extra: str) -> str:
    """How to install the client of a provider."""
    return f"pip install 'perennial-ml[{extra}]', or in a project -r requirements/{extra}.txt"


CLOCK_HINT = "set the clock of this machine, which differs too much from the server's, then run this again"
S3_EXPIRED_HINT = (
    "get new ones, and set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or sign in again to "
    "AWS_PROFILE; then run this again"
)
S3_CREDENTIALS_HINT = (
    "boto3 reads AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE with ~/.aws, or the machine's role"
)
S3_RIGHTS_HINT = "give these credentials the right to it on the bucket, or use other credentials"
GOOGLE_CREDENTIALS_HINT = (
    "gs:// reads GOOGLE_APPLICATION_CREDENTIALS, what `gcloud auth application-default login` wrote, "
    "or the machine's service account"
)
GOOGLE_EXPIRED_HINT = "sign in again: `gcloud auth application-default login`"
GOOGLE_RIGHTS_HINT = "give the account the role Storage Object Admin on the bucket, or use other credentials"
AZURE_CREDENTIALS_HINT = (
    "azure:// reads AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY, "
    "AZURE_STORAGE_SAS_TOKEN, or what `az login`, the machine or a service principal provides"
)
AZURE_EXPIRED_HINT = "set a new AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_CONNECTION_STRING; then run this again"
AZURE_RIGHTS_HINT = (
    "give the identity the role Storage Blob Data Contributor (Owner is not enough), or use other credentials"
)
# By what to do: the words of the provider, its code, or those of a client.
WORDS = {
    # An answer to a HEAD request has no reason; 400 is the one of S3 to an expired token.
    S3_EXPIRED_HINT: r"ExpiredToken|token has expired|RequestExpired|\(400\) when calling the Head",
    AZURE_EXPIRED_HINT: r"Signature not valid in the specified time frame",
    GOOGLE_EXPIRED_HINT: r"expired or revoked|reauthentication is needed|invalid_rapt",
    CLOCK_HINT: r"RequestTimeTooSkewed|difference between the request time|Request date header too old|"
    r"Invalid JWT.*reasonable timeframe",
    S3_CREDENTIALS_HINT: r"InvalidAccessKeyId|Access Key Id you provided|SignatureDoesNotMatch|"
    r"signature we calculated|InvalidToken|token is malformed|Unable to locate credentials|"
    r"\(403\) when calling the Head",
    AZURE_CREDENTIALS_HINT: r"Authentication to Azure Blob Storage requires|"
    r"DefaultAzureCredential failed|failed to authenticate the request|NoAuthenticationInformation|"
    r"AuthenticationFailed|Connection string is either blank or malformed|\.blob\.core\.windows\.net",
    GOOGLE_CREDENTIALS_HINT: r"Anonymous caller|default credentials|invalid_grant|Invalid Credentials|"
    r"Provided token",
    S3_RIGHTS_HINT: r"\(AccessDenied\) when calling",
    AZURE_RIGHTS_HINT: r"AuthorizationPermissionMismatch|not authorized to perform this operation using this",
    GOOGLE_RIGHTS_HINT: r"does not have storage\.",
}


def remedy(said: str, words: Mapping[str, str] = WORDS) -> str | None:
    """What to do about a refusal of a provider, by what a client says; None if that is not known."""
    flags = re.IGNORECASE | re.MULTILINE
    return next((hint for hint, pattern in words.items() if re.search(pattern, said, flags)), None)
