"""Write archives and folders as plain tar files, which are then read in place.

Nothing is extracted to the file system. An archive with any error is rejected as a whole. Tar files written
here have no times and no owners, so that equal content gives equal bytes. Names in a folder may be any that
Linux allows.
"""

import io
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, BinaryIO

from perennial.base import files
from perennial.base.errors import DataError
from perennial.base.parallel import threads
from perennial.data.archives.read import BLOCK_BYTES, END, Member, check, decompressed, format_of
from perennial.data.archives.safety import LIMITS, LOCAL_NAMES, ArchiveLimits, Names, leftover, log_leftovers

ARCHIVES = (".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".tbz2", ".tar", ".zip")
ENCRYPTED, UTF8 = 0x1, 0x800  # flags
DOS = 0  # system that made a member, of programs of Windows, too
LOCAL_HEADER_BYTES = 30
END_RECORD_BYTES = 22
METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}  # the others expand without a bound on memory


def unpack(raw: Path, folder: Path) -> None:
    """Put every raw file into a folder, uncompressed: archives as plain `.tar`, others without their `.gz`."""
    found = sorted(path for path in raw.glob("*") if path.is_file() and path.name != files.MARK)
    if not found:
        raise DataError(f"{raw} holds no files; `dvc repro download` fetches them")
    for file in found:
        ending = next((ending for ending in ARCHIVES if file.name.lower().endswith(ending)), None)
        name = file.name.removesuffix(".gz") if ending is None else f"{file.name[: -len(ending)]}.tar"
        target = folder / name
        if os.path.lexists(target):
            raise DataError(f"{raw} holds two files that would both be {name} when they are unpacked")
        if ending is not None:
            expand(file, target)
        elif file.suffix == ".gz":
            with files.naming(target), target.open("wb") as stream:
                inflate(file, "gzip", stream)
        else:
            target.symlink_to(file.resolve())


def expand(archive: Path, target: Path, limits: ArchiveLimits = LIMITS) -> None:
    """Write the content of an archive of any format as a plain tar file; one that is plain is linked."""
    archive_format = format_of(archive)
    if archive_format == "tar":
        _check(archive, archive, limits)
        target.unlink(missing_ok=True)
        if not files.linked(archive.resolve(), target):  # the file system has no hard links
            with archive.open("rb") as source, files.new_file(target, durable=False) as stream:
                shutil.copyfileobj(source, stream, files.CHUNK_BYTES)
        return
    with files.new_file(target, durable=False) as stream:
        if archive_format == "zip":
            _write_zip(archive, stream, limits)
        else:
            inflate(archive, archive_format, stream, limits)
        stream.flush()
        _check(Path(stream.name), archive, limits)


def pack(folder: Path, target: Path) -> None:
    """Write a folder of images as a plain tar file: equal trees give equal bytes, leftovers are skipped."""
    found, names, portable = folder_contents(folder), Names(folder, LIMITS), False
    with suppress(DataError):
        for member in found:
            names.add(member.name.encode(), folder=member.folder)
        portable = True
    with files.new_file(target, durable=False) as stream:
        if not portable:
            # After this header, `walk` accepts any name that Linux allows.
            stream.write(tarfile.TarInfo.create_pax_global_header({"comment": LOCAL_NAMES.decode()}))
        for member in found:
            if member.folder:
                _write_member(stream, f"{member.name}/", 0, io.BytesIO())
            else:
                _write_file(folder / member.name, member.name, stream)
        stream.write(END)


def pack_files(found: Iterable[tuple[str, Path]], target: Path) -> None:
    """Write files under other names, folder by folder, with the bytes that `pack` writes for such a folder."""
    written: list[str] = []  # the folders above the last file
    with files.new_file(target, durable=False) as stream:
        for name, path in found:
            above = name.split("/")[:-1]
            for depth in range(1, len(above) + 1):
                if above[:depth] != written[:depth]:
                    _write_member(stream, "/".join(above[:depth]) + "/", 0, io.BytesIO())
            _write_file(path, name, stream)
            written = above
        stream.write(END)


def inflate(archive: Path, compression: str, stream: BinaryIO, limits: ArchiveLimits = LIMITS) -> None:
    """Write the content of a gzip, zlib, bzip2 or xz file; stop as soon as it exceeds the limits."""
    most, written = limits.most_bytes(archive.stat().st_size), 0

    def within_limits() -> Iterator[bytes]:
        nonlocal written
        for chunk in decompressed(archive, compression):
            written += len(chunk)
            if written > most:
                raise DataError(
                    f"{archive} expands to more than {most} bytes; at most {limits.ratio} times its size and "
                    f"{limits.bytes} bytes are allowed"
                )
            yield chunk

    threads.feed(within_limits(), stream.write)


