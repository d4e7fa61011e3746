"""Whether a file is the one that was wanted, and what it looks like where it is not."""

import gzip
import hashlib
import zlib
from pathlib import Path

from perennial import files
from perennial.downloads.wanted import Wanted
from perennial.errors import PerennialError

# A real file of images unpacks to a few times its size; a bomb to a thousand times.
UNPACKED_TIMES = 200
GZIP_MAGIC = b"\x1f\x8b"
SHOWN_BYTES = 24


def at_hand(file: Path, wanted: Wanted) -> bool:
    """Whether the file is there already, with the digest that is wanted."""
    return wanted.sha256 is not None and _is_there(file) and wrong(file, wanted) is None


def wrong(file: Path, wanted: Wanted) -> str | None:
    """What is wrong with a file: size, digest, kind; None for the right one.

    Raises:
        PerennialError: it cannot be read.
    """
    try:
        size, found = file.stat().st_size, files.sha256(file)
        if wanted.sha256 is None or found == wanted.sha256:
            return None
        if wanted.content_sha256 and _content_sha256(file, wanted) == wanted.content_sha256:
            return None
        kind = looks_like(file)
    except OSError as error:
        raise PerennialError(f"{file.absolute()}: {error.strerror}; it cannot be read") from error
    sizes = f"; {size:,} bytes, expected {wanted.bytes:,}" if wanted.bytes not in {None, size} else ""
    return f"sha256 {found}, expected {wanted.sha256}{sizes}{kind}"


def _is_there(file: Path) -> bool:
    try:
        if file.is_dir():
            raise PerennialError(f"{file.absolute()} is a folder where a file should be; move it away")
        return file.exists()
    except OSError as error:
        raise PerennialError(f"{file.absolute()}: {error.strerror}") from error


def _content_sha256(file: Path, wanted: Wanted) -> str | None:
    """The SHA-256 of what a gzip file holds; None for no whole gzip file and for a bomb."""
    digest, size = hashlib.sha256(), 0
    most = UNPACKED_TIMES * (wanted.bytes or 0)
    try:
        with gzip.open(file) as stream:
            while chunk := stream.read(files.CHUNK_BYTES):
                digest.update(chunk)
                size += len(chunk)
                if size > most:
                    return None
    except (EOFError, gzip.BadGzipFile, zlib.error):
        return None
    return digest.hexdigest()


def is_page(file: Path) -> bool:
    """Whether a file begins like the HTML, XML or JSON that tells what went wrong."""
    with file.open("rb") as stream:
        return stream.read(512).lstrip()[:1] in {b"<", b"{"}


def looks_like(file: Path) -> str:
    """What the first bytes tell of a wrong file. Explains only: the digest decided."""
    with file.open("rb") as stream:
        start = stream.read(512).lstrip()
    should_be_gzip = any(end in file.name for end in (".gz", ".tgz"))
    if not is_page(file) and (not should_be_gzip or start.startswith(GZIP_MAGIC)):
        return ""
    shown = start[:SHOWN_BYTES].decode("ascii", "backslashreplace")
    return f"; {'not gzip, ' if should_be_gzip else ''}starts with {shown!r}"
