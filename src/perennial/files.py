"""Atomic writes: a temporary file or folder beside the target, fsync, rename, fsync of the parent folder."""

import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from perennial.errors import ConfigError, DataError

CHUNK_BYTES = 1 << 20
MARK = ".perennial"  # in a folder that a stage made


class JsonFile(BaseModel):
    """Base of the schemas of JSON files that a stage reads; unknown keys are kept as they are."""

    model_config = ConfigDict(frozen=True, strict=True, extra="allow", allow_inf_nan=False)


Schema = TypeVar("Schema", bound=JsonFile)


def home() -> Path:
    """The folder that the runs on this machine share: `PERENNIAL_HOME`, else `~/.perennial`.

    Raises:
        ConfigError: the user has no home folder, as in some containers, and PERENNIAL_HOME is not set.
    """
    try:
        return Path(os.environ.get("PERENNIAL_HOME") or Path.home() / ".perennial").absolute()
    except RuntimeError as error:
        message = "this user has no home folder, and HOME is not set; set PERENNIAL_HOME to a folder for runs"
        raise ConfigError(message) from error


def write_bytes(file: Path, content: bytes) -> None:
    """Write a file atomically; the old one stays until the new one is on the disk."""
    make_folder(file.parent)
    with new_file(file) as stream:
        stream.write(content)


@contextmanager
def new_file(file: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Yield a file to write, which replaces `file` when the block ends without an error.

    Without `durable`, a power cut may leave it empty: for scratch files, and in folders that are synced as a
    whole.
    """
    temporary = _beside(file)
    try:
        with naming(file), temporary.open("wb") as stream:
            yield stream
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        temporary.replace(file)
        if durable:  # without this a power cut can undo the rename
            sync(file.parent)
    finally:
        temporary.unlink(missing_ok=True)


def copy(source: Path, file: Path) -> None:
    """Copy a file atomically, of any size; the old one stays until the new one is on the disk."""
    make_folder(file.parent)
    with source.open("rb") as content, new_file(file) as stream:
        shutil.copyfileobj(content, stream, CHUNK_BYTES)


def require_utf8(path: Path) -> None:
    """Check that a file name is UTF-8, as JSON, logs and DVC require.

    Raises:
        DataError: the name is not UTF-8.
    """
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


def flattened(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Flatten nested mappings to full keys, such as `train.epochs`."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        inner = isinstance(value, Mapping) and value  # an empty one is a value
        found |= flattened(value, f"{above}{key}.") if inner else {f"{above}{key}": value}
    return found


def read_json(file: Path) -> Any:
    """The object in a JSON file.

    Raises:
        DataError: the file does not exist or holds no JSON object.
    """
    try:
        return _json_object(file.read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read: {error}; `dvc repro` makes or restores it") from error


def json_object(text: str | bytes) -> dict[str, Any]:
    """Parse a JSON object from another program's output; empty if it is not one."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def parse_yaml(text: str | bytes) -> Any:
    """Parse YAML 1.2, the dialect that DVC reads.

    Raises:
        ValueError: it is not valid.
    """
    try:
        return YAML(typ="safe").load(text)
    except (RecursionError, YAMLError) as error:
        raise ValueError(str(error)) from error


def yaml_object(text: str | bytes) -> dict[str, Any]:
    """Parse a YAML 1.2 mapping; empty if it is another value. Raises the errors of `parse_yaml`."""
    found = parse_yaml(text)
    return found if isinstance(found, dict) else {}


def _json_object(content: bytes) -> dict[str, Any]:
    value = json.loads(content.decode(), parse_float=_finite, parse_constant=_finite)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - as for other JSON that is not expected
    return value


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text} is not a finite number")
    return value


def read_checked(file: Path, schema: type[Schema], advice: str) -> Schema:
    """Read a JSON file and check it against a schema.

    Raises:
        DataError: it is missing, not JSON, or lacks a key or has a value of another type; names file and key
            and ends with the advice.
    """
    if not file.exists():
        raise DataError(f"{file} does not exist; {advice}")
    try:
        content = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file} cannot be read ({error}); {advice}") from error
    return parse_checked(content, str(file), schema, advice)


def parse_checked(content: bytes, name: str, schema: type[Schema], advice: str) -> Schema:
    """Check the JSON in bytes against a schema; raises DataError as `read_checked` does, with this name."""
    try:
        return schema.model_validate(_json_object(content))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        if first["type"] == "missing":
            raise DataError(f"{name} has no {key}; {advice}") from error
        got = f"{first['input']!r:.80}"
        raise DataError(f"{name} has {got} as {key}: {first['msg'].lower()}; {advice}") from error
    except ValueError as error:
        raise DataError(f"{name} cannot be read ({error}); {advice}") from error


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to fill, which replaces `folder` when the block ends without an error.

    Until then, and if the block raises, the old folder stays as it was. A kill between the two renames
    leaves it as `.NAME.old`; the next call restores it first.
    """
    folder = folder.resolve()  # a symbolic link stays, and its target is replaced
    make_folder(folder.parent)
    temporary, old = _beside(folder), _beside(folder, "old")
    _put_back(old, folder)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        for path in sorted(temporary.rglob("*")):
            sync(path)
        sync(temporary)
        if folder.exists():
            folder.rename(old)
        temporary.rename(folder)
        sync(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        _put_back(old, folder)


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
        # Left by a killed process.
        temporary.unlink(missing_ok=True)
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


def _beside(path: Path, kind: str = "tmp") -> Path:
    """A temporary name in the same folder, and so on the same file system."""
    return path.with_name(f".{path.name}.{kind}")


def _put_back(old: Path, folder: Path) -> None:
    """Restore the old folder if there is no new one, else remove it."""
    if old.exists() and not folder.exists():
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
