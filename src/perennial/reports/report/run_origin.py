"""The origin of a run, and whether the files on disk match dvc.lock."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from perennial.base import documents, files
from perennial.base.dvc import dvc_digests, dvc_lock
from perennial.base.dvc.dvc_lock import Size
from perennial.base.errors import PerennialError
from perennial.base.project.git import Repository

PARAMS = "params.yaml"
MAX_HASHED_BYTES = 2 << 30  # larger outputs would take minutes
UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError)


@dataclass(frozen=True, kw_only=True)
class Output:
    """An output that was not verified against dvc.lock, or differs from it."""

    path: str
    state: Literal["missing", "differs", "size only"]  # size only: too large to hash, its size is as recorded


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """The origin of a run; None for unknown values."""

    revision: str | None
    # Tracked files of the project that differ from the revision's, except those that runs write.
    changed: tuple[str, ...] | None
    lock: str | None  # SHA-256 of dvc.lock
    lock_changed: bool | None  # whether dvc.lock differs from the revision's
    parameters: tuple[str, ...] | None  # keys of params.yaml that differ from those in dvc.lock
    outputs: tuple[Output, ...] | None  # those that are not verified to be as in dvc.lock

    @property
    def differing(self) -> tuple[Output, ...]:
        """Outputs that are missing or differ from dvc.lock."""
        return tuple(output for output in self.outputs or () if output.state != "size only")


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
        outputs=unverified_outputs(folder, stages),
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


def unverified_outputs(
    folder: Path, stages: Sequence[str], *, max_bytes: int = MAX_HASHED_BYTES
) -> tuple[Output, ...] | None:
    """Outputs of stages that are not verified to be as in dvc.lock; None without a valid dvc.lock."""
    try:
        locked = dvc_lock.here(folder)
        states = [
            (path, _state(folder / path, digest, locked[stage].sizes[path], max_bytes))
            for stage in stages
            for path, digest in locked[stage].outs.items()
        ]
    except UNREADABLE:
        return None
    return tuple(Output(path=path, state=state) for path, state in states if state)


def _state(path: Path, digest: str, size: Size, max_bytes: int) -> Any:
    if not path.exists():
        return "missing"
    found = dvc_digests.files_of(path)
    if Size(sum(file.stat().st_size for file in found.values()), len(found)) != size:
        return "differs"
    if size.bytes > max_bytes:
        return "size only"
    return None if dvc_digests.digest(path) == digest else "differs"


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
