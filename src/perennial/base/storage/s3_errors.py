"""What S3, its clients and DVC say when they refuse, as errors of this project that say what to do."""

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from perennial.base import retries
from perennial.base.errors import ConfigError, Failure, PerennialError, redacted
from perennial.base.storage import Changed, Missing

# Newer S3 clients send checksums, which some servers reject; objects are compared by digests of their own.
CHECKSUM_SETTINGS = {
    "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
    "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
}
TEMPORARY = {
    "BadDigest",  # the body was damaged in transit
    "ConditionalRequestConflict",  # another write of the object is still running
    "IncompleteBody",
    "InternalError",
    "OperationAborted",
    "RequestTimeout",
    "ServiceUnavailable",
    "SlowDown",
    "ThrottlingException",
    "TooManyRequests",
    "XAmzContentSHA256Mismatch",
}
REJECTED = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken"}
OTHER_REGION = {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
EXPIRED = {"ExpiredToken", "RequestExpired", "TokenRefreshRequired"}
NO_BODY = "400"  # the code of an answer to a HEAD request

CLOCK_HINT = "set the clock of this machine, which differs too much from the server's, then run this again"
EXPIRED_HINT = (
    "if these credentials have expired, get new ones, and set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and "
    "AWS_SESSION_TOKEN, or sign in again to AWS_PROFILE; then run this again"
)
CREDENTIALS_HINT = (
    "boto3 reads AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE with ~/.aws, or the machine's role"
)
RIGHTS_HINT = "give these credentials the right to it on the bucket, or use other credentials"
ENDPOINT_HINT = "check the network, AWS_ENDPOINT_URL and the proxy"
CHECKSUM_HINT = "if it rejects checksums, unset AWS_REQUEST_CHECKSUM_CALCULATION, or set it to when_required"
REDIRECT_HINT = "set AWS_ENDPOINT_URL to where it leads, and AWS_DEFAULT_REGION to the bucket's region"
BUCKET_HINT = "create the bucket, or correct the URL: `dvc remote modify NAME url URL`"
# What to do, by words of S3 or of DVC's client.
WORDS = {
    # An answer to a HEAD request has no reason; 400 is the one of S3 to an expired token.
    EXPIRED_HINT: r"ExpiredToken|token has expired|RequestExpired|\(400\) when calling the Head",
    CLOCK_HINT: r"RequestTimeTooSkewed|difference between the request time",
    CREDENTIALS_HINT: r"InvalidAccessKeyId|Access Key Id you provided|SignatureDoesNotMatch|"
    r"signature we calculated|InvalidToken|token is malformed|Unable to locate credentials|"
    r"\(403\) when calling the Head",
    RIGHTS_HINT: r"\(AccessDenied\) when calling",
    BUCKET_HINT: r"NoSuchBucket|specified bucket does not exist",
}


class Temporary(PerennialError):
    """A failure that is worth a retry."""

    def __init__(self, message: str, *, status: int = 0, tries: int = retries.STORE_TRIES) -> None:
        super().__init__(message)
        self.status = status
        self.tries = tries


def remedy(said: str) -> str | None:
    """What to do about a refusal, by what a client says; None if that is not known."""
    return next((hint for hint, pattern in WORDS.items() if re.search(pattern, said, re.IGNORECASE)), None)


@contextmanager
def translated(where: str, secrets: Collection[str] = ()) -> Iterator[None]:
    """Translate boto3's errors in the block into this project's; `where` is the URL of the object."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - half a second
    from urllib3.exceptions import HTTPError  # noqa: PLC0415 - of botocore

    try:
        yield
    except ClientError as error:
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        found = error.response.get("Error", {})
        code, message = (_clean(str(found.get(key, "")), secrets) for key in ("Code", "Message"))
        raise _refusal(where, status, code, message) from None
    except (BotoCoreError, HTTPError, RecursionError, ValueError) as error:  # ValueError: a malformed endpoint
        if RecursionError in {type(error), type(error.__context__)}:  # it follows redirects by calling itself
            raise ConfigError(f"{where}: the server redirects every request; {REDIRECT_HINT}") from None
        raise _failure(where, error, _clean(str(error), secrets)) from None


def _clean(text: str, secrets: Collection[str]) -> str:
    """Return a message in one line, without secrets."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return " ".join(redacted(text).split())


def _refusal(where: str, status: int, code: str, message: str) -> PerennialError:
    """Return the error for an answer of the server."""
    said = ": ".join(filter(None, (code, message)))
    if error := _refused_credentials(where, status, code, said):
        return error
    if code == "NoSuchBucket":
        return ConfigError(f"{where}: the bucket does not exist; create it, or correct the URL")
    if code in TEMPORARY or status == 416 or retries.is_temporary(status):
        return Temporary(f"{where}: the server answered {status} ({said})", status=status)
    if status in {409, 412}:
        return Changed(f"{where} is not the expected version: it was written in the meantime")
    if status == 404:
        return Missing(f"{where} does not exist")
    elsewhere = 300 <= status < 400 or code in OTHER_REGION
    unsupported = status == 501 or (status == 400 and "checksum" in said.lower())
    advice = f"; {REDIRECT_HINT}" if elsewhere else f"; {CHECKSUM_HINT}" if unsupported else ""
    kind = Failure.REFUSED if advice else None
    return PerennialError(f"{where}: the server answered {status} ({said}){advice}", kind=kind)


def _refused_credentials(where: str, status: int, code: str, said: str) -> PerennialError | None:
    """Return the error if the server refuses who asks, or when."""
    if status == 400 and code == NO_BODY:
        said = "the server answered 400 without a reason, as to expired credentials"
        return ConfigError(f"{where}: {said}; {EXPIRED_HINT}")
    if code in EXPIRED:
        return ConfigError(f"{where}: the credentials have expired ({said}); {EXPIRED_HINT}")
    if code == "RequestTimeTooSkewed":
        return PerennialError(f"{where}: the server answered {status} ({said}); {CLOCK_HINT}")
    if code in REJECTED:
        return ConfigError(f"{where}: the server rejects the credentials ({said}); {CREDENTIALS_HINT}")
    if status in {401, 403} and code not in TEMPORARY:
        return ConfigError(f"{where}: access denied ({said}); {RIGHTS_HINT}")
    return None


def _failure(where: str, error: Exception, reason: str) -> PerennialError:
    """Return the error for a failure without an answer of the server."""
    from botocore import exceptions as boto  # noqa: PLC0415 - half a second
    from botocore.parsers import ResponseParserError  # noqa: PLC0415
    from urllib3.exceptions import HTTPError  # noqa: PLC0415 - of botocore

    if isinstance(error, boto.NoCredentialsError | boto.PartialCredentialsError):
        return ConfigError(f"{where}: no credentials ({reason}); {CREDENTIALS_HINT}")
    if isinstance(error, boto.SSLError):
        hint = "AWS_CA_BUNDLE names other certificates; AWS_ENDPOINT_URL of a server without TLS has http://"
        return PerennialError(f"{where}: TLS failed: {reason}; {hint}")
    if isinstance(error, boto.EndpointConnectionError | boto.ConnectTimeoutError):
        waited = isinstance(error, boto.ConnectTimeoutError)
        tries = retries.STORE_CONNECT_TRIES if waited else retries.STORE_UNREACHABLE_TRIES
        return Temporary(f"{where}: the server cannot be reached: {reason}; {ENDPOINT_HINT}", tries=tries)
    if isinstance(error, boto.ReadTimeoutError):
        silent = f"{where}: the server accepts the connection and does not answer: {reason}; {ENDPOINT_HINT}"
        return Temporary(silent, tries=retries.STORE_SILENT_TRIES)
    broken = boto.HTTPClientError, boto.IncompleteReadError, boto.ResponseStreamingError
    if isinstance(error, (*broken, ResponseParserError, HTTPError)):
        return Temporary(f"{where}: the connection was interrupted: {reason}")
    return ConfigError(f"{where}: {reason}; {CREDENTIALS_HINT}; {ENDPOINT_HINT}")
