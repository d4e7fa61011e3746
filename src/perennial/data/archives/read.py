"""Read archives in place: their format, the members of plain tar files, decompression with checksums.

`tarfile` treats a damaged header as the end of the archive and does not require an end mark; here both are
errors. Source: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Header Block"; GNU tar, "Basic Tar
Format" (long names).
"""

import bz2
import lzma
import re
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from isal.igzip_lib import DECOMP_GZIP, DECOMP_ZLIB, IgzipDecompressor, IsalError

from perennial.base import files
from perennial.base.errors import DataError
from perennial.data.archives.safety import IS_LFS, LFS, LIMITS, LOCAL_NAMES, ArchiveLimits, Names

MAGIC = {"gzip": b"\x1f\x8b", "bzip2": b"BZh", "xz": b"\xfd7zXZ\0", "zip": b"PK\x03\x04"}
BLOCK_BYTES = 512
EXTENSION_BYTES = 1 << 20  # limit of an extension header
END = bytes(2 * BLOCK_BYTES)
EXTENSIONS = {tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME}
REFUSED = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a fifo",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}
_PAX_RECORD = re.compile(rb"([1-9][0-9]{0,8}) ([^=\n]+)=")
# isal's type stubs declare the error as an instance.
DAMAGED = (cast("type[Exception]", IsalError), lzma.LZMAError, OSError, ValueError, EOFError)
XZ_MEMORY_BYTES = 1 << 28  # `xz -9` needs a quarter of it
_checked: dict[tuple[int, ...], list["Member"]] = {}  # of the last tar file that was checked and not read yet


@dataclass(frozen=True, slots=True)
class Member:
    """A file or folder in a plain tar file."""

    name: str
    offset: int  # bytes from the start of the tar file to the content
    size: int  # bytes
    folder: bool = False

    @property
    def file_name(self) -> str:
        """The name without its folders."""
        return self.name.rpartition("/")[2]


def format_of(archive: Path) -> str:
    """Format of an archive by its content: tar, gzip, bzip2, xz or zip."""
    try:
        with archive.open("rb") as stream:
            start = stream.read(BLOCK_BYTES)
    except OSError as error:
        raise DataError(f"{archive} cannot be read: {error.strerror}") from error
    if not start:
        raise DataError(f"{archive} is empty")
    if _is_tar(start):
        return "tar"
    if known := [name for name, magic in MAGIC.items() if start.startswith(magic)]:
        return known[0]
    if start.startswith(LFS):
        raise DataError(f"{archive} is {IS_LFS}")
    raise DataError(
        f"{archive} is not a tar, tar.gz, tar.bz2, tar.xz or zip file: it starts with {start[:16]!r}"
    )


def contents(tar: Path, inner: Member | None = None) -> list[Member]:
    """The files and folders in a plain tar file, or in one that is its member, sorted by name."""
    if not tar.is_file():
        raise DataError(f"{tar} does not exist; `dvc repro download` fetches the archive that it comes from")
    known = _checked.pop(_state(tar), None) if inner is None else None
    shown = tar if inner is None else tar / inner.name
    return sorted(known or walk(tar, shown, LIMITS, inner), key=lambda member: member.name)


def check(tar: Path, archive: Path, limits: ArchiveLimits) -> None:
    """Check every member of a plain tar file; errors name the archive it was made from."""
    found = list(walk(tar, archive, limits))
    _checked.clear()
    if limits == LIMITS:  # those of `contents`, which need not walk through this file again
        _checked[_state(tar)] = found


def _state(tar: Path) -> tuple[int, ...]:
    found = tar.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def content(tar: Path, member: Member) -> bytes:
    """The bytes of a file in a plain tar file; raises the errors of `read_members`."""
    (found,) = read_members(tar, [member])
    return found


