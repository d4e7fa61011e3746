"""A folder of published versions: `1`, `2`, ..., each whole, and a link `current` that leads to one of them.

It is laid out as TensorFlow Serving expects a model: it serves the version with the highest number.
"""

import errno
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perennial import files
from perennial.errors import ConfigError, DataError, QualityError
from perennial.runtime import locks

CURRENT = "current"
RECORD = Path("assets.extra") / "published.json"  # TensorFlow Serving leaves that folder of a version alone
MODEL = Path("assets.extra") / "model.json"  # what the model is, in an export
LIST = Path("assets.extra") / "files.json"  # the digest of each file of an export, when it was found to agree
WITHDRAWN = "withdrawn.json"  # the versions that were gone back from
LOCK = ".publish.lock"
NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS}  # what file systems without links answer
ADVICE = "nothing was changed; bring it back, or move it away"
VERSION = re.compile(r"[0-9]+")
LEFT = re.compile(r"\.([0-9]+|current|links|withdrawn\.json)\.tmp")


@dataclass(frozen=True)
class Published:
    """A version that `current` leads to."""

    version: int
    path: Path
    moved: bool  # whether it did not before


def require_sound(export: Path) -> dict[str, str]:
    """The SHA-256 of each file of an export, by its path there: those that the export stage listed.

    Raises:
        DataError: a file is missing, another one or none of the export's, or there is no list.
    """
    advice = f"nothing was published, {CURRENT} stays; `dvc repro export` makes or restores the export"
    file = export / LIST
    if not file.exists():
        raise DataError(f"{file} does not exist: {export} is damaged or of an earlier version; {advice}")
    found, listed = files.digests(export), _read(file, advice)
    listed[LIST.as_posix()] = found[LIST.as_posix()]
    for name in sorted(found.keys() | listed.keys()):
        if found.get(name) != listed.get(name):
            how = "is missing" if name not in found else "was changed" if name in listed else "was added"
            raise DataError(f"{export} is not what was exported: {name} {how}; {advice}")
    return found


def add(folder: Path, export: Path, wanted: Mapping[str, str], decision: Mapping[str, object]) -> Published:
    """Makes an export the current version: under the next number, unless the newest or current one holds it.

    `wanted` are the digests that `require_sound` gave; the decision is written beside them. A kill leaves
    `current` where it was or where it goes, and what it leaves besides is taken up or removed by the next call.

    Raises:
        ConfigError: the folder cannot hold the link.
        DataError: the copy is not what was to be copied.
        QualityError: it is a version that was gone back from.
        PerennialError: another process published all the time.
    """
    files.make_folder(folder)
    with _alone(folder):
        known, before = _versions(folder), _current(folder)
        if before in known and _held(folder / str(before)) == wanted:
            return _move(folder, before, before)
        for version in _withdrawn(folder) & set(known):
            if _model(folder / str(version)) == _model(export):
                raise QualityError(
                    f"{export} is version {version} of {folder}, which was gone back from; {CURRENT} stays "
                    f"{before}; `perennial publish --rollback {version}` makes it current all the same"
                )
        newest = max(known, default=0)
        # Its publish was killed before it moved the link.
        if newest and _held(folder / str(newest)) == wanted:
            return _move(folder, newest, before)
        # Never the number of one that was removed, though it was current or gone back from.
        version = max(0, before or 0, *_numbers(folder), *_withdrawn(folder)) + 1
        with files.new_folder(folder / str(version)) as new:
            _copy(export, new, wanted)
            record = {"version": version, "files": wanted, "decision": dict(decision)}
            files.write_json(new / RECORD, record)
        return _move(folder, version, before)


