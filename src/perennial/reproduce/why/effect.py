"""Compare the scores of two models: which test examples changed between right and wrong, by class."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perennial.base import documents
from perennial.base.config.paths import FIXED
from perennial.base.dvc import dvc_lock
from perennial.base.errors import DataError, PerennialError
from perennial.model.evaluation import comparison, predictions
from perennial.model.evaluation.predictions import Labels, Predictions
from perennial.model.evaluation.results import OfOneLabel, Scored, Share
from perennial.release.audit.sides import DvcObjects
from perennial.reproduce.why import image_changes
from perennial.reproduce.why.differences import Revision
from perennial.reproduce.why.image_changes import Images, RevisionRecords

SHOWN = 20  # changed examples in a document
Both = tuple[RevisionRecords, RevisionRecords]
Recalls = tuple[float | None, float | None]  # of a class, by A and by B; None: no examples


class RecordedScores(Scored):
    """The fields of the test scores that are compared."""

    map_macro: Share | None = None  # of several labels an image
    accuracy: OfOneLabel = None
    examples: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The results of one set of inputs."""

    name: str
    scores: RecordedScores
    predictions: Predictions | None  # None if lost
    records: str | None  # digest of the records

    @property
    def score(self) -> float:
        """Accuracy, or mAP of several labels an image, on the test split, 0..1."""
        return self.scores.score


@dataclass(frozen=True, kw_only=True)
class Flip:
    """A test example that only one of two models classifies correctly."""

    record: int  # number in the test split of B
    label: str
    a: str  # predicted class
    b: str


@dataclass(frozen=True, kw_only=True)
class ExampleChanges:
    """Two models compared on the test examples that both have."""

    compared: int
    only_a: int  # classified correctly by A alone
    only_b: int
    p_value: float  # of the difference, by the exact two-sided McNemar test
    classes: dict[str, Recalls]  # where it changed
    flips: list[Flip]


def recorded_wrongly(revision: Revision, objects: DvcObjects) -> list[str]:
    """How the dvc.lock of a revision contradicts what its stages wrote about themselves, if that is known."""
    found = []
    for path in (FIXED[name] for name in dvc_lock.DESCRIBED):
        with suppress(PerennialError, KeyError):
            file = objects.file(revision.outputs[path], _named(path, revision))
            found += dvc_lock.contradictions(revision.recorded, path, file.read_bytes())
    return found


def outcome(revision: Revision, objects: DvcObjects, lost: list[PerennialError]) -> Outcome | None:
    """Read the recorded results of a revision; None without scores. Missing objects are added to `lost`."""
    outs, found = revision.outputs, None
    metrics, predicted = FIXED["metrics"], FIXED["predictions"]
    if metrics not in outs:
        lost.append(DataError(f"{metrics} is not in dvc.lock"))
        return None
    try:
        file = objects.file(outs[metrics], _named(metrics, revision))
        scores = documents.read_checked(file, RecordedScores, "`dvc repro evaluate` makes it")
    except PerennialError as error:
        lost.append(error)
        return None
    try:
        if predicted in outs:
            found = predictions.read(objects.file(outs[predicted], _named(predicted, revision)))
    except PerennialError as error:
        lost.append(error)
    return Outcome(name=revision.name, scores=scores, predictions=found, records=outs.get(FIXED["records"]))


def compare_images(a: Outcome, b: Outcome, objects: DvcObjects) -> tuple[Images, Both] | tuple[None, None]:
    """Compare the images of two versions of the records; none if the records are equal."""
    if a.records is None or b.records is None or a.records == b.records:
        return None, None
    both = tuple(RevisionRecords(objects, each.records or "", f"the records of {each.name}") for each in (a, b))
    return image_changes.compare(*both), (both[0], both[1])


def compare_examples(a: Outcome, b: Outcome, records: Both | None) -> ExampleChanges | None:
    """Compare two models example by example; None if the predictions of one are missing."""
    one, other = a.predictions, b.predictions
    if one is None or other is None:
        return None
    if one.split_digest == other.split_digest and len(one.labels) == len(other.labels):
        rows = np.arange(len(one.labels)), np.arange(len(one.labels))
    elif records is not None:
        found = image_changes.rows(*records, "test")
        rows = np.array(found[0], np.int64), np.array(found[1], np.int64)
    else:
        return None
    return _examples(one, other, *rows)


def discordant(a: Outcome, b: Outcome) -> int | None:
    """Count test examples that only one of two models of the same records classifies correctly."""
    one, other = a.predictions, b.predictions
    if one is None or other is None or len(one.labels) != len(other.labels):
        return None
    return int((one.right != other.right).sum())


def _examples(
    a: Predictions, b: Predictions, rows_a: NDArray[np.int64], rows_b: NDArray[np.int64]
) -> ExampleChanges:
    right_a, right_b = a.right[rows_a], b.right[rows_b]
    only_a, only_b = int((right_a & ~right_b).sum()), int((right_b & ~right_a).sum())
    flips = [
        Flip(
            record=int(rows_b[at]), label=_names(b, b.labels, rows_b[at]), a=_names(a, a.predicted, rows_a[at]),
            b=_names(b, b.predicted, rows_b[at]),
        )
        for at in np.flatnonzero(right_a != right_b)[:SHOWN]
    ]  # fmt: skip
    return ExampleChanges(
        compared=len(rows_a),
        only_a=only_a,
        only_b=only_b,
        p_value=min(1.0, 2 * comparison.mcnemar(max(only_a, only_b), min(only_a, only_b))),
        classes=_classes(_recall(a), _recall(b)),
        flips=flips,
    )


def _names(found: Predictions, values: Labels, row: np.int64) -> str:
    """The class of an example, or its classes."""
    chosen = np.flatnonzero(values[row]) if found.multilabel else [values[row]]
    return ", ".join(found.classes[number] for number in chosen) or "none"


def _recall(found: Predictions) -> Mapping[str, float]:
    """The recall of each class that has examples."""
    if found.multilabel:
        given, hits = found.labels.sum(axis=0), (found.predicted & found.labels).sum(axis=0)
        values = np.where(given > 0, hits / np.maximum(given, 1), np.nan)
    else:
        values = comparison.recall(found.labels, found.right, len(found.classes))
    known = zip(found.classes, values.tolist(), strict=True)
    return {name: recall for name, recall in known if not np.isnan(recall)}


def _classes(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, Recalls]:
    """The classes whose recall changed, largest change first."""
    pairs = {name: (a.get(name), b.get(name)) for name in (*a, *b)}
    changed = [(name, pair) for name, pair in pairs.items() if pair[0] != pair[1]]
    return dict(sorted(changed, key=lambda each: -abs((each[1][0] or 0) - (each[1][1] or 0))))


def _named(path: str, revision: Revision) -> str:
    return f"{path} of {revision.name}"