def read_members(tar: Path, members: Iterable[Member]) -> Iterator[bytes]:
    """Yield the bytes of files in a plain tar file."""
    with files.naming(tar), tar.open("rb") as stream:
        for member in members:
            stream.seek(member.offset)
            found = stream.read(member.size)
            if len(found) != member.size:
                raise DataError(f"{tar} changed during the read: {member.name!r} is incomplete")
            yield found


def extract(tar: Path, member: Member, target: Path) -> None:
    """Write a file in a plain tar file to a file of this machine; raises the errors of `read_members`."""
    with target.open("wb") as stream:
        for start in range(0, member.size, files.CHUNK_BYTES):
            size = min(files.CHUNK_BYTES, member.size - start)
            stream.write(content(tar, Member(member.name, member.offset + start, size)))


def _is_tar(start: bytes) -> bool:
    """Whether a file starts like a tar file; before POSIX.1-1988 the checksum is the only mark."""
    if start[257:262] == b"ustar" or not any(start):
        return True
    try:
        tarfile.TarInfo.frombuf(start, "latin-1", "strict")
    except (tarfile.HeaderError, ValueError):
        return False
    return True


def walk(tar: Path, archive: Path, limits: ArchiveLimits, inner: Member | None = None) -> Iterator[Member]:
    """The members in file order, of the file or of one in it; errors name the archive it was made from."""
    names, count, position = Names(archive, limits), 0, inner.offset if inner else 0
    fields: dict[bytes, bytes] = {}  # of the extension headers before a header
    extended = False
    with tar.open("rb", buffering=0) as stream:
        end = inner.offset + inner.size if inner else stream.seek(0, 2)
        while header := _header(stream, position, end, archive, count):
            start, extends = position + BLOCK_BYTES, header.type in EXTENSIONS
            size = header.size if extends else int(fields.get(b"size", header.size))
            position = start + -(-size // BLOCK_BYTES) * BLOCK_BYTES
            if size < 0 or position > end:
                raise DataError(
                    f"{archive} is incomplete: member {count + 1}, {_shown(header)}, needs {size} bytes"
                )
            if not extends:
                member = _member(header, fields, names, start, size, archive)
                if member.name:
                    yield member
                count, fields, extended = count + 1, {}, False
                continue
            stream.seek(start)
            try:
                _add_fields(fields, header.type, stream.read(min(size, EXTENSION_BYTES + 1)))
            except ValueError as error:
                raise DataError(f"{archive}: the header before member {count + 1} {error}") from None
            extended |= header.type != tarfile.XGLTYPE
            names.portable &= fields.get(b"comment") != LOCAL_NAMES
        if extended:
            raise DataError(f"{archive} is incomplete: it ends before member {count + 1}")
        _check_end(stream, position, end, archive, count)
    if not count:
        raise DataError(f"{archive} holds no files")


def _header(stream: BinaryIO, position: int, end: int, archive: Path, count: int) -> tarfile.TarInfo | None:
    """The header at a position; None where the end of the archive is marked."""
    stream.seek(position)
    block = stream.read(min(BLOCK_BYTES, end - position))
    if len(block) < BLOCK_BYTES:
        raise DataError(f"{archive} is incomplete: no end is marked after {count} members")
    if block == bytes(BLOCK_BYTES):
        return None
    try:
        # Latin-1 keeps every byte; `Names` decodes them as UTF-8.
        return tarfile.TarInfo.frombuf(block, "latin-1", "strict")
    except (tarfile.HeaderError, ValueError, OverflowError) as error:
        raise DataError(
            f"{archive} is damaged: the header at byte {position}, after {count} members: {error}"
        ) from error


def _member(
    header: tarfile.TarInfo, fields: dict[bytes, bytes], names: Names, offset: int, size: int, archive: Path
) -> Member:
    """The member that a header, and the extension headers before it, describe."""
    sparse = any(key.startswith(b"GNU.sparse.") for key in fields)
    kind = "a sparse file" if sparse else REFUSED.get(header.type)
    if kind or header.type not in {tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE}:
        kind = kind or f"of the unknown type {header.type!r}"
        raise DataError(f"{archive}: member {_shown(header)} is refused: it is {kind}")
    folder = header.type == tarfile.DIRTYPE
    name = names.add(fields.get(b"path", header.name.encode("latin-1")), folder=folder)
    if folder and size:
        raise DataError(f"{archive}: member {name!r} is refused: it is a folder with content")
    return Member(name=name, offset=offset, size=size, folder=folder)


def _shown(header: tarfile.TarInfo) -> str:
    return repr(header.name.encode("latin-1").decode("utf-8", "backslashreplace"))


def _check_end(stream: BinaryIO, position: int, end: int, archive: Path, count: int) -> None:
    """Check that two blocks of zeros end an archive, followed only by zeros up to a whole block."""
    stream.seek(position)
    rest = 0
    while chunk := stream.read(min(files.CHUNK_BYTES, end - position - rest)):
        rest += len(chunk)
        if chunk.count(0) != len(chunk):
            raise DataError(f"{archive}: something follows the end that is marked after {count} members")
    if rest < len(END) or rest % BLOCK_BYTES:
        raise DataError(f"{archive} is incomplete: it ends within its end mark, after {count} members")


def _add_fields(fields: dict[bytes, bytes], kind: bytes, content: bytes) -> None:
    """Add the fields of a pax or GNU tar header; ValueError: the header is not valid."""
    if len(content) > EXTENSION_BYTES:
        raise ValueError(f"holds more than {EXTENSION_BYTES} bytes")
    long_name = kind == tarfile.GNUTYPE_LONGNAME
    for key, value in [(b"path", content.removesuffix(b"\0"))] if long_name else _pax_records(content):
        if key in {b"path", b"size"} and kind == tarfile.XGLTYPE:
            raise ValueError(f"gives all members one {key.decode()}")
        if key == b"path" and key in fields:
            raise ValueError("gives it two names")
        if key == b"size" and (key in fields or not re.fullmatch(rb"[0-9]{1,18}", value)):
            raise ValueError("is damaged")
        fields[key] = value


def _pax_records(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    position = 0
    while position < len(content):
        record = _PAX_RECORD.match(content, position)
        end = position + int(record[1]) if record else 0
        if not record or content[end - 1 : end] != b"\n" or end <= record.end():
            raise ValueError("is damaged")
        yield record[2], content[record.end() : end - 1]
        position = end


def decompressed(file: Path, compression: str) -> Iterator[bytes]:
    """Decompress joined streams in chunks of at most 1 MiB, to the file's end, where the checksums are."""
    decompressor, data = _decompressor(compression), b""
    with file.open("rb") as stream:
        while True:
            if decompressor.eof:
                data = decompressor.unused_data.lstrip(b"\0")
                # Zeros may follow, as they do on tapes; gzip(1) ignores them too.
                while not data and (padding := stream.read(files.CHUNK_BYTES)):
                    data = padding.lstrip(b"\0")
                if not data:
                    return
                decompressor = _decompressor(compression)
            else:
                data = stream.read(files.CHUNK_BYTES) if decompressor.needs_input else b""
            starved = decompressor.needs_input and not data
            try:
                content = decompressor.decompress(data, files.CHUNK_BYTES)
            except DAMAGED as error:
                raise DataError(f"{file} is damaged, at byte {stream.tell()} or before: {error}") from error
            if content:
                yield content
            elif starved and not decompressor.eof:
                raise DataError(f"{file} is incomplete: its {compression} stream has no end")


def _decompressor(compression: str) -> bz2.BZ2Decompressor | lzma.LZMADecompressor | IgzipDecompressor:
    if compression == "bzip2":
        return bz2.BZ2Decompressor()
    if compression == "xz":
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY_BYTES)
    return IgzipDecompressor(DECOMP_ZLIB if compression == "zlib" else DECOMP_GZIP)
