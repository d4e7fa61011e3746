"""What an upgrade does to the files of a project, merged three-way as git does, and which stages run again.

These are found without running DVC.
"""

import posixpath
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from perennial.base import documents
from perennial.base.dvc import dvc_lock
from perennial.base.errors import PerennialError
from perennial.base.layout import PARAMS, STAGES
from perennial.base.project.git import Repository
from perennial.base.stage_state.stage_inputs import REFERENCE

What = Literal["added", "updated", "merged", "removed", "kept", "conflict"]
MOST_CONFLICTS = 127  # exit codes of `git merge-file` up to here count conflicts
Contents = Mapping[str, bytes]
Read = Callable[[str], bytes | None]  # gives the content of a file by its path from the project's root


@dataclass(frozen=True, kw_only=True)
class Change:
    """What an upgrade does with a file of a project."""

    path: str
    what: What
    content: bytes | None = None  # to be written; None: nothing is, or the file is removed
    why: str = ""

    def __str__(self) -> str:
        return f"{self.what:<9} {self.path}{f': {self.why}' if self.why else ''}"


def merged(base: Contents, ours: Contents, theirs: Contents, version: str) -> list[Change]:
    """What becomes of each file that the two versions of a template differ in, or that a project has changed.

    base: the files of the version that the project has. ours: its own. theirs: those of the new version.
    """
    found = []
    for path in sorted(base.keys() | theirs.keys()):
        change = _of_file(path, base.get(path), ours.get(path), theirs.get(path), version)
        if change:
            found.append(change)
    return found


def _of_file(
    path: str, base: bytes | None, ours: bytes | None, theirs: bytes | None, version: str
) -> Change | None:
    if ours is None:
        return _deleted(path, base, theirs, version)
    if theirs is None:
        return _dropped(path, base, ours, version)
    if theirs in (ours, base):  # perhaps the owner changed it
        return None
    if base == ours:
        return Change(path=path, what="updated", content=theirs)
    content, conflicts = _marked(ours, base or b"", theirs, version)
    if base is None:
        why = f"it is new in {version}, and this project has a file of its own there"
    elif conflicts:
        why = f"{conflicts} place{'s' if conflicts > 1 else ''} that this project and {version} changed"
    else:
        return Change(path=path, what="merged", content=content)
    return Change(path=path, what="conflict", content=content, why=why)


def _deleted(path: str, base: bytes | None, theirs: bytes | None, version: str) -> Change | None:
    if theirs is None:
        return None
    if base is None:
        return Change(path=path, what="added", content=theirs)
    if base == theirs:
        return Change(path=path, what="kept", why=f"deleted here, and unchanged in {version}; it stays deleted")
    why = f"deleted here, but changed in {version}; delete it again if you do not need the change"
    return Change(path=path, what="added", content=theirs, why=why)


def _dropped(path: str, base: bytes | None, ours: bytes, version: str) -> Change | None:
    if base == ours:
        return Change(path=path, what="removed", why=f"{version} has no such file")
    return Change(path=path, what="kept", why=f"{version} has no such file; yours has changes of your own")


def _marked(ours: bytes, base: bytes, theirs: bytes, version: str) -> tuple[bytes, int]:
    """The merged content, with markers at conflicts, and their number."""
    with tempfile.TemporaryDirectory(prefix="perennial-") as folder:
        names = {"ours": ours, "base": base, "theirs": theirs}
        for name, content in names.items():
            Path(folder, name).write_bytes(content)
        labels = ("-L", "this project", "-L", "the version before", "-L", f"perennial {version}")
        done = Repository(Path(folder)).call("merge-file", "--diff3", "-p", *labels, *names)
    if not 0 <= done.code <= MOST_CONFLICTS:
        if b"\0" in ours + theirs:
            return ours, 1  # a binary file
        raise PerennialError(f"git merge-file: {done.last_lines()}; nothing was changed")
    return done.stdout, done.code


def run_again(before: Read, after: Read, folder: str = "") -> list[str]:
    """The stages of the pipeline in `folder` that other contents of files make stale, in order."""
    old, new = _stages(before, folder), _stages(after, folder)
    found = {name for name, stage in new.items() if stage != old.get(name)}
    while True:
        made = [out for name in found for out in new[name]["outs"]]
        more = {
            name for name, stage in new.items() if any(_below(read, made) for read in stage["reads"])
        } - found
        if not more:
            return [name for name in new if name in found]
        found |= more


def _stages(read: Read, folder: str) -> dict[str, dict[str, Any]]:
    """What DVC compares of each stage of a pipeline."""
    values = _yaml(read(posixpath.join(folder, PARAMS)))
    stages = _yaml(read(posixpath.join(folder, STAGES))).get("stages") or {}
    return {name: _stage(stage, values, read, folder) for name, stage in stages.items()}


def _stage(stage: Mapping[str, Any], values: Mapping[str, Any], read: Read, folder: str) -> dict[str, Any]:
    def resolved(text: object) -> str:
        return REFERENCE.sub(lambda key: str(dvc_lock.value_at(values, key[1])), str(text))

    outs = [
        resolved(next(iter(each)) if isinstance(each, Mapping) else each)
        for kind in ("outs", "metrics", "plots")
        for each in stage.get(kind) or []
    ]
    deps = sorted(map(resolved, stage.get("deps") or []))
    params: dict[str, Any] = {}
    for each in stage.get("params") or []:
        for name, keys in (each if isinstance(each, Mapping) else {PARAMS: [each]}).items():
            file = resolved(name)
            content = (
                values if file == PARAMS else _yaml(read(posixpath.normpath(posixpath.join(folder, file))))
            )
            chosen = content if not keys else {key: dvc_lock.value_at(content, key) for key in keys}
            params[file] = {**params.get(file, {}), **chosen}
    return {
        "command": stage.get("cmd"),
        "deps": deps,
        "outs": sorted(outs),
        "params": params,
        "reads": sorted({*deps, *params}),
    }


def _below(path: str, made: list[str]) -> bool:
    return any(path == out or path.startswith(f"{out}/") for out in made)


def _yaml(content: bytes | None) -> dict[str, Any]:
    try:
        return documents.yaml_object(content or b"")
    except ValueError:  # results of stages, or conflicts
        return {}