def roll_back(folder: Path, version: int | None) -> Published:
    """Moves `current` to a version, by default the one before; those above are not published again.

    Raises:
        DataError: there is no such version, or it is not what was published.
        PerennialError: another process published all the time.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} does not exist; nothing has been published there")
    with _alone(folder):
        known, before = _versions(folder), _current(folder)
        listed, withdrawn = f"{folder} has the versions {known}, {CURRENT} is {before}", _withdrawn(folder)
        if version is None:
            version = max(
                (each for each in known if each < (before or 0) and each not in withdrawn), default=None
            )
        if version not in known:
            named = "to go back to" if version is None else version
            raise DataError(f"there is no version {named}: {listed}; nothing was changed")
        path = folder / str(version)
        if _held(path) != _recorded(path):
            raise DataError(
                f"{path} is not what was published: its files are not those of {RECORD}; {listed}; "
                "nothing was changed; --rollback VERSION names another one"
            )
        # First: between the two, a publish would take the newest one up again.
        withdrawn = (withdrawn | {each for each in known if each > version}) - {version}
        files.write_json(folder / WITHDRAWN, {"versions": sorted(withdrawn)})
        return _move(folder, version, before)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Holds the folder's lock, removes what was left by processes that were killed, and requires links."""
    with (
        files.naming(folder),
        locks.held(folder / LOCK, "publish", busy=f"another process publishes to {folder}"),
    ):
        for left in (path for path in folder.iterdir() if LEFT.fullmatch(path.name)):
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        # Before anything is copied: servers may take up a version as soon as it is there.
        _require_links(folder)
        yield


def _require_links(folder: Path) -> None:
    link = folder / CURRENT
    if link.exists() and not link.is_symlink():
        raise ConfigError(f"{link} is no symbolic link, so it was not made by publish; move it away")
    probe = folder / ".links.tmp"
    try:
        probe.symlink_to("nowhere")
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        raise ConfigError(
            f"{folder} takes no symbolic link, which {CURRENT} has to be: {error.strerror}; "
            "nothing was published; choose a folder on another file system"
        ) from error
    probe.unlink()


def _numbers(folder: Path) -> set[int]:
    """What servers may take for versions."""
    return {int(path.name) for path in folder.iterdir() if VERSION.fullmatch(path.name)}


def _versions(folder: Path) -> list[int]:
    """The numbers of what was published, in rising order."""
    return sorted(each for each in _numbers(folder) if (folder / str(each) / RECORD).is_file())


def _current(folder: Path) -> int | None:
    """The version that `current` leads to; None where there is none."""
    try:
        target = str((folder / CURRENT).readlink())
    except FileNotFoundError:
        return None
    return int(target) if VERSION.fullmatch(target) else None


def _withdrawn(folder: Path) -> set[int]:
    """The versions that were gone back from."""
    file = folder / WITHDRAWN
    return set(_read(file, key="versions")) if file.exists() else set()


def _model(export: Path) -> Any:
    """What an export is, whatever its card and its further forms say; None where it does not tell."""
    file = export / MODEL
    return _read(file) if file.exists() else None


def _read(file: Path, advice: str = ADVICE, *, key: str | None = None) -> Any:
    """The object in a JSON file, or its value of a key."""
    try:
        value = files.read_json(file)
        return value if key is None else value[key]
    except (DataError, KeyError) as error:
        why = f"no {key}" if isinstance(error, KeyError) else error.__cause__ or "no JSON object"
        raise DataError(f"{file} cannot be read ({why}); {advice}") from error


def _copy(export: Path, new: Path, wanted: Mapping[str, str]) -> None:
    for name in wanted:
        (new / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(export / name, new / name)
    if files.digests(new) != wanted:
        raise DataError(
            f"{new} is not what {export} was before it was copied: it was changed meanwhile, or the "
            "disk is broken; nothing was published; run this again"
        )


def _recorded(version: Path) -> Any:
    """The digests of what was published as this version; None where publish did not make it."""
    file = version / RECORD
    return _read(file, key="files") if file.exists() else None


def _held(version: Path) -> dict[str, str]:
    """The digests of what a version holds now."""
    found = files.digests(version)
    found.pop(RECORD.as_posix(), None)
    return found


def _move(folder: Path, version: int, before: int | None) -> Published:
    if version != before:
        files.point(folder / CURRENT, str(version))
    return Published(version, folder / str(version), moved=version != before)
