"""What an upgrade does to the files of a project, merged three-way as git does, and which stages run again.

These are found without running DVC.
"""

import posixpath
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from perennial.base import documents
from perennial.base.dvc import dvc_lock
from perennial.base.dvc.dvc_lock import LockedStage
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


def run_again(before: Read, after: Read, folder: str) -> list[str]:
    """The stages of the pipeline in `folder` that other contents of files make stale, in order."""
    old, new = _stages(before, folder), _stages(after, folder)
    makers = {out: name for name, stage in new.items() for out in stage.outs}
    found = {name for name, stage in new.items() if stage != old.get(name)}
    for name in dvc_lock.ordered(new):
        read = {*new[name].deps, *(file for file, _ in new[name].params)}
        if not found.isdisjoint(dvc_lock.maker_of(path, makers) for path in read):
            found.add(name)
    return [name for name in new if name in found]


def _stages(read: Read, folder: str) -> dict[str, LockedStage]:
    """What DVC compares of each stage of a pipeline, without digests."""

    def content(name: str) -> dict[str, Any]:
        try:
            return documents.yaml_object(read(posixpath.normpath(posixpath.join(folder, name))) or b"")
        except ValueError:  # results of stages, or conflicts
            return {}

    values = content(PARAMS)

    def resolved(listed: object) -> str:
        name = next(iter(listed)) if isinstance(listed, Mapping) else listed
        return REFERENCE.sub(lambda key: str(dvc_lock.value_at(values, key[1])), str(name))

    def params(listed: Iterable[Any]) -> Iterator[tuple[tuple[str, str], object]]:
        for each in listed:
            for name, keys in (each if isinstance(each, Mapping) else {PARAMS: [each]}).items():
                file = resolved(name)
                found = values if file == PARAMS else content(file)
                for key in keys or [""]:  # else the whole file is one
                    yield (file, key), dvc_lock.value_at(found, key) if key else found

    return {
        name: LockedStage(
            command=str(stage.get("cmd")),
            deps=dict.fromkeys(map(resolved, stage.get("deps") or []), ""),
            params=dict(params(stage.get("params") or [])),
            outs={
                resolved(each): "" for kind in ("outs", "metrics", "plots") for each in stage.get(kind) or []
            },
        )
        for name, stage in (content(STAGES).get("stages") or {}).items()
    }
