"""Differences between two revisions, by kind, and whether they can change the score."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from perennial.base.project.git import GitError
from perennial.base.project.pins import LABELS
from perennial.reproduce.rebuild.path_history import PathHistory
from perennial.reproduce.rebuild.rebuild_inputs import FETCHED
from perennial.reproduce.rebuild.stage_differences import (
    CODE_OF,
    FACTS,
    Difference,
    Made,
    differing_inputs,
    differing_outputs,
)
from perennial.reproduce.why.revisions import Revision

PIPELINE = "dvc.yaml"


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


def hardware(a: Made, b: Made) -> list[Found]:
    """Differences between the machines of two runs, as far as both were recorded."""
    differences = []
    for name in FACTS:
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
        for difference in differing_inputs(stage, a.inputs[stage], b.inputs[stage], made):
            yield _found(difference, decides=decides)


def _fetched(a: Revision, b: Revision) -> Iterable[Found]:
    """Differences in data that stages read from outside git."""
    # If git shows that the inputs have changed since, the record does not belong to this commit.
    moved = {change.stage for change in (*a.unrecorded, *b.unrecorded)}
    for stage in (name for name in FETCHED if name not in moved):
        one, other = (revision.recorded.get(stage) for revision in (a, b))
        for path, (was, now) in (differing_outputs(one, other) if one and other else {}).items():
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


def _found(difference: Difference, *, decides: bool) -> Found:
    return Found(
        kind=difference.kind,
        what=difference.what,
        a=difference.recorded,
        b=difference.rebuilt,
        stages=(difference.stage,),
        decides=decides,
    )


def _with_changes(difference: Found, a: Revision, b: Revision, history: PathHistory) -> Found:
    """Add the changed files and lines to a tracked path, and the version of perennial to a digest of code."""
    if difference.what.startswith(CODE_OF):
        a_code, b_code = (
            digest and history.code(revision.commit, str(digest))
            for revision, digest in ((a, difference.a), (b, difference.b))
        )
        return replace(difference, a=a_code, b=b_code)
    if difference.kind not in {"code", "data", "weights"} or not isinstance(difference.a or difference.b, str):
        return difference
    try:
        return replace(difference, changes=history.between(a.commit, b.commit, difference.what) or None)
    except (GitError, OSError):
        return difference
