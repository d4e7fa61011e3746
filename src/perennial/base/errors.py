"""The closed list of errors that users can get, each with an exit code that programs can act on."""

import os
import re
import signal
from collections.abc import Iterable
from enum import StrEnum

SIGNALS: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGINT)  # that interrupt a command
if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # its terminal was closed; `nohup` ignores that
    SIGNALS = (*SIGNALS, signal.SIGHUP)

# Set where a supervisor starts whatever ends with 75 again, which must not go on with other values by itself.
STARTED_AGAIN = "PERENNIAL_STARTED_AGAIN_AFTER_75"
# What `redacted` removes, and what it leaves. A URL may be escaped, as in JSON, or lack a slash, as a path.
_BEGIN = r"(:\\?/\\?/|(?<=\bhttps):/|(?<=\bhttp):/|(?<=\bs3):/|(?<=\bssh):/)"
SECRETS = (
    # A password may hold a slash.
    (re.compile(rf"{_BEGIN}[^\s'\"]*@"), r"\1***@"),
    # And spaces, quotes and line breaks. A port is no password.
    (re.compile(rf"{_BEGIN}[^\s/:@'\"\[]*:(?!\d+(?:[^\w@]|$))(?:(?!:\\?/\\?/)[^@])*@", re.DOTALL), r"\1***@"),
    (re.compile(r"(:\\?/\\?/\*\*\*@)(?:(?!:\\?/\\?/)[^\n/])*@"), r"\1"),
    (re.compile(rf"({_BEGIN}[^\s?#'\"]*)(?:\?|#(?=[^\s'\"]*=))[^\s'\"]*"), r"\1?***"),
    (
        re.compile(
            r"((?:authorization|cookie|x-amz-security-token|x-[\w-]*(?:key|token)|private-token)"
            r"[\\'\"]*\s*[:=,]\s*)(?:\\?\"[^\"\n]*|'[^'\n]*|[^\n'\"]+)",
            re.IGNORECASE,
        ),
        r"\1***",
    ),
    (
        re.compile(
            r"((?:token|secret|passwo?r?d|pwd|api_?key|access_key|accountkey|signature|\bsig|credential)[\w-]*[\\'\"]*\s*[=:]\s*)"
            r"(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s&,;'\"]+)",
            re.IGNORECASE,
        ),
        r"\1***",
    ),
)


class Failure(StrEnum):
    """Kinds of failures; `tasks/policy.py` says which of them are worth another try."""

    INTERRUPTED = "interrupted"  # by a signal
    NETWORK = "network"
    DISK = "disk"
    OUTSIDE = "outside"  # another program or server failed
    REFUSED = "refused"  # the parameters, the data or the model: a person changes something first
    CHANGED = "changed"  # what it reads changed meanwhile
    BUG = "bug"  # an error that nothing here expects


class PerennialError(Exception):
    """Something went wrong that the message explains: what, where, expected, got, what to do.

    Exit code 1, which all failures without a specific class have.
    """

    exit_code = 1
    kind = Failure.OUTSIDE

    def __init__(self, *message: object, kind: Failure | None = None) -> None:
        """`kind`: by default that of the class."""
        super().__init__(*message)
        self.kind = kind or self.kind


class ConfigError(PerennialError):
    """The parameters or the command line are wrong; nothing was written. Exit code 2."""

    exit_code = 2
    kind = Failure.REFUSED


class DataError(PerennialError):
    """The data are missing, damaged or unexpected. Exit code 3."""

    exit_code = 3
    kind = Failure.REFUSED


class QualityError(PerennialError):
    """The model is not good enough, or not the one that was scored. Exit code 4."""

    exit_code = 4
    kind = Failure.REFUSED


class Interrupted(PerennialError):
    """A signal ended the stage; running it again resumes or restarts it. Exit code 75 (EX_TEMPFAIL)."""

    exit_code = 75
    kind = Failure.INTERRUPTED


class InputsChanged(Interrupted):
    """What a stage reads changed while it ran, so its result was not recorded."""

    kind = Failure.CHANGED


ERRORS: tuple[type[PerennialError], ...] = (PerennialError, ConfigError, DataError, QualityError, Interrupted)


def exit_code(error: Exception) -> int:
    """The exit code of an error; system errors, such as a full disk, have the general code 1."""
    if isinstance(error, InputsChanged) and os.environ.get(STARTED_AGAIN):
        return ConfigError.exit_code
    return error.exit_code if isinstance(error, PerennialError) else PerennialError.exit_code


def printable(text: str) -> str:
    """Escape characters that could control a terminal, since names come from data."""
    if text.isprintable():
        return text
    return "".join(mark if mark.isprintable() else repr(mark)[1:-1] for mark in text)


def listed(names: Iterable[object], most: int) -> str:
    """Format at most `most` names for a message, and the number of others."""
    found = list(map(str, names))
    return ", ".join(found[:most]) + (f" and {len(found) - most} more" if len(found) > most else "")


def redacted(text: str) -> str:
    """Remove users, passwords and queries from URLs, and the values of secret headers and settings."""
    for secret, kept in SECRETS:
        text = secret.sub(kept, text)
    return text


def without_operations(error: Exception) -> str:
    """The message of TensorFlow's error for a failed system call, without the names of operations."""
    return str(error).rpartition("}} ")[2].partition(" [Op:")[0]
