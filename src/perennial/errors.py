"""The closed list of errors that users can get, each with an exit code that programs can act on."""

import re
from collections.abc import Iterable


class PerennialError(Exception):
    """Something went wrong that the message explains: what, where, expected, got, what to do.

    Exit code 1, which all failures without a specific class have.
    """

    exit_code = 1


class ConfigError(PerennialError):
    """The parameters or the command line are wrong; nothing was written. Exit code 2."""

    exit_code = 2


class DataError(PerennialError):
    """The data are missing, damaged or unexpected. Exit code 3."""

    exit_code = 3


class QualityError(PerennialError):
    """The model is not good enough, or not the one that was scored. Exit code 4."""

    exit_code = 4


class Interrupted(PerennialError):
    """A signal ended the stage; running it again resumes or restarts it. Exit code 75 (EX_TEMPFAIL)."""

    exit_code = 75


class InputsChanged(Interrupted):
    """What a stage reads changed while it ran, so its result was not recorded."""


ERRORS: tuple[type[PerennialError], ...] = (
    PerennialError,
    ConfigError,
    DataError,
    QualityError,
    Interrupted,
)


def exit_code(error: Exception) -> int:
    """The exit code of an error; system errors, such as a full disk, have the general code 1."""
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
    """Remove users, passwords and queries from all URLs in a text."""
    text = re.sub(r"//[^\s'\"]*@", "//***@", text)  # a password may hold a slash
    return re.sub(r"(\w://[^\s?'\"]*)\?[^\s'\"]*", r"\1?***", text)


def without_operations(error: Exception) -> str:
    """The message of TensorFlow's error for a failed system call, without the names of operations."""
    return str(error).rpartition("}} ")[2].partition(" [Op:")[0]
