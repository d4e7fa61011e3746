"""The content of a folder of this machine: any name that Linux allows, but nothing that cannot be packed."""

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from perennial.base import files
from perennial.base.errors import DataError, listed
from perennial.data.archives.read import Member
from perennial.data.archives.safety import LIMITS, Names, leftover

log = logging.getLogger(__name__)
SHOWN = 10  # names in a message


def folder_contents(folder: Path) -> list[Member]:
    """All files and folders in a folder, in the order of names; links to files are followed."""
    names, ignored = Names(folder, LIMITS, portable=False), list[str]()
    found = list[Member]()
    for name, entry in _walk_folder(folder, "", ignored):
        member = Member(name, 0, _size(entry), folder=entry.is_dir())
        names.add(name.encode(), folder=member.folder)
        found.append(member)
    _log_leftovers(folder, ignored)
    if all(member.folder for member in found):
        raise DataError(f"{folder} holds no files")
    return found


def without_leftovers(names: Sequence[str], where: Path) -> list[str]:
    """The names of what no desktop or tool leaves behind; a line names the others."""
    _log_leftovers(where, [name for name in names if leftover(name)])
    return [name for name in names if not leftover(name)]


def _log_leftovers(where: Path, ignored: Sequence[str]) -> None:
    if ignored:
        log.info(
            "%s: ignored %d files and folders that desktops or tools leave: %s",
            where,
            len(ignored),
            listed(map(repr, ignored), SHOWN),
        )


def _walk_folder(folder: Path, prefix: str, ignored: list[str]) -> Iterator[tuple[str, "os.DirEntry[str]"]]:
    """Yield the name and entry of everything in a folder, in order of names, and collect leftovers."""
    try:
        with os.scandir(folder) as opened:
            entries = sorted(opened, key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror}") from error
    for entry in entries:
        files.require_utf8(Path(entry.path))
        name = prefix + entry.name
        if leftover(entry.name):
            ignored.append(name)
        elif entry.name.startswith("."):
            raise DataError(f"{folder}: {name!r} is hidden; rename it or move it away")
        elif entry.is_dir() and entry.is_symlink():
            raise DataError(
                f"{entry.path} is a link to a folder, in which DVC sees no changes; put the folder there"
            )
        else:
            yield name, entry
            if entry.is_dir():
                yield from _walk_folder(Path(entry.path), f"{name}/", ignored)


def _size(entry: "os.DirEntry[str]") -> int:
    """Return the size of a file that can be read, or 0 for a folder."""
    if entry.is_dir():
        return 0
    if not os.path.isfile(entry.path):  # noqa: PTH113 - False for a link to itself
        raise DataError(f"{entry.path} is not a file but a dangling link, a device or a pipe")
    if not os.access(entry.path, os.R_OK):
        raise DataError(f"{entry.path} cannot be read: Permission denied")
    return entry.stat().st_size
