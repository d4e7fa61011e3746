"""Atomic writes: a temporary file or folder beside the target, fsync, rename, fsync of the parent folder.

Temporary names are new and unpredictable, so nobody can put a link in the way. A writer locks what it writes;
what a killed one left is removed by a later write into the same folder.
"""

import fcntl
import functools
import hashlib
import json
import os
import pwd
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from perennial.base.errors import ConfigError, DataError

CHUNK_BYTES = 1 << 20
# They select another repository for git, or change how it reads paths.
GIT_VARIABLES = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_DIR", "GIT_GLOB_PATHSPECS", "GIT_GRAFT_FILE",
    "GIT_ICASE_PATHSPECS", "GIT_INDEX_FILE", "GIT_LITERAL_PATHSPECS", "GIT_NAMESPACE", "GIT_NOGLOB_PATHSPECS",
    "GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_QUARANTINE_PATH", "GIT_SHALLOW_FILE", "GIT_WORK_TREE",
)  # fmt: skip
MARK = ".perennial"  # in a folder that a command made
TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}\.tmp", re.DOTALL)  # names of `_beside`
NAME_BYTES = 150  # of the target's name in a temporary one; file systems allow 255 in all


def prepare_environment() -> None:
    """Set what the programs that this process starts need, and remove what would mislead them.

    DVC wants a name for a user without an entry in /etc/passwd, as in some containers. A hook of git names the
    repository that it runs for, which git and DVC would take for this project's.
    """
    for name in GIT_VARIABLES:
        os.environ.pop(name, None)
    named = ("LOGNAME", "USER", "LNAME", "USERNAME")  # where Python looks first
    if not any(os.environ.get(each) for each in named):
        try:
            pwd.getpwuid(os.getuid())
        except KeyError:
            os.environ["USER"] = f"uid-{os.getuid()}"


def home() -> Path:
    """The folder that the runs on this machine share: `PERENNIAL_HOME`, else `~/.perennial`."""
    named = os.environ.get("PERENNIAL_HOME")
    if named and not Path(named).is_absolute():
        raise ConfigError(f"PERENNIAL_HOME must be an absolute path, got {named}; nothing was started")
    try:
        return Path(named) if named else Path.home() / ".perennial"
    except RuntimeError as error:
        message = "this user has no home folder, and HOME is not set; set PERENNIAL_HOME to a folder for runs"
        raise ConfigError(message) from error


