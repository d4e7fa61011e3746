"""What kind of failure an error is, whoever raised it, and how one process tells another about it.

Which kinds are worth another try is a matter of policy (`tasks/policy.py`).
"""

import errno
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perennial.base import files, retries
from perennial.base.errors import ERRORS, Failure, InputsChanged, PerennialError, exit_code

# The file in which a command describes the error that ends it, for the process that started it.
VARIABLE = "PERENNIAL_FAILURE"
DISK = {errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE}
NETWORK = {errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETRESET}
RIGHTS = {errno.EACCES, errno.EPERM, errno.EROFS}
NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP}  # of some network file systems
ERRNOS = {
    **dict.fromkeys(DISK, Failure.DISK),
    **dict.fromkeys(NETWORK, Failure.NETWORK),
    **dict.fromkeys(RIGHTS | NO_LOCKS, Failure.REFUSED),
}
# Errors of packages about a connection; each class stands for its subclasses.
OF_CONNECTIONS = {
    "aiohttp.client_exceptions.ClientConnectionError",
    "aiohttp.client_exceptions.ClientPayloadError",
    "botocore.exceptions.ConnectionError",
    "botocore.exceptions.HTTPClientError",
    "botocore.exceptions.IncompleteReadError",
    "http.client.HTTPException",
    "httpx.TransportError",
    "requests.exceptions.ChunkedEncodingError",
    "requests.exceptions.ConnectionError",
    "requests.exceptions.Timeout",
    "ssl.SSLEOFError",
    "ssl.SSLZeroReturnError",
    "tensorflow.python.framework.errors_impl.UnavailableError",
    "urllib.error.URLError",
    "urllib3.exceptions.HTTPError",
}


def kind(error: BaseException) -> Failure:
    """The kind of a failure; an error that says none itself is of the kind of the one that led to it."""
    own = error.kind if isinstance(error, PerennialError) else Failure.BUG
    return next((found for each in _causes(error) if (found := _known(each))), own)


def of_code(code: int) -> Failure:
    """The kind of the failure of a process that wrote nothing about it, by the code that it ended with."""
    if code < 0 or code > 128:  # a signal; a shell adds 128
        return Failure.INTERRUPTED
    known = {each.exit_code: each.kind for each in ERRORS if each is not PerennialError}
    return known.get(code, Failure.BUG)


def document(error: Exception, message: str) -> dict[str, Any]:
    """Describe an error for another process."""
    return {
        "code": exit_code(error),
        "message": message,
        "kind": kind(error),
        "changed": isinstance(error, InputsChanged),  # a flow must not go on with other values
    }


def tell_starter(file: str | None, error: Exception, message: str) -> None:
    """Describe the error that ends this process to the process that started it, if that asks for it."""
    if file:
        files.write_json(Path(file), document(error, message))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and those that it was raised because of or while handling, the last first."""
    seen = set[int]()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)


def _known(error: BaseException) -> Failure | None:
    """The kind of an error if it says one, or is one of the network or the disk, or of a missing right."""
    if isinstance(error, PerennialError):
        return None if error.kind is Failure.OUTSIDE else error.kind
    status = _status(error)
    if status is not None:
        return Failure.NETWORK if retries.is_temporary(status) else None
    names = {f"{each.__module__}.{each.__qualname__}" for each in type(error).__mro__}
    if isinstance(error, ConnectionError | TimeoutError | socket.gaierror) or names & OF_CONNECTIONS:
        return Failure.NETWORK
    return ERRNOS.get(error.errno or 0) if isinstance(error, OSError) else None


def _status(error: BaseException) -> int | None:
    """The HTTP status of an answer that an error is about, as urllib, httpx, requests and boto3 note it."""
    answer = getattr(error, "response", None)
    if isinstance(answer, dict):
        found = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        found = getattr(answer, "status_code", None) or getattr(error, "code", None)
    return found if isinstance(found, int) and 100 <= found < 600 else None
