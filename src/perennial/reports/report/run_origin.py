"""The origin of a run: its revision, what differs from it, and whether params.yaml is that of dvc.lock."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perennial.base import documents, files
from perennial.base.dvc import dvc_lock
from perennial.base.errors import PerennialError
from perennial.base.project.git import Repository

PARAMS = "params.yaml"
UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError)


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """The origin of a run; None for unknown values."""

    revision: str | None
    # Tracked files of the project that differ from the revision's, except those that runs write.
    changed: tuple[str, ...] | None
    lock: str | None  # SHA-256 of dvc.lock
    lock_changed: bool | None  # whether dvc.lock differs from the revision's
    parameters: tuple[str, ...] | None  # keys of params.yaml that differ from those in dvc.lock


def provenance(folder: Path, stages: Sequence[str], written: Sequence[Path] = ()) -> Provenance:
    """Provenance of the project in `folder`; `written`: the tracked files that runs write, such as dvc.lock."""
    # The project may be a subfolder of a repository, whose other files do not belong to it.
    differing = _git(folder, "diff", "--name-only", "--no-renames", "--relative", "-z", "HEAD")
    changed = None if differing is None else tuple(filter(None, differing.split("\0")))
    by_runs = {file.as_posix() for file in written}
    return Provenance(
        revision=_git(folder, "rev-parse", "HEAD"),
        changed=None if changed is None else tuple(file for file in changed if file not in by_runs),
        lock=files.sha256(folder / dvc_lock.FILE) if (folder / dvc_lock.FILE).is_file() else None,
        lock_changed=None if changed is None else dvc_lock.FILE.as_posix() in changed,
        parameters=changed_parameters(folder, stages),
    )


def changed_parameters(folder: Path, stages: Sequence[str]) -> tuple[str, ...] | None:
    """Keys of params.yaml whose values differ from dvc.lock's; None without a valid dvc.lock."""
    try:
        now = documents.parse_yaml((folder / PARAMS).read_text(encoding="utf-8"))
        locked = dvc_lock.sections((folder / dvc_lock.FILE).read_text(encoding="utf-8"))
        recorded = [locked[stage].get("params", {}) for stage in stages]
        keys = {
            name
            for each in recorded
            for section, then in each.get(PARAMS, {}).items()
            for name in _differing(then, dvc_lock.value_at(now, section), section)
        }
    except UNREADABLE:
        return None
    return tuple(sorted(keys))


def _differing(then: object, now: object, name: str) -> Iterator[str]:
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        for key in then.keys() | now.keys():
            yield from _differing(then.get(key), now.get(key), f"{name}.{key}")
    elif then != now:
        yield name


def _git(folder: Path, *arguments: str) -> str | None:
    """Git's output; None without git, a checkout or a commit."""
    try:
        return Repository(folder, {"GIT_OPTIONAL_LOCKS": "0"}).ask(*arguments)
    except PerennialError:
        return None
