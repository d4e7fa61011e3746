"""Translate errors of boto3 into errors of this project, without secrets in their messages."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from perennial.base import retries
from perennial.base.errors import ConfigError, PerennialError, redacted
from perennial.base.project.dvc import CLOCK_HINT, CREDENTIALS_HINT, EXPIRED_HINT
from perennial.base.storage import Changed, Missing

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
CREDENTIALS = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken"}
EXPIRED = {"ExpiredToken", "RequestExpired", "TokenRefreshRequired"}
SKEWED = "RequestTimeTooSkewed"
NO_BODY = "400"  # the code of an answer to a HEAD request
CHECKSUMS_HINT = "if it rejects checksums, unset AWS_REQUEST_CHECKSUM_CALCULATION, or set it to when_required"
ENDPOINT_HINT = "check the network, AWS_ENDPOINT_URL and the proxy"


class Temporary(PerennialError):
    """A failure that is worth a retry."""

    def __init__(self, message: str, *, status: int = 0, tries: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.tries = tries  # instead of the usual number


@contextmanager
def translated(where: str, secrets: Collection[str] = ()) -> Iterator[None]:
    """Translate boto3's errors in the block into this project's; `where` is the URL of the object."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - optional
    from urllib3.exceptions import HTTPError  # noqa: PLC0415 - of botocore

    def clean(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, "***")
        return " ".join(redacted(text).split())

    try:
        yield
    except ClientError as error:
        answer = error.response
        status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        code, message = (clean(str(answer.get("Error", {}).get(key, ""))) for key in ("Code", "Message"))
        raise _refusal(where, status, code, f"{code}: {message}" if message else code) from None
    except (BotoCoreError, HTTPError, ValueError) as error:  # ValueError: a malformed endpoint
        raise _failure(where, error, clean(str(error))) from None


def _of_credentials(where: str, status: int, code: str, said: str) -> PerennialError | None:
    """Return the error if the server refuses who asks, or when."""
    if code in EXPIRED:
        return ConfigError(f"{where}: the credentials have expired ({said}); {EXPIRED_HINT}")
    if code == SKEWED:
        return PerennialError(f"{where}: the server answered {status} ({said}); {CLOCK_HINT}")
    if status == 400 and code == NO_BODY:
        return ConfigError(
            f"{where}: the server answered 400 without a reason, as to expired credentials; {EXPIRED_HINT}"
        )
    if code in CREDENTIALS:
        return ConfigError(f"{where}: the server rejects the credentials ({said}); {CREDENTIALS_HINT}")
    if status in {401, 403} and code not in TEMPORARY:
        return ConfigError(f"{where}: access denied ({said}); grant it, or use other credentials")
    return None


def _refusal(where: str, status: int, code: str, said: str) -> PerennialError:
    """Return the error for a response of the server."""
    if error := _of_credentials(where, status, code, said):
        return error
    if code == "NoSuchBucket":
        error = ConfigError(f"{where}: the bucket does not exist; create it, or correct the URL")
    elif status == 412 or code == "PreconditionFailed":
        error = Changed(f"{where} is not the expected version: it was written in the meantime")
    elif status == 501:
        error = PerennialError(f"{where}: the server answered 501 ({said}); {CHECKSUMS_HINT}")
    elif code in TEMPORARY or status >= 500 or status in {416, 429}:
        error = Temporary(f"{where}: the server answered {status} ({said})", status=status)
    elif status == 404:
        error = Missing(f"{where} does not exist")
    elif status == 400 and "checksum" in said.lower():
        error = PerennialError(f"{where}: the server answered 400 ({said}); {CHECKSUMS_HINT}")
    else:
        error = PerennialError(f"{where}: the server answered {status} ({said})")
    return error


def _failure(where: str, error: Exception, reason: str) -> PerennialError:
    """Return the error for a failure without a response of the server."""
    from botocore import exceptions as boto  # noqa: PLC0415 - optional
    from botocore.parsers import ResponseParserError  # noqa: PLC0415
    from urllib3.exceptions import HTTPError  # noqa: PLC0415 - of botocore

    if isinstance(error, boto.NoCredentialsError | boto.PartialCredentialsError):
        return ConfigError(f"{where}: no credentials ({reason}); {CREDENTIALS_HINT}")
    if isinstance(error, boto.SSLError):
        return PerennialError(f"{where}: TLS failed: {reason}; set AWS_CA_BUNDLE to use other certificates")
    if isinstance(error, boto.EndpointConnectionError | boto.ConnectTimeoutError):
        waited = isinstance(error, boto.ConnectTimeoutError)
        tries = retries.S3_CONNECT_TRIES if waited else retries.S3_UNREACHABLE_TRIES
        return Temporary(f"{where}: the server cannot be reached: {reason}; {ENDPOINT_HINT}", tries=tries)
    broken = boto.HTTPClientError, boto.IncompleteReadError, boto.ResponseStreamingError
    if isinstance(error, (*broken, ResponseParserError, HTTPError)):
        return Temporary(f"{where}: the connection was interrupted: {reason}")
    return ConfigError(f"{where}: {reason}; {CREDENTIALS_HINT}; {ENDPOINT_HINT}")
