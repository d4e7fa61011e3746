"""Translate errors of boto3 into errors of this project, without secrets in their messages."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from perennial.base import retries
from perennial.base.errors import ConfigError, PerennialError
from perennial.base.storage.provider_hints import S3_CREDENTIALS_HINT, S3_EXPIRED_HINT
from perennial.base.storage.refusals import Answer, Provider, Temporary, clean, refusal

S3 = Provider(
    temporary={
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
    },
    rejected={"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken"},
    expired={"ExpiredToken", "RequestExpired", "TokenRefreshRequired"},
    skewed={"RequestTimeTooSkewed"},
    missing_bucket={"NoSuchBucket"},
    credentials_hint=S3_CREDENTIALS_HINT,
    expired_hint=S3_EXPIRED_HINT,
    endpoint_hint="check the network, AWS_ENDPOINT_URL and the proxy",
    other_hint="if it rejects checksums, unset AWS_REQUEST_CHECKSUM_CALCULATION, or set it to when_required",
)
NO_BODY = "400"  # the code of an answer to a HEAD request


@contextmanager
def translated(where: str, secrets: Collection[str] = ()) -> Iterator[None]:
    """Translate boto3's errors in the block into this project's; `where` is the URL of the object."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - optional
    from urllib3.exceptions import HTTPError  # noqa: PLC0415 - of botocore

    try:
        yield
    except ClientError as error:
        found = error.response
        status = int(found.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        code, message = (
            clean(str(found.get("Error", {}).get(key, "")), secrets) for key in ("Code", "Message")
        )
        if status == 400 and code == NO_BODY:
            said = "the server answered 400 without a reason, as to expired credentials"
            raise ConfigError(f"{where}: {said}; {S3.expired_hint}") from None
        raise refusal(Answer(where=where, status=status, code=code, message=message), S3) from None
    except (BotoCoreError, HTTPError, ValueError) as error:  # ValueError: a malformed endpoint
        raise _failure(where, error, clean(str(error), secrets)) from None


def _failure(where: str, error: Exception, reason: str) -> PerennialError:
    """Return the error for a failure without an answer of the server."""
    from botocore import exceptions as boto  # noqa: PLC0415 - optional
    from botocore.parsers import ResponseParserError  # noqa: PLC0415
    from urllib3.exceptions import HTTPError  # noqa: PLC0415 - of botocore

    if isinstance(error, boto.NoCredentialsError | boto.PartialCredentialsError):
        return ConfigError(f"{where}: no credentials ({reason}); {S3_CREDENTIALS_HINT}")
    if isinstance(error, boto.SSLError):
        return PerennialError(f"{where}: TLS failed: {reason}; set AWS_CA_BUNDLE to use other certificates")
    if isinstance(error, boto.EndpointConnectionError | boto.ConnectTimeoutError):
        waited = isinstance(error, boto.ConnectTimeoutError)
        tries = retries.STORE_CONNECT_TRIES if waited else retries.STORE_UNREACHABLE_TRIES
        return Temporary(f"{where}: the server cannot be reached: {reason}; {S3.endpoint_hint}", tries=tries)
    if isinstance(error, boto.ReadTimeoutError):
        silent = f"{where}: the server accepts the connection and does not answer: {reason}; {S3.endpoint_hint}"
        return Temporary(silent, tries=retries.STORE_SILENT_TRIES)
    broken = boto.HTTPClientError, boto.IncompleteReadError, boto.ResponseStreamingError
    if isinstance(error, (*broken, ResponseParserError, HTTPError)):
        return Temporary(f"{where}: the connection was interrupted: {reason}")
    return ConfigError(f"{where}: {reason}; {S3_CREDENTIALS_HINT}; {S3.endpoint_hint}")
