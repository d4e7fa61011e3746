"""The one way to write: temporary beside the target, fsync, rename, fsync of the folder."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perennial.errors import DataError

CHUNK_BYTES = 1 << 20
MARK = ".perennial"  # in a folder that a stage made


def write_bytes(file: Path, content: bytes) -> None:
    """Writes a file whole or not at all; an old one stays until the new one is on the disk."""
    make_folder(file.parent)
    temporary = _beside(file)
    try:
        with naming(file), temporary.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)
        # Without this a power cut can undo the rename.
        _sync_folder(file.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(file: Path, value: object) -> None:
    """Writes UTF-8 JSON with sorted keys and one trailing newline, so that equal values are equal bytes."""
    write_bytes(file, json_bytes(value))


def json_bytes(value: object) -> bytes:
    """A value as the JSON that `write_json` writes; NaN is refused (ValueError)."""
    text = json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode()


def read_json(file: Path) -> Any:
    """The object in a JSON file.

    Raises:
        DataError: there is no such file, or it holds no JSON object.
    """
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read: {error}; `dvc repro` makes or restores it") from error
    if not isinstance(value, dict):
        raise DataError(f"{file} holds no JSON object; `dvc repro` makes or restores it")
    return value


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Gives an empty folder to fill, which takes the place of `folder` when the block ends well.

    Until then, and for ever when the block raises, the old folder stays as it was. A kill between
    the two renames leaves it as `.NAME.old`, and the next call puts it back first.
    """
    folder = folder.resolve()  # a link stays one, and what it leads to is replaced
    make_folder(folder.parent)
    temporary, old = _beside(folder), _beside(folder, "old")
    _put_back(old, folder)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        for path in sorted(temporary.rglob("*")):
            _sync_folder(path) if path.is_dir() else _sync_file(path)
        _sync_folder(temporary)
        if folder.exists():
            folder.rename(old)
        temporary.rename(folder)
        _sync_folder(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        _put_back(old, folder)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Lets what the system refuses in the block name this path, unless it names one: only opening does."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:  # a library's own has a text alone
            error.filename = str(path)
        raise


def digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file under a folder but its mark, by its path there, in sorted order."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / MARK)
    return {path.relative_to(folder).as_posix(): sha256(path) for path in found}


def point(link: Path, target: str) -> None:
    """Makes a symbolic link or moves one, so that at every moment it leads to the old or the new target."""
    temporary = _beside(link)
    try:
        # Left by a killed process; a link cannot be made over it.
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(target)
        temporary.replace(link)
        _sync_folder(link.parent)
    finally:
        temporary.unlink(missing_ok=True)


def linked(file: Path, target: Path) -> bool:
    """Gives a file a second name, which must be free; False where the file system does not."""
    try:
        os.link(file, target)
    except OSError:
        return False
    return True


def sha256(file: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    with naming(file), file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _beside(path: Path, kind: str = "tmp") -> Path:
    """A name in the same folder, so that the rename stays within one file system."""
    return path.with_name(f".{path.name}.{kind}")


def _put_back(old: Path, folder: Path) -> None:
    """Ends an exchange of folders: the old one returns where no new one stands, else it goes."""
    if old.exists() and not folder.exists():
        old.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def plainly_named(folder: Path) -> Iterator[Path]:
    """A folder under a path that TensorFlow, which reads paths as patterns, does not misread."""
    with tempfile.TemporaryDirectory(prefix="perennial-") as plain:
        link = Path(plain, "folder")
        link.symlink_to(folder.resolve())
        yield link


def make_folder(folder: Path) -> None:
    """Makes a folder and those above it, so that a power cut takes none of them back."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)


def _sync_file(file: Path) -> None:
    with naming(file), file.open("rb") as stream:
        os.fsync(stream.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with naming(folder):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
