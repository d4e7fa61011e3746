"""Archives as plain tar files, which are read in place: nothing is ever extracted into the file system.

An archive is refused whole when anything about it is wrong. Names: `archive_rules`; damage: `tars`.
"""

import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from perennial import files
from perennial.datasets import decompress, tar_writer, tars, zips
from perennial.datasets.archive_rules import LIMITS, Limits
from perennial.datasets.tars import Member
from perennial.errors import DataError
from perennial.runtime import parallel

__all__ = ["LIMITS", "Limits", "Member", "contents", "expand", "inflate", "kind", "members", "pack"]

MAGIC = {
    "gzip": b"\x1f\x8b",
    "bzip2": b"BZh",
    "xz": b"\xfd7zXZ\0",
    "zip": b"PK\x03\x04",
}


def expand(archive: Path, target: Path, limits: Limits = LIMITS) -> None:
    """Writes what a .tar, .tar.gz, .tar.bz2, .tar.xz or .zip file holds as one plain tar file.

    A file that is one already gets a second name. The content decides what the archive is, not its name.

    Raises:
        DataError: the archive is damaged or not whole, holds more than the limits allow, or a member is not
            a plain file or folder of a safe name. There is no target then.
    """
    form = kind(archive)
    if form == "tar":
        _check(archive, archive, limits)
        _link(archive, target)
        return
    with _new_file(target) as stream:
        if form == "zip":
            zips.repack(archive, stream, limits)
        else:
            inflate(archive, form, stream, limits)
        stream.flush()
        _check(Path(stream.name), archive, limits)


def kind(archive: Path) -> str:
    """What an archive is by its content: tar, gzip, bzip2, xz or zip.

    Raises:
        DataError: it is none of these, or cannot be read.
    """
    try:
        with archive.open("rb") as stream:
            start = stream.read(tars.BLOCK_BYTES)
    except OSError as error:
        raise DataError(f"{archive} cannot be read: {error.strerror}") from error
    if not start:
        raise DataError(f"{archive} is empty")
    if _is_tar(start):
        return "tar"
    for name, magic in MAGIC.items():
        if start.startswith(magic):
            return name
    raise DataError(f"{archive} is no tar, tar.gz, tar.bz2, tar.xz or zip file: it starts with {start[:16]!r}")


def members(tar: Path) -> list[Member]:
    """The files in a plain tar file, sorted by name.

    Raises:
        DataError: as `expand`.
    """
    return [member for member in contents(tar) if not member.folder]


def contents(tar: Path) -> list[Member]:
    """The files and folders in a plain tar file, sorted by name.

    Raises:
        DataError: as `expand`.
    """
    if not tar.is_file():
        raise DataError(f"{tar} does not exist; `dvc repro download` fetches the archive that it comes from")
    return sorted(tars.walk(tar, tar, LIMITS), key=lambda member: member.name)


def pack(folder: Path, target: Path) -> None:
    """Writes a folder of images as a plain tar file: equal trees give equal bytes. Hidden files are left out.

    Raises:
        DataError: a file cannot be read or its name breaks a rule. There is no target then.
    """
    with _new_file(target) as stream:
        tar_writer.write_folder(folder, stream, LIMITS)


def _is_tar(start: bytes) -> bool:
    """Whether a file begins as a tar file does; one from before 1988 says so by its checksum alone."""
    if start[257:262] == b"ustar" or not any(start):
        return True
    try:
        tarfile.TarInfo.frombuf(start, "latin-1", "strict")
    except (tarfile.HeaderError, ValueError):
        return False
    return True


def _check(tar: Path, archive: Path, limits: Limits) -> None:
    if tar.stat().st_size > limits.bytes:
        raise DataError(f"{archive} holds more than {limits.bytes} bytes")
    for _ in tars.walk(tar, archive, limits):
        pass


def _link(file: Path, target: Path) -> None:
    """Gives a file a second name; a copy where the file system has no hard links."""
    target.unlink(missing_ok=True)
    if not files.linked(file.resolve(), target):
        with file.open("rb") as source, _new_file(target) as stream:
            shutil.copyfileobj(source, stream, files.CHUNK_BYTES)


def inflate(archive: Path, form: str, stream: BinaryIO, limits: Limits = LIMITS) -> None:
    """Writes what a gzip, bzip2 or xz file holds, and stops as soon as it grows beyond the limits.

    Raises:
        DataError: it does, or it is damaged or not whole.
    """
    most, written = limits.most_bytes(archive.stat().st_size), 0

    def within_limits() -> Iterator[bytes]:
        nonlocal written
        for chunk in decompress.chunks(archive, form):
            written += len(chunk)
            if written > most:
                raise DataError(
                    f"{archive} expands to more than {most} bytes; at most {limits.ratio} times its size and "
                    f"{limits.bytes} bytes are allowed"
                )
            yield chunk

    parallel.feed(within_limits(), stream.write)


@contextmanager
def _new_file(target: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the name of the target when the block ends well, and is gone otherwise.

    It is not forced to the disk: it is scratch, or lies in a folder that will be.
    """
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        with files.naming(target), temporary.open("wb") as stream:
            yield stream
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
