"""A revision of the project: the recorded inputs of each stage, and its inputs as committed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from perennial.base import documents
from perennial.base.config import Config
from perennial.base.dvc import dvc_lock
from perennial.base.dvc.dvc_lock import LockedStage
from perennial.base.errors import ConfigError, DataError
from perennial.base.project.git import Repository
from perennial.release.registry import access
from perennial.release.registry.versions import Version
from perennial.reproduce.rebuild import rebuild_inputs
from perennial.reproduce.rebuild.path_history import PathHistory
from perennial.reproduce.rebuild.rebuild_inputs import FETCHED
from perennial.reproduce.rebuild.stage_differences import (
    ENVIRONMENT,
    PARAMS,
    Difference,
    differing_inputs,
    from_top,
)


@dataclass(frozen=True, kw_only=True)
class Revision:
    """A commit with its dvc.lock; contains the stages on which the score can depend."""

    name: str  # as a person wrote it, or the start of the commit
    commit: str
    version: Version | None
    lock_text: str
    recorded: Mapping[str, LockedStage]  # by dvc.lock
    inputs: Mapping[str, LockedStage]  # the same stages with tracked files and values as the commit has them
    values: Mapping[str, Any]  # of params.yaml
    pipeline: Mapping[str, Any]  # the stages of dvc.yaml

    def path(self, name: str) -> str:
        """A path of params.yaml, such as that of `metrics`."""
        return str(dvc_lock.value_at(self.values, f"paths.{name}"))

    @cached_property
    def deciding(self) -> list[str]:
        """The stages whose outputs determine the score, in order."""
        return dvc_lock.above(self.recorded, self.path("metrics"), values=False)

    @cached_property
    def needed(self) -> list[str]:
        """The stages that must have run for a score to exist, in order."""
        return dvc_lock.above(self.recorded, self.path("metrics"), values=True)

    @cached_property
    def unrecorded(self) -> list[Difference]:
        """The inputs that changed since the stages ran; if any did, dvc.lock has no score for this commit."""
        return [
            each
            for stage in self.deciding
            if not (stage in FETCHED and self._are_trusted(stage))
            for each in differing_inputs(stage, self.recorded[stage], self.inputs[stage], self.outputs)
        ]

    @property
    def outputs(self) -> dict[str, str]:
        """The digest of each output in dvc.lock, by path."""
        return {path: digest for entry in self.recorded.values() for path, digest in entry.outs.items()}

    def _are_trusted(self, stage: str) -> bool:
        """Whether only the code or packages of a fetching stage changed, so that its data stay the same."""
        found = differing_inputs(stage, self.recorded[stage], self.inputs[stage], self.outputs)
        return all(each.kind in {"code", "packages"} for each in found)


class Revisions:
    """Opens revisions of a repository."""

    def __init__(self, config: Config, repository: Repository) -> None:
        self.repository, self.history = repository, PathHistory(repository)
        self._artifact = config.record.artifact
        self._known: dict[str, Revision] = {}
        self._loaded = cache(documents.yaml_object)  # most commits have the same parameters

    def open(self, name: str) -> Revision:
        """Open a version, branch, tag or commit."""
        version, commit = access.find(self.repository, self._artifact, name)
        found = self.at(commit)
        if found is None:
            raise ConfigError(
                f"commit {commit[:10]} ({name}) has no {dvc_lock.FILE} with a score; name a revision in which "
                "`dvc repro` has run"
            )
        return replace(found, name=found.name if commit.startswith(name) else name, version=version)

    def at(self, commit: str, like: Revision | None = None) -> Revision | None:
        """Open a commit, with the dvc.lock of `like` if it has none; None if there is no score."""
        if commit not in self._known:
            text = self.repository.read(commit, dvc_lock.FILE)
            if text is None and like is None:
                return None
            found = self._load(commit, text if text is not None else like.lock_text)  # type: ignore[union-attr]
            if not found.needed:
                return None
            self._known[commit] = found
        return self._known[commit]

    def _load(self, commit: str, text: str) -> Revision:
        recorded = dvc_lock.parse(text, f"{dvc_lock.FILE} of {commit[:10]}")
        made = [out for entry in recorded.values() for out in entry.outs]
        return Revision(
            name=commit[:10],
            commit=commit,
            version=None,
            lock_text=text,
            recorded=recorded,
            inputs={name: self._as_committed(commit, entry, made) for name, entry in recorded.items()},
            values=self._yaml(commit, PARAMS),
            pipeline=self._yaml(commit, "dvc.yaml").get("stages") or {},
        )

    def _as_committed(self, commit: str, entry: LockedStage, made: list[str]) -> LockedStage:
        """A stage with its inputs as git has them at a commit; all other inputs as recorded."""
        makers = dict.fromkeys(made, "")
        deps = dict(entry.deps)
        for path in entry.deps:
            if dvc_lock.maker_of(path, makers) is None and self.history.has_data(commit, path):
                deps[path] = self.history.digest(commit, path) or entry.deps[path]
        read = {file for file, _ in entry.params if dvc_lock.maker_of(file, makers) is None}
        loaded = {file: self._yaml(commit, file) for file in read}
        own = replace(entry, params={key: value for key, value in entry.params.items() if key[0] in read})
        params = {key: value for key, value in entry.params.items() if key[0] not in read}
        params |= rebuild_inputs.values_in(own, loaded)
        for file in read:
            if from_top(file).startswith(ENVIRONMENT):  # dvc.lock has all of these
                params |= {(file, key): value for key, value in documents.flattened(loaded[file]).items()}
        return replace(entry, deps=deps, params=params)

    def _yaml(self, commit: str, file: str) -> dict[str, Any]:
        try:
            return self._loaded(self.repository.read(commit, Path(file)) or "")
        except ValueError as error:
            raise DataError(f"{file} of commit {commit[:10]} is not valid YAML; nothing was changed") from error
