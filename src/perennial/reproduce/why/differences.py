"""Revisions of the project with their recorded inputs, and the differences between two, by kind."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from perennial.base import documents
from perennial.base.config import Config
from perennial.base.config.paths import FIXED
from perennial.base.dvc import dvc_lock
from perennial.base.dvc.dvc_lock import LockedStage
from perennial.base.errors import ConfigError, DataError, PerennialError
from perennial.base.project.git import GitError, Repository
from perennial.base.project.pins import LABELS
from perennial.release.registry import access
from perennial.release.registry.versions import Version
from perennial.reproduce.rebuild import rebuild_inputs, stage_differences
from perennial.reproduce.rebuild.rebuild_inputs import FETCHED, PathHistory
from perennial.reproduce.rebuild.stage_differences import PARAMS, Difference, Made

PIPELINE = "dvc.yaml"


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

    @cached_property
    def deciding(self) -> list[str]:
        """The stages whose outputs determine the score, in order."""
        return dvc_lock.above(self.recorded, FIXED["metrics"], values=False)

    @cached_property
    def needed(self) -> list[str]:
        """The stages that must have run for a score to exist, in order."""
        return dvc_lock.above(self.recorded, FIXED["metrics"], values=True)

    @cached_property
    def unrecorded(self) -> list[Difference]:
        """The inputs that changed since the stages ran; if any did, dvc.lock has no score for this commit."""
        found = list[Difference]()
        for stage in self.deciding:
            then, now = self.recorded[stage], self.inputs[stage]
            changed = list(stage_differences.differing_inputs(stage, then, now, self.outputs))
            # Where only the code or packages of a fetching stage changed, its data stay the same.
            if stage not in FETCHED or any(each.kind not in {"code", "packages"} for each in changed):
                found += changed
        return found

    @property
    def outputs(self) -> dict[str, str]:
        """The digest of each output in dvc.lock, by path."""
        return {path: digest for entry in self.recorded.values() for path, digest in entry.outs.items()}


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
            if text is None and like:
                text = like.lock_text
            found = None if text is None else self._load(commit, text)
            if found is None or not found.needed:
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
            pipeline=self._yaml(commit, PIPELINE).get("stages") or {},
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
            if stage_differences.lists_packages(file):  # dvc.lock has all of these
                params |= {(file, key): value for key, value in documents.flattened(loaded[file]).items()}
        return replace(entry, deps=deps, params=params)

    def _yaml(self, commit: str, file: str) -> dict[str, Any]:
        """Read a file of a commit."""
        try:
            return self._loaded(self.repository.read(commit, Path(file)) or "")
        except ValueError as error:
            raise DataError(f"{file} of commit {commit[:10]} is not valid YAML; nothing was changed") from error


@dataclass(frozen=True, kw_only=True)
class Found:
    """A difference between two revisions; `a` and `b`: digests or values, None if missing."""

    kind: str  # data, labels, code, parameters, packages, seed, hardware, weights or champion
    what: str
    a: object
    b: object
    stages: tuple[str, ...]  # that read it
    decides: bool  # whether it can change the score
    changes: str | None = None  # files and lines


def between(a: Revision, b: Revision, history: PathHistory) -> list[Found]:
    """The differences between two revisions, in git and in dvc.lock; those that can change the score first."""
    differences: dict[tuple[str, str], Found] = {}
    for difference in (*_inputs(a, b), *_fetched(a, b), *_pipeline(a, b, history)):
        same = differences.get((difference.kind, difference.what))
        stages = (*same.stages, *difference.stages) if same else difference.stages
        differences[difference.kind, difference.what] = replace(
            difference,
            stages=tuple(dict.fromkeys(stages)),
            decides=difference.decides or (same is not None and same.decides),
        )
    if not any(kind == "data" for kind, _ in differences):
        differences |= {(found.kind, found.what): found for found in _labels(a, b, history)}
    named = [_with_changes(difference, a, b, history) for difference in differences.values()]
    return sorted(named, key=lambda difference: (not difference.decides, difference.kind, difference.what))


def between_runs(config: Config, a: str, b: str) -> list[Found] | None:
    """The differences between the commits of two runs; None if one of them is not in git here."""
    try:
        opened = Revisions(config, access.open_registry(config, fetch=False).repository)
        return between(opened.open(f"run/{a}"), opened.open(f"run/{b}"), opened.history)
    except PerennialError:
        return None


def hardware(a: Made, b: Made) -> list[Found]:
    """Differences between the machines of two runs, as far as both were recorded."""
    differences = []
    for name in stage_differences.FACTS:
        one, other = a.machine.get(name), b.machine.get(name)
        if one is not None and other is not None and one != other:
            what = f"{name.replace('_', ' ')} of the machine"
            differences.append(Found(kind="hardware", what=what, a=one, b=other, stages=(), decides=True))
    return differences


def _inputs(a: Revision, b: Revision) -> Iterable[Found]:
    """The inputs of the stages that both revisions have."""
    made = {**a.outputs, **b.outputs}
    deciding = {*a.deciding, *b.deciding}
    moved = {change.stage for change in (*a.unrecorded, *b.unrecorded)}
    for stage in b.inputs.keys() & a.inputs.keys():
        same = stage in FETCHED and stage not in moved and a.recorded[stage].outs == b.recorded[stage].outs
        decides = stage in deciding and not same
        for difference in stage_differences.differing_inputs(stage, a.inputs[stage], b.inputs[stage], made):
            yield Found(
                kind=difference.kind, what=difference.what, a=difference.recorded, b=difference.rebuilt,
                stages=(difference.stage,), decides=decides,
            )  # fmt: skip


def _fetched(a: Revision, b: Revision) -> Iterable[Found]:
    """Differences in data that stages read from outside git."""
    # If git shows that the inputs have changed since, the record does not belong to this commit.
    moved = {change.stage for change in (*a.unrecorded, *b.unrecorded)}
    for stage in (name for name in FETCHED if name not in moved):
        one, other = (revision.recorded.get(stage) for revision in (a, b))
        for path, (was, now) in (stage_differences.outputs(one, other) if one and other else {}).items():
            if was != now:
                decides = stage in b.deciding
                yield Found(kind=FETCHED[stage], what=path, a=was, b=now, stages=(stage,), decides=decides)


def _labels(a: Revision, b: Revision, history: PathHistory) -> Iterable[Found]:
    """Labels in git that no pin has yet: the next run of the revision pins them, and trains on them."""
    path = LABELS.as_posix()
    one, other = (history.digest(revision.commit, path) for revision in (a, b))
    if one != other:
        yield Found(kind="data", what=path, a=one, b=other, stages=("download",), decides=True)


def _pipeline(a: Revision, b: Revision, history: PathHistory) -> Iterable[Found]:
    """The stages whose definition in dvc.yaml differs, or that only one revision has."""
    names = sorted(a.pipeline.keys() | b.pipeline.keys())
    if differing := tuple(name for name in names if a.pipeline.get(name) != b.pipeline.get(name)):
        one, other = (history.digest(revision.commit, PIPELINE) for revision in (a, b))
        decides = bool({*a.deciding, *b.deciding} & set(differing))
        yield Found(kind="code", what=PIPELINE, a=one, b=other, stages=differing, decides=decides)


def _with_changes(difference: Found, a: Revision, b: Revision, history: PathHistory) -> Found:
    """Add the changed files and lines to a tracked path, and the version of perennial to a digest of code."""
    if difference.what.startswith(stage_differences.CODE_OF):
        sides = ((a, difference.a), (b, difference.b))
        one, other = (digest and history.code(each.commit, str(digest)) for each, digest in sides)
        return replace(difference, a=one, b=other)
    if difference.kind not in {"code", "data", "weights"} or not isinstance(difference.a or difference.b, str):
        return difference
    try:
        return replace(difference, changes=history.between(a.commit, b.commit, difference.what) or None)
    except (GitError, OSError):
        return difference