def _check(tar: Path, archive: Path, limits: ArchiveLimits) -> None:
    if tar.stat().st_size > limits.bytes:
        raise DataError(f"{archive} holds more than {limits.bytes} bytes")
    check(tar, archive, limits)


def _write_member(target: BinaryIO, name: str, size: int, content: IO[bytes]) -> None:
    """Write a file, or a folder, whose name ends with a slash; EOFError if the content has not that size."""
    info = tarfile.TarInfo(name)
    info.size = left = size
    if name.endswith("/"):
        info.type, info.mode = tarfile.DIRTYPE, 0o755
    target.write(info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict"))
    while left and (chunk := content.read(min(left, files.CHUNK_BYTES))):
        target.write(chunk)
        left -= len(chunk)
    if left or content.read(1):
        raise EOFError(f"{name!r} has not {size} bytes")
    target.write(bytes(-size % BLOCK_BYTES))


def _write_file(path: Path, name: str, target: BinaryIO) -> None:
    try:
        with path.open("rb") as stream:
            _write_member(target, name, os.fstat(stream.fileno()).st_size, stream)
    except PermissionError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except EOFError as error:
        raise DataError(f"{path} changed while it was read") from error


def _write_zip(archive: Path, target: BinaryIO, limits: ArchiveLimits) -> None:
    """Write the files and folders of a zip archive as a plain tar file. Source: PKWARE, APPNOTE.TXT 6.3.10."""
    try:
        with zipfile.ZipFile(archive) as opened:
            _check_zip_frame(opened, archive)
            members = _zip_members(opened, archive, limits)
            for name, info in members:
                with opened.open(info) as content:
                    _write_member(target, name, info.file_size, content)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise DataError(f"{archive} is damaged or not a plain zip archive: {error}") from error
    target.write(END)


def _check_zip_frame(opened: zipfile.ZipFile, archive: Path) -> None:
    """Check that nothing precedes the first member, that none overlap, and that the end record is last."""
    end = archive.stat().st_size - len(opened.comment) - END_RECORD_BYTES
    with archive.open("rb") as stream:
        stream.seek(max(end, 0))
        if stream.read(4) != b"PK\x05\x06":
            raise DataError(f"{archive}: something follows its end record")
    position = 0
    for info in sorted(opened.infolist(), key=lambda info: info.header_offset):
        if info.header_offset < position or (not position and info.header_offset):
            raise DataError(
                f"{archive}: member {info.orig_filename!r} overlaps the one before, or something precedes it"
            )
        position = info.header_offset + LOCAL_HEADER_BYTES + len(_encoded_zip_name(info)) + info.compress_size
    if position > end:
        raise DataError(f"{archive} is incomplete: its last member goes beyond its end")


def _zip_members(
    opened: zipfile.ZipFile, archive: Path, limits: ArchiveLimits
) -> list[tuple[str, zipfile.ZipInfo]]:
    """List the members with their names; every name is checked before any content is read."""
    names, members = Names(archive, limits), []
    for info in opened.infolist():
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
            raise DataError(f"{archive}: member {info.orig_filename!r} is refused: it is a link or a device")
        if info.flag_bits & ENCRYPTED or info.compress_type not in METHODS:
            raise DataError(f"{archive}: member {info.orig_filename!r} is refused: encrypted, or not deflated")
        encoded = _encoded_zip_name(info)
        folder = encoded.endswith(b"/")
        if folder and info.file_size:
            raise zipfile.BadZipFile(f"the folder {info.orig_filename!r} has content")
        if name := names.add(encoded, folder=folder):
            members.append((name + "/" * folder, info))
    total = sum(info.file_size for _, info in members)
    if total > limits.most_bytes(archive.stat().st_size):
        raise DataError(f"{archive} expands to {total} bytes, more than is allowed for its size")
    return members


def _encoded_zip_name(info: zipfile.ZipInfo) -> bytes:
    # macOS writes UTF-8 without the flag for it, so zipfile decoded the name as cp437.
    encoded = info.orig_filename.encode("utf-8" if info.flag_bits & UTF8 else "cp437")
    # Some programs of Windows write backslashes, which the format does not allow, between folders.
    return encoded.replace(b"\\", b"/") if info.create_system == DOS else encoded


def folder_contents(folder: Path) -> list[Member]:
    """All files and folders in a folder, in the order of names; links to files are followed."""
    names, ignored = Names(folder, LIMITS, portable=False), list[str]()
    found = list[Member]()
    for name, entry in _walk_folder(folder, "", ignored):
        member = Member(name, 0, _size(entry), folder=entry.is_dir())
        names.add(name.encode(), folder=member.folder)
        found.append(member)
    log_leftovers(folder, ignored)
    if all(member.folder for member in found):
        raise DataError(f"{folder} holds no files")
    return found


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
