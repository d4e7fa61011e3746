"""Plain tar files of equal bytes for equal content: no times, no owners, folders of images in sorted order."""

import logging
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from perennial import files
from perennial.datasets.archive_rules import Limits, Names, leftover
from perennial.datasets.tars import BLOCK_BYTES, END
from perennial.errors import DataError

log = logging.getLogger(__name__)


def header(name: str, size: int) -> bytes:
    """The header of a file of that many bytes, or of a folder, whose name ends with a slash."""
    info = tarfile.TarInfo(name)
    info.size = size
    if name.endswith("/"):
        info.type, info.mode = tarfile.DIRTYPE, 0o755
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


def padding(size: int) -> bytes:
    """The zeros that fill the last block of that many bytes."""
    return bytes(-size % BLOCK_BYTES)


def write_folder(folder: Path, target: BinaryIO, limits: Limits) -> None:
    """Writes the files and folders in a folder, except those that desktops and tools leave; links are followed.

    Raises:
        DataError: a file cannot be read, a link leads back to a folder above it, a name breaks a rule, or
            there are no files.
    """
    names, count = Names(folder, limits), 0
    for name, path in _paths(folder, ""):
        try:
            encoded = name.encode()
        except UnicodeEncodeError:
            encoded = os.fsencode(name)  # which Names refuses, and shows
        names.add(encoded, folder=name.endswith("/"))
        if name.endswith("/"):
            target.write(header(name, 0))
        else:
            _write_file(path, name, target)
            count += 1
    if not count:
        raise DataError(f"{folder} holds no files")
    target.write(END)


def _paths(folder: Path, prefix: str) -> Iterator[tuple[str, Path]]:
    """Name and path of everything in a folder that is not hidden, the folders among it with a slash."""
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror}") from error
    for path in paths:
        name = prefix + path.name
        files.require_utf8(path)
        if leftover(path.name):
            log.info("ignored %s: left by a desktop or a tool", path)
            continue
        if path.name.startswith("."):
            raise DataError(f"{path.parent}: {name!r} is hidden; rename it or move it away")
        if path.is_dir() and path.is_symlink():
            raise DataError(f"{path} is a link to a folder, in which DVC sees no changes; put the folder there")
        if path.is_dir():
            yield f"{name}/", path
            yield from _paths(path, f"{name}/")
        else:
            yield name, path


def _write_file(path: Path, name: str, target: BinaryIO) -> None:
    if not path.is_file():
        raise DataError(f"{path} is no file: a link to nothing, a device or a pipe")
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            target.write(header(name, size))
            left = size
            while left and (chunk := stream.read(min(left, files.CHUNK_BYTES))):
                target.write(chunk)
                left -= len(chunk)
            changed = left or stream.read(1)
    except PermissionError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    if changed:
        raise DataError(f"{path} changed while it was read")
    target.write(padding(size))
