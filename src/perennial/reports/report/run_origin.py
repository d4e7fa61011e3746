"""The origin of a run: its revision, what differs from it, and whether params.yaml is that of dvc.lock."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perennial.base import documents, files
from perennial.base.dvc import dvc_lock
from perennial.base.errors import PerennialError
from perennial.base.project.git import Repository
from perennial.base.project.stage_table import STAGES

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


def provenance(written: Sequence[Path]) -> Provenance:
    """Provenance of the project here; `written`: the tracked files that runs write, such as dvc.lock."""
    git = Repository(Path(), {"GIT_OPTIONAL_LOCKS": "0"})
    try:
        revision = git.ask("rev-parse", "HEAD")
        # The project may be a subfolder of a repository, whose other files do not belong to it.
        differing = git.ask("diff", "--name-only", "--no-renames", "--relative", "-z", "HEAD")
    except PerennialError:  # without git
        revision = differing = None
    changed = None if differing is None else tuple(filter(None, differing.split("\0")))
    by_runs = {file.as_posix() for file in written}
    return Provenance(
        revision=revision,
        changed=None if changed is None else tuple(file for file in changed if file not in by_runs),
        lock=files.sha256(dvc_lock.FILE) if dvc_lock.FILE.is_file() else None,
        lock_changed=None if changed is None else dvc_lock.FILE.as_posix() in changed,
        parameters=changed_parameters(),
    )


def changed_parameters() -> tuple[str, ...] | None:
    """Keys of params.yaml whose values differ from dvc.lock's; None without a valid dvc.lock."""
    try:
        now = documents.parse_yaml(Path(PARAMS).read_text(encoding="utf-8"))
        locked = dvc_lock.sections(dvc_lock.FILE.read_text(encoding="utf-8"))
        recorded = [locked[stage].get("params", {}) for stage in STAGES]
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
