"""Zip archives, packed again as plain tar files. Source: PKWARE, APPNOTE.TXT 6.3.10."""

import stat
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

from perennial import files
from perennial.datasets import tar_writer, tars
from perennial.datasets.archive_rules import Limits, Names
from perennial.errors import DataError

ENCRYPTED, UTF8 = 0x1, 0x800  # flags
LOCAL_HEADER_BYTES = 30
END_RECORD_BYTES = 22
METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}  # the others expand without a bound on memory


def repack(archive: Path, target: BinaryIO, limits: Limits) -> None:
    """Writes the files and folders of a zip archive as a plain tar file.

    Raises:
        DataError: the archive is damaged, a member breaks a rule, or it holds more than the limits allow.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            _check_frame(opened, archive)
            members = _members(opened, archive, limits)
            for name, info in members:
                _copy(opened, name, info, target)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise DataError(f"{archive} is damaged or no plain zip archive: {error}") from error
    target.write(tars.END)


def _check_frame(opened: zipfile.ZipFile, archive: Path) -> None:
    """Nothing before the first member, nothing after the end record, and no two members in the same bytes."""
    end = archive.stat().st_size - len(opened.comment) - END_RECORD_BYTES
    with archive.open("rb") as stream:
        stream.seek(max(end, 0))
        if stream.read(4) != b"PK\x05\x06":
            raise DataError(f"{archive}: something follows its end record")
    position = 0
    for info in sorted(opened.infolist(), key=lambda info: info.header_offset):
        if info.header_offset < position or (not position and info.header_offset):
            raise DataError(
                f"{archive}: member {info.orig_filename!r} does not begin where the one before ends"
            )
        position = info.header_offset + LOCAL_HEADER_BYTES + len(_encoded_name(info)) + info.compress_size
    if position > end:
        raise DataError(f"{archive} is not whole: its last member goes beyond its end")


def _members(opened: zipfile.ZipFile, archive: Path, limits: Limits) -> list[tuple[str, zipfile.ZipInfo]]:
    """The members with the names that they get, all of them checked before any is read."""
    names, members = Names(archive, limits), []
    for info in opened.infolist():
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
            raise DataError(f"{archive}: member {info.orig_filename!r} is refused: it is a link or a device")
        if info.flag_bits & ENCRYPTED or info.compress_type not in METHODS:
            raise DataError(f"{archive}: member {info.orig_filename!r} is refused: encrypted, or not deflated")
        folder = info.orig_filename.endswith("/")
        if name := names.add(_encoded_name(info), folder=folder):
            members.append((name + "/" * folder, info))
    total = sum(info.file_size for _, info in members)
    if total > limits.most_bytes(archive.stat().st_size):
        raise DataError(f"{archive} expands to {total} bytes, more than is allowed for its size")
    return members


def _encoded_name(info: zipfile.ZipInfo) -> bytes:
    # macOS writes UTF-8 without the flag that says so; cp437 is what zipfile took it for.
    return info.orig_filename.encode("utf-8" if info.flag_bits & UTF8 else "cp437")


def _copy(opened: zipfile.ZipFile, name: str, info: zipfile.ZipInfo, target: BinaryIO) -> None:
    if name.endswith("/"):
        if info.file_size:
            raise zipfile.BadZipFile(f"the folder {name!r} has content")
        target.write(tar_writer.header(name, 0))
        return
    target.write(tar_writer.header(name, info.file_size))
    copied = 0
    with opened.open(info) as content:
        while chunk := content.read(files.CHUNK_BYTES):
            copied += len(chunk)
            target.write(chunk)
    if copied != info.file_size:
        raise zipfile.BadZipFile(f"{name!r} has {copied} bytes, expected {info.file_size}")
    target.write(tar_writer.padding(info.file_size))
