"""The closed list of errors that a person can meet, each with the exit code that a program can act on."""

import re
from collections.abc import Iterable


class PerennialError(Exception):
    """Something went wrong that the message explains: what, where, expected, got, what to do.

    Exit code 1, the code of every failure that has no class of its own.
    """

    exit_code = 1


class ConfigError(PerennialError):
    """The parameters or the command line are wrong; nothing was written. Exit code 2."""

    exit_code = 2


class DataError(PerennialError):
    """The data are not what they should be. Exit code 3."""

    exit_code = 3


class QualityError(PerennialError):
    """The model is not good enough, or not the one that was scored. Exit code 4."""

    exit_code = 4


class Interrupted(PerennialError):
    """A signal ended the stage; running it again continues or starts afresh. Exit code 75 (EX_TEMPFAIL)."""

    exit_code = 75


ERRORS: tuple[type[PerennialError], ...] = (
    PerennialError,
    ConfigError,
    DataError,
    QualityError,
    Interrupted,
)


def exit_code(error: Exception) -> int:
    """The exit code of an error; the system's refusals, such as a full disk, have the general one."""
    return error.exit_code if isinstance(error, PerennialError) else PerennialError.exit_code


def printable(text: str) -> str:
    """The text with characters escaped that could steer a terminal: names come from data."""
    if text.isprintable():
        return text
    return "".join(mark if mark.isprintable() else repr(mark)[1:-1] for mark in text)


def listed(names: Iterable[object], most: int) -> str:
    """The first names for a message, at most so many, and the number of the others."""
    found = list(map(str, names))
    return ", ".join(found[:most]) + (f" and {len(found) - most} more" if len(found) > most else "")


def redacted(text: str) -> str:
    """Remove users, passwords and queries from all URLs in a text."""
    text = re.sub(r"//[^\s'\"]*@", "//***@", text)  # a password may hold a slash
    return re.sub(r"(\w://[^\s?'\"]*)\?[^\s'\"]*", r"\1?***", text)
