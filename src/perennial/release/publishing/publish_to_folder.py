"""Publishing to a folder: versions `1`, `2`, ..., each complete, and a link `current` to one of them.

The folder is laid out as TensorFlow Serving expects a model: it serves the version with the highest number.
"""

import errno
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perennial.base import documents, files
from perennial.base.documents import JsonFile
from perennial.base.errors import ConfigError, DataError
from perennial.base.processes import locks
from perennial.model.export_layout import DESCRIPTION
from perennial.release.publishing import version_layout as layout

ROLLED_BACK = "rolled_back.json"
LOCK = ".publish.lock"
NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS}  # on file systems without symbolic links
NUMBER = re.compile(r"[0-9]+")
LEFTOVER = re.compile(r"\.([0-9]+|current|links|rolled_back\.json)(\.[0-9a-f]{16})?\.tmp")


class RolledBack(JsonFile):
    """The versions that were rolled back."""

    versions: list[int]


def add(place: str, allowed: layout.AllowedExport) -> layout.Published:
    """Publish an export as the current version, with the next number unless the current one is equal.

    A kill leaves `current` at the old or the new version, and the next call with the same export completes it.
    """
    folder = Path(place)
    export, digests = allowed.export, allowed.digests
    files.make_folder(folder)
    with _locked(folder):
        versions, before = _versions(folder), _current(folder)
        if before in versions and layout.of_export(files.digests(folder / str(before))) == digests:
            return _move(folder, before, before)
        for version in _rolled_back(folder) & set(versions):
            if _description(folder / str(version)) == _description(export):
                raise layout.rolled_back_refusal(export, version, str(folder), before)
        newest = max(versions, default=0)
        # A publish that was killed before it moved the link.
        if newest and layout.of_export(files.digests(folder / str(newest))) == digests:
            return _move(folder, newest, before)
        # Never reuse the number of a removed version that was current or rolled back.
        version = max(0, before or 0, *_numbers(folder), *_rolled_back(folder)) + 1
        with files.new_folder(folder / str(version)) as new:
            _copy(export, new, digests)
            files.write_bytes(new / layout.PROVENANCE, allowed.provenance)
            files.write_bytes(new / layout.RECORD, allowed.record(version))
            _make_readable(new, folder)
        return _move(folder, version, before)


def roll_back(place: str, version: int | None) -> layout.Published:
    """Move `current` to a version, by default the previous one; later ones are not published again."""
    folder = Path(place)
    if not folder.is_dir():
        raise DataError(f"{folder} does not exist; nothing has been published there")
    with _locked(folder):
        before = _current(folder)
        history = layout.PublishedVersions(str(folder), _versions(folder), before, _rolled_back(folder))
        version = history.target(version)
        path = folder / str(version)
        record = documents.read_checked(path / layout.RECORD, layout.VersionRecord, layout.UNCHANGED)
        found = files.digests(path)
        found.pop(layout.RECORD.as_posix(), None)
        if found != record.all_files:
            raise DataError(
                f"{path} is not what was published: its files differ from {layout.RECORD}; {history}; "
                "nothing was changed; --rollback VERSION names another one"
            )
        # Write this first: a publish in between would otherwise make the newest version current again.
        files.write_json(folder / ROLLED_BACK, {"versions": history.rolled_back_to(version)})
        return _move(folder, version, before)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, remove leftovers of killed processes, and require symbolic links."""
    with (
        files.naming(folder),
        locks.held(folder / LOCK, "publish", busy=f"another process publishes to {folder}"),
    ):
        for path in (each for each in folder.iterdir() if LEFTOVER.fullmatch(each.name)):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        # Check this before copying: servers may load a version as soon as it exists.
        _require_links(folder)
        yield


def _require_links(folder: Path) -> None:
    link = folder / layout.CURRENT
    if link.exists() and not link.is_symlink():
        raise ConfigError(f"{link} is not a symbolic link, so publish did not make it; move it away")
    probe = folder / ".links.tmp"
    try:
        probe.symlink_to("nowhere")
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        raise ConfigError(
            f"{folder} does not support symbolic links, which {layout.CURRENT} has to be: {error.strerror}; "
            "nothing was published; choose a folder on another file system"
        ) from error
    probe.unlink()


def _numbers(folder: Path) -> set[int]:
    """All folder numbers that a server may take for a version."""
    return {int(path.name) for path in folder.iterdir() if NUMBER.fullmatch(path.name)}


def _versions(folder: Path) -> list[int]:
    """The published versions in ascending order."""
    return sorted(each for each in _numbers(folder) if (folder / str(each) / layout.RECORD).is_file())


def _current(folder: Path) -> int | None:
    """The version that `current` points to, if any."""
    try:
        target = str((folder / layout.CURRENT).readlink())
    except FileNotFoundError:
        return None
    return int(target) if NUMBER.fullmatch(target) else None


def _rolled_back(folder: Path) -> set[int]:
    file = folder / ROLLED_BACK
    return set(documents.read_checked(file, RolledBack, layout.UNCHANGED).versions) if file.exists() else set()


def _description(export: Path) -> Any:
    """The description of an export's model, without its card and other formats."""
    file = export / DESCRIPTION
    return documents.read_checked(file, JsonFile, layout.UNCHANGED) if file.exists() else None


def _copy(export: Path, new: Path, digests: Mapping[str, str]) -> None:
    for name in digests:
        (new / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(export / name, new / name)
    if files.digests(new) != digests:
        raise DataError(
            f"{new} differs from {export} before the copy: the export was changed meanwhile, or the disk is "
            "faulty; nothing was published; run this again"
        )


def _make_readable(new: Path, folder: Path) -> None:
    """Let those read a version who may list the folder of versions, whatever the umask."""
    allowed = folder.stat().st_mode
    for path in (new, *new.rglob("*")):
        more = allowed & (0o055 if path.is_dir() else 0o044)
        path.chmod(path.stat().st_mode & 0o7777 | more)


def _move(folder: Path, version: int, before: int | None) -> layout.Published:
    if version != before:
        files.point(folder / layout.CURRENT, str(version))
    return layout.Published(version, str(folder / str(version)), moved=version != before)