@contextmanager
def stderr_into(file: Path) -> Iterator[None]:
    """Redirect file descriptor 2, which native code writes to as well, into a file during the block."""
    if sys.stderr is None:  # closed
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    with file.open("wb") as stream:
        os.dup2(stream.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def mark(command: str) -> bytes:
    """The content of MARK. DVC's digest of an output counts it, and `perennial verify` computes that again."""
    return f"Made by `perennial {command}`, which replaces this folder.\n".encode()


def write_bytes(file: Path, content: bytes) -> None:
    """Write a file atomically; the old one stays until the new one is on the disk."""
    make_folder(file.parent)
    with new_file(file) as stream:
        stream.write(content)


@contextmanager
def new_file(file: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Yield a file to write, which replaces `file` when the block ends without an error.

    Without `durable`, a power cut may leave it empty: for scratch files, and in folders that are synced as a
    whole. A device or a pipe, such as /dev/stdout, is written as it is.
    """
    if _is_stream(file):
        with file.open("wb") as stream:
            yield stream
        return
    _remove_leftovers_once(file.parent.absolute())
    with naming(file):
        temporary, descriptor = _created(file, _new_file)
    try:
        # Opened by its name, which `stream.name` then is.
        with naming(file), open(temporary, "wb", opener=lambda *_: descriptor) as stream:
            yield stream
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
            temporary.replace(file)  # while it is locked
        if durable:  # without this a power cut can undo the rename
            sync(file.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _is_stream(file: Path) -> bool:
    """Whether it is a device, a pipe or the name of one of this process's files, which nothing can replace."""
    if (folder := file.parent.resolve()) == Path("/dev") or folder.is_relative_to("/proc"):
        return True
    return file.exists() and not file.is_file() and not file.is_dir()


def copy(source: Path, file: Path) -> None:
    """Copy a file atomically, of any size; the old one stays until the new one is on the disk."""
    make_folder(file.parent)
    with source.open("rb") as content, new_file(file) as stream:
        shutil.copyfileobj(content, stream)


def require_utf8(path: Path) -> None:
    """Check that a file name is UTF-8, as JSON, logs and DVC require."""
    try:
        path.name.encode()
    except UnicodeEncodeError:
        folder = os.fsencode(path.parent).decode("utf-8", "backslashreplace")
        raise DataError(f"{folder}: the file name {os.fsencode(path.name)!r} is not UTF-8; rename it") from None


def write_json(file: Path, value: object) -> None:
    """Write UTF-8 JSON with sorted keys and one trailing newline, so that equal values give equal bytes."""
    write_bytes(file, json_bytes(value))


def update_json(file: Path, value: object) -> bool:
    """Write JSON unless the file already has this content; returns whether it was written."""
    content = json_bytes(value)
    if file.is_file() and file.read_bytes() == content:
        return False
    write_bytes(file, content)
    return True


def json_bytes(value: object) -> bytes:
    """Format a value as the JSON that `write_json` writes; raises ValueError for NaN."""
    text = json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode()


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to fill, which replaces `folder` when the block ends without an error.

    Until then, and if the block raises, the old folder stays as it was. A kill between the two renames
    leaves it under a temporary name; the next call restores it first.
    """
    folder = folder.resolve()  # a symbolic link stays, and its target is replaced
    make_folder(folder.parent)
    _put_back(folder)
    _remove_leftovers(folder.parent)
    temporary, descriptor = _created(folder, _new_folder)
    try:
        yield temporary
        for path in sorted(temporary.rglob("*")):
            sync(path)
        sync(temporary)
        if folder.exists():
            folder.rename(folder.with_name(f".{folder.name}.{secrets.token_hex(8)}.old"))
        temporary.rename(folder)
        sync(folder.parent)
    finally:
        os.close(descriptor)
        shutil.rmtree(temporary, ignore_errors=True)
        _put_back(folder)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add a path to an OSError without one, since only `open` names the file."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:  # without errno it is a library's own error
            error.filename = str(path)
        raise


def digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file in a folder except its mark, by relative path, sorted."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / MARK)
    return {path.relative_to(folder).as_posix(): sha256(path) for path in found}


def point(link: Path, target: str) -> None:
    """Create or move a symbolic link atomically."""
    temporary = _beside(link)
    try:
        temporary.symlink_to(target)
        temporary.replace(link)
        sync(link.parent)
    finally:
        temporary.unlink(missing_ok=True)


def linked(file: Path, target: Path) -> bool:
    """Create a hard link with a new name; returns False if the file system has no hard links."""
    try:
        os.link(file, target)
    except OSError:
        return False
    return True


def sha256(file: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    with naming(file), file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def md5(file: Path) -> str:
    """The MD5 of a file's content, in hexadecimal, for DVC, S3 and Keras, which compare by it."""
    with naming(file), file.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _beside(path: Path) -> Path:
    """A new temporary name in the same folder, and so on the same file system."""
    name = os.fsdecode(os.fsencode(path.name)[:NAME_BYTES])
    return path.with_name(f".{name}.{secrets.token_hex(8)}.tmp")


def _created(target: Path, create: Callable[[Path], int]) -> tuple[Path, int]:
    """Create something beside the target and lock it; return its path and descriptor."""
    while True:
        descriptor = create(temporary := _beside(target))
        with suppress(OSError):  # a file system without locks, where nothing counts as left
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if temporary.exists():  # else another process took it for left before it was locked
            return temporary, descriptor
        os.close(descriptor)


def _new_file(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)


def _new_folder(path: Path) -> int:
    path.mkdir()
    return os.open(path, os.O_RDONLY)


def _remove_leftovers(folder: Path) -> None:
    """Remove temporary files and folders whose writers are dead."""
    for path in _named(folder, TEMPORARY):
        with suppress(OSError):  # still locked, a link, or of another user
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            finally:
                os.close(descriptor)


def _named(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    with suppress(OSError):  # there is no such folder, or it cannot be listed
        return [Path(each.path) for each in os.scandir(folder) if pattern.fullmatch(each.name)]
    return []


# Listing a folder with many files at every write would take longer than the writes.
_remove_leftovers_once = functools.cache(_remove_leftovers)


def _put_back(folder: Path) -> None:
    """Restore the old folder if there is no new one, else remove it."""
    name = re.compile(rf"\.{re.escape(folder.name)}\.[0-9a-f]{{16}}\.old")
    for old in _named(folder.parent, name):
        if not folder.exists():
            old.rename(folder)
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def plainly_named(folder: Path) -> Iterator[Path]:
    """Yield a symbolic link with a plain name to a folder, since TensorFlow treats paths as glob patterns."""
    with tempfile.TemporaryDirectory(prefix="perennial-") as plain:
        link = Path(plain, "folder")
        link.symlink_to(folder.resolve())
        yield link


def make_folder(folder: Path) -> None:
    """Create a folder and its parents durably."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def sync(path: Path) -> None:
    """Flush a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Wait for the lock of a folder, and hold it while the block runs; it leaves no file."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
