"""Inputs of a rebuild: the checkout's, your own files, and originals from DVC's remote."""

import hashlib
import logging
import posixpath
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path, PurePosixPath

from perennial.base import files
from perennial.base.dvc import dvc_digests
from perennial.base.dvc.dvc_lock import LockedStage, value_at
from perennial.base.errors import ConfigError
from perennial.base.layout import Project
from perennial.base.project import code_digests
from perennial.base.project.git import GitError, Repository
from perennial.base.project.stage_table import STAGES
from perennial.reproduce.rebuild.stage_differences import Difference, lists_packages
from perennial.reproduce.rebuild.workspace import DvcFailed, Workspace, yaml_values

SHOWN = 5
DIGITS = 10  # of a digest
BLOB = "blob"  # git's name of a file's content
log = logging.getLogger(__name__)
# Stages that read data from outside git and other stages' outputs; DVC's remote has copies of the data.
FETCHED = {name: stage.fetches for name, stage in STAGES.items() if stage.fetches}
PLACES = ("dataset.path", "model.weights", "train.warm_start.path")  # keys with paths of your own files


class PathHistory:
    """The contents of tracked paths at earlier commits."""

    def __init__(self, repository: Repository) -> None:
        self._repository, self._here = repository, repository.run("rev-parse", "--show-prefix")
        self._objects = cache(repository.tree)
        self._digest_of = cache(self._digest_of_object)

    def between(self, before: str, after: str, path: str) -> str:
        """The files and line counts that differ at a path between two commits; empty if nothing differs."""
        rows = self._repository.run("diff", "--numstat", "--no-renames", "-z", before, after, "--", path)
        changed = [row.split("\t") for row in rows.split("\0") if row]
        # Binary files have no line counts.
        shown = [name if added == "-" else f"{name} +{added} -{gone}" for added, gone, name in changed[:SHOWN]]
        more = f" and {len(changed) - SHOWN} more files" if len(changed) > SHOWN else ""
        return f"{', '.join(shown)}{more}"

    def code(self, commit: str, digest: str) -> str:
        """A digest in code.yaml and its version of perennial, if a code.yaml up to a commit has it."""
        file = Project.find(self._repository.folder).shared(code_digests.FILE)
        try:
            listed = self._repository.run("log", "--format=%H", f"-S{digest}", commit, "--", file.as_posix())
            for each in (commit, *listed.split()):
                text = self._repository.read(each, file) or ""
                if digest in text:
                    return f"perennial {code_digests.parse(text.encode())['perennial']} ({digest[:DIGITS]})"
        except (GitError, OSError, ConfigError):
            pass
        return digest

    def digest(self, commit: str, path: str) -> str | None:
        """The digest that DVC would give a tracked file or folder; None if the commit has none."""
        found = self._objects(commit).get(self._from_top(path))
        return self._digest_of(*found) if found else None

    def has_data(self, commit: str, path: str) -> bool:
        """Whether a commit has data at a path, not only the README.md of an empty folder."""
        place = self._from_top(path)
        return any(
            kind == BLOB
            and PurePosixPath(name).is_relative_to(place)
            and PurePosixPath(name).name != "README.md"
            for name, (kind, _) in self._objects(commit).items()
            if name.startswith(place)
        )

    def _from_top(self, path: str) -> str:
        """A path as from the repository's top."""
        return posixpath.normpath(posixpath.join(self._here, path))

    def _digest_of_object(self, kind: str, name: str) -> str:
        if kind == BLOB:
            content = self._repository.blob(name) or b""
            return hashlib.md5(content, usedforsecurity=False).hexdigest()
        members = self._objects(name).items()
        return dvc_digests.digest_of(
            {path: self._digest_of(*each) for path, each in members if each[0] == BLOB}
        )


def current(entry: LockedStage, folder: Path) -> LockedStage:
    """A recorded stage with the current inputs of a checkout; missing ones are left out."""
    paths = {path: folder / path for path in entry.deps}
    deps = {path: dvc_digests.digest(each) for path, each in paths.items() if each.exists()}
    loaded = {file: yaml_values(folder / file) for file, _ in entry.params}
    return replace(entry, deps=deps, params=values_in(entry, loaded))


def values_in(entry: LockedStage, loaded: Mapping[str, object]) -> dict[tuple[str, str], object]:
    """The current values of the parameters that a stage was recorded with; missing ones are left out."""
    return {
        (file, key): value
        for file, key in entry.params
        if (value := value_at(loaded[file], key)) is not None or entry.params[file, key] is None
    }


def other_packages(stage: str, entry: LockedStage, packages: Mapping[str, str]) -> Iterator[Difference]:
    """Yield packages whose recorded version differs from that in the environment."""
    for (file, key), versions in entry.params.items():
        section, _, name = key.partition(".")
        required = section == "packages" or name in packages
        accepted = list(map(str, versions)) if isinstance(versions, list) else [str(versions)]
        if lists_packages(file) and required and (found := packages.get(name)) not in accepted:
            what = f"the installed {name}, in {file}"
            yield Difference("packages", stage, what, versions, found)


def bring(repository: Repository, workspace: Workspace, history: PathHistory, *commits: str) -> None:
    """Link your own files into the checkout, unless one of the commits has files at the same path."""
    values = workspace.values()
    for key in PLACES:
        named = value_at(values, key)
        if not isinstance(named, str) or Path(named).is_absolute() or ".." in Path(named).parts:
            continue
        if any(history.has_data(commit, named) for commit in commits):
            continue  # they could include files that were added or moved since
        theirs = repository.folder / named
        for name, file in dvc_digests.files_of(theirs).items() if theirs.exists() else ():
            target = workspace.folder / named / name
            if target.exists() or not target.parent.resolve().is_relative_to(workspace.folder.resolve()):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if not files.linked(file.resolve(), target):
                shutil.copyfile(file, target)


def changed_source(history: PathHistory, entry: LockedStage, workspace: Workspace, commit: str) -> list[str]:
    """List your own data of a stage, not in git, that differ from the recorded data."""
    named = value_at(workspace.values(), "dataset.path")
    own = {
        path: md5 for path, md5 in entry.deps.items() if path == named and not history.has_data(commit, path)
    }
    return not_as_recorded(workspace, own)


def not_as_recorded(workspace: Workspace, recorded: Mapping[str, str]) -> list[str]:
    """The paths of the checkout that are missing or do not have the recorded digest."""
    places = {path: workspace.folder / path for path in recorded}
    return [
        path
        for path, place in places.items()
        if not place.exists() or dvc_digests.digest(place) != recorded[path]
    ]


def restore(workspace: Workspace, stage: str, entry: LockedStage) -> None:
    """Restore the recorded outputs of a stage from DVC's remote into the checkout."""
    workspace.dvc("pull", "--force", stage)
    if others := not_as_recorded(workspace, entry.outs):
        raise DvcFailed(f"{others[0]} from DVC's remote is not what dvc.lock records")
