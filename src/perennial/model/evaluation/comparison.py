"""The champion (the model in use), and its comparison with a candidate on the same test examples."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from perennial.base import documents, files
from perennial.base.errors import DataError
from perennial.model.evaluation import diagnostics, intervals, predictions, unbiased
from perennial.model.evaluation.predictions import Predictions

FACTS, PREDICTIONS = "champion.json", "predictions.npz"  # in metrics/champion
ARRAYS, OF_LABELS = ("predicted", "p", "p_true", "parts"), ("probabilities",)
NONE = np.zeros(0, np.float32)
SMALLEST = np.finfo(np.float32).tiny
ADVICE = "`dvc repro champion` makes or restores it"
OPTIONAL = {"validation", "not_validated", "comparisons", "promotions"}  # left out of the file where None
ENOUGH = 50  # examples of a slice from which on it is judged


class ChampionFile(documents.JsonFile):
    """Content of champion.json; without a champion, every value is None."""

    commit: str | None
    version: str | None
    model: str | None  # digest of the weights
    model_bytes: int | None  # of its export
    classes: list[str] | None
    split_digest: str | None  # of the test examples that it was scored on
    rescored: bool | None  # whether its export was scored again, on this test split
    problem: str | None  # why it has no predictions on this test split
    validation: float | None = None  # its main score on this validation split, 0..1
    not_validated: str | None = None  # why that is not known
    comparisons: int | None = None  # state of the budget (gate.false_share), as pinned
    promotions: int | None = None


@dataclass(frozen=True, kw_only=True)
class Champion:
    """A promoted version, and its predictions on the test split: arrays [N]."""

    commit: str
    version: str
    model: str  # digest of the weights
    model_bytes: int | None  # of its export
    classes: tuple[str, ...]
    split_digest: str  # of the test examples
    rescored: bool  # whether its export was scored again, because it was evaluated on another test split
    predicted: NDArray[np.int64]  # index in its own classes
    p: NDArray[np.float32]  # of the predicted class, 0..1
    p_true: NDArray[np.float32]  # of the label; NaN if it does not know that class
    problem: str | None = None  # why it has no predictions on this test split
    validation: float | None = None  # these four as in `ChampionFile`
    not_validated: str | None = None
    comparisons: int | None = None
    promotions: int | None = None
    # The part that each example played in it, as `unbiased.parts` says; empty if that is not known.
    parts: NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, np.int8))
    # Of several labels an image: [N, classes], as is `predicted`; p and p_true are empty.
    probabilities: NDArray[np.float32] | None = None

    @classmethod
    def of(cls, scored: Predictions, **facts: Any) -> Self:
        """The model of these predictions as the opponent of another one."""
        p, p_true, probabilities = (
            (NONE, NONE, scored.probabilities) if scored.multilabel else (scored.p, scored.p_true, None)
        )
        facts = {"model_bytes": None, "split_digest": scored.split_digest, **facts}
        return cls(
            model=scored.model, classes=scored.classes, rescored=False, predicted=scored.predicted, p=p,
            p_true=p_true, probabilities=probabilities, **facts,
        )  # fmt: skip

    def write(self, folder: Path) -> None:
        """Write into an empty folder; equal champions give equal bytes."""
        arrays = {name: getattr(self, name) for name in (*ARRAYS, *OF_LABELS)}
        kept = {name: array for name, array in arrays.items() if array is not None}
        files.write_bytes(folder / PREDICTIONS, predictions.archived(**kept))
        facts = {name: getattr(self, name) for name in ChampionFile.model_fields}
        known = {name: fact for name, fact in facts.items() if fact is not None or name not in OPTIONAL}
        files.write_json(folder / FACTS, known)


def write_none(folder: Path) -> None:
    """Write into an empty folder for a run without a champion."""
    files.write_json(folder / FACTS, dict.fromkeys(ChampionFile.model_fields.keys() - OPTIONAL))


def read(folder: Path) -> Champion | None:
    """The champion that the stage `champion` wrote; None if there is none yet."""
    facts = documents.read_checked(folder / FACTS, ChampionFile, ADVICE)
    if facts.commit is None:
        return None
    known = facts.model_dump(include=set(ChampionFile.model_fields))
    may_lack = {"model_bytes", "problem", *OPTIONAL}
    absent = [name for name, value in known.items() if value is None and name not in may_lack]
    if absent:
        raise DataError(f"{folder / FACTS} has no {absent[0]}; {ADVICE}")
    with predictions.arrays(folder / PREDICTIONS, "champion") as found:
        columns = {name: found[name] for name in (*ARRAYS, *(each for each in OF_LABELS if each in found))}
    return Champion(**{**known, "classes": tuple(facts.classes or ())}, **columns)


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Scores of a model on the test split, from the probabilities of its predictions."""

    score: float  # 0..1: accuracy, or the mean average precision of several labels
    loss: float | None  # mean cross-entropy, in nats; None for a model that does not know every class
    calibration_error: float  # ECE, 0..1
    recall: NDArray[np.float64]  # of each class, 0..1; NaN for one without examples


@dataclass(frozen=True, kw_only=True)
class Group:
    """A candidate and the champion on the examples of one class or slice."""

    name: str
    examples: int
    candidate: float  # its accuracy, 0..1: for a class, the recall
    low: float  # ends of its 95 % interval (Wilson)
    high: float
    champion: float
    won: int
    lost: int
    p_value: float  # of the losses, by the exact one-sided McNemar test
    judged: bool  # whether the gate may reject the candidate for it

    @property
    def drop(self) -> float:
        """By how much the accuracy is below the champion's; negative where it is above."""
        return (self.lost - self.won) / self.examples


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A candidate and the champion on the same test examples."""

    examples: int
    left_out: int  # test examples that the champion was trained on
    won: int  # examples that only the candidate classifies correctly
    lost: int  # examples that only the champion classifies correctly
    negative_flips: float  # share of these, 0..1 (Yan et al. 2021, Positive-Congruent Training)
    negative_flips_low: float  # ends of its 95 % interval (Clopper-Pearson)
    negative_flips_high: float
    p_value: float  # of the wins, by the exact one-sided McNemar test
    gain: float  # accuracy of the candidate minus the champion's
    gain_low: float  # ends of its 95 % confidence interval
    gain_high: float
    class_drop: float  # largest drop of a class's recall, 0..1
    dropped_class: str | None  # the class of that drop; None if no recall dropped
    drop_p_value: float  # of that class's losses
    classes: tuple[Group, ...]  # that have examples
    slices: tuple[Group, ...]  # those of every column; judged from 50 examples on
    new_classes: tuple[str, ...]  # that the champion does not know
    missing_classes: tuple[str, ...]  # of the champion, that the candidate does not know


def scores(
    labels: NDArray[np.int64], correct: NDArray[np.bool_], p: NDArray[np.float32], p_true: NDArray[np.float32],
    *, classes: int, bins: int,
) -> Scores:  # fmt: skip
    """Compute scores from labels [N], whether each prediction is correct [N], and probabilities."""
    losses = -np.log(np.maximum(p_true.astype(np.float64), SMALLEST))
    return Scores(
        score=float(correct.mean()),
        loss=None if np.isnan(losses).any() else float(losses.mean()),
        calibration_error=diagnostics.reliability(p, correct, bins=bins).ece,
        recall=recall(labels, correct, classes),
    )


class Sides(NamedTuple):
    """Which test examples each model classifies correctly; without those that the champion was trained on."""

    rows: NDArray[np.int64]  # [M], those of the candidate's predictions that count
    ours: NDArray[np.bool_]  # [M]
    theirs: NDArray[np.bool_]  # [M]


def correct(candidate: Predictions, champion: Champion) -> Sides:
    """Find which test examples each model classifies correctly; classes match by name.

    An example that the champion was trained on shows nothing, and would favour it: it may be a test example now
    because the class grew, another share is held out, or somebody moved it.
    """
    same = len(champion.predicted) == len(candidate.split_labels)
    if champion.split_digest != candidate.split_digest or not same:
        raise DataError(
            f"the champion {champion.version} was scored on the test split {champion.split_digest}, the "
            f"candidate on {candidate.split_digest}; `dvc repro champion` scores the champion on that one"
        )
    ours, theirs = candidate.right, _right(candidate, champion)[candidate.numbers]
    rows = np.arange(len(ours))
    if len(champion.parts):
        rows = np.flatnonzero(champion.parts[candidate.numbers] != unbiased.TRAINED)
    return Sides(rows, ours[rows], theirs[rows])


def _right(candidate: Predictions, champion: Champion) -> NDArray[np.bool_]:
    """Whether the champion is right on each example of the split."""
    if candidate.multilabel:
        answers = aligned(champion.predicted, champion.classes, candidate.classes)
        return predictions.right(answers, candidate.split_labels)
    index = {name: number for number, name in enumerate(candidate.classes)}
    names = np.array([index.get(name, -1) for name in champion.classes], np.int64)
    return predictions.right(names[champion.predicted], candidate.split_labels)


def aligned(values: NDArray[Any], theirs: Sequence[str], ours: Sequence[str]) -> NDArray[Any]:
    """Values of classes, [N, classes], in the order of other ones; 0 for new classes."""
    found = np.zeros((len(values), len(ours)), values.dtype)
    for number, name in enumerate(ours):
        if name in theirs:
            found[:, number] = values[:, theirs.index(name)]
    return found


def fresh_score(candidate: Predictions, champion: Champion) -> dict[str, Any] | None:
    """Score the champion on the test examples that played no part in it; None if these are not known."""
    if not len(champion.parts):
        return None
    fresh = _right(candidate, champion)[champion.parts == unbiased.NO_PART]
    return unbiased.score(int(fresh.sum()), len(fresh))


def compare(candidate: Predictions, champion: Champion) -> Comparison:
    """Compare two models example by example; at least one must count."""
    sides = correct(candidate, champion)
    classes = groups(candidate.labels[sides.rows], candidate.classes, sides.ours, sides.theirs)
    return counted(candidate, champion, sides, classes)


def counted(candidate: Predictions, champion: Champion, sides: Sides, classes: tuple[Group, ...]) -> Comparison:
    """The comparison by the examples on which only one model is right."""
    rows, ours, theirs = sides
    won, lost = int((ours & ~theirs).sum()), int((theirs & ~ours).sum())
    low, high = intervals.gain(won, lost, len(ours))
    flips_low, flips_high = intervals.share(lost, len(ours))
    worst = max(classes, key=lambda group: group.drop, default=None)
    dropped = worst if worst and worst.drop > 0 else None
    return Comparison(
        examples=len(ours),
        left_out=len(candidate.labels) - len(rows),
        won=won,
        lost=lost,
        negative_flips=lost / len(ours),
        negative_flips_low=flips_low,
        negative_flips_high=flips_high,
        p_value=mcnemar(won, lost),
        gain=(won - lost) / len(ours),
        gain_low=low,
        gain_high=high,
        class_drop=dropped.drop if dropped else 0.0,
        dropped_class=dropped.name if dropped else None,
        drop_p_value=dropped.p_value if dropped else 1.0,
        classes=classes,
        slices=tuple(
            group
            for each in candidate.slices
            for group in groups(each.of[rows], each.names, ours, theirs, ENOUGH)
        ),
        new_classes=tuple(name for name in candidate.classes if name not in set(champion.classes)),
        missing_classes=tuple(name for name in champion.classes if name not in set(candidate.classes)),
    )


def groups(
    of: NDArray[np.int64], names: Sequence[str], ours: NDArray[np.bool_], theirs: NDArray[np.bool_],
    least: int = 1,
) -> tuple[Group, ...]:  # fmt: skip
    """Compare two models in each group that has examples.

    `of` is the index in `names` of each example's group, [N]; `ours` and `theirs` whether each model is right,
    [N]; a group is judged from `least` examples on.
    """
    counts = [
        np.bincount(of[mask], minlength=len(names)).tolist()
        for mask in (slice(None), ours, theirs, ours & ~theirs, theirs & ~ours)
    ]
    found = []
    for name, examples, hits, champion, won, lost in zip(names, *counts, strict=True):
        if examples:
            low, high = intervals.wilson(hits, examples)
            found.append(
                Group(
                    name=name, examples=examples, candidate=hits / examples, low=low, high=high,
                    champion=champion / examples, won=won, lost=lost, p_value=mcnemar(lost, won),
                    judged=examples >= least,
                )
            )  # fmt: skip
    return tuple(found)


def mcnemar(won: int, lost: int) -> float:
    """The p-value of the exact one-sided McNemar test (1947) on examples that only one model gets right.

    If the models are equally good, each is as likely won as lost: P(X >= won), X ~ Binomial(won + lost, 1/2).
    """
    return float(scipy.special.bdtrc(won - 1, won + lost, 0.5))


def recall(labels: NDArray[np.int64], correct: NDArray[np.bool_], classes: int) -> NDArray[np.float64]:
    """Recall of each class, [classes]; NaN for one without examples."""
    examples = np.bincount(labels, minlength=classes)
    hits = np.bincount(labels, weights=correct, minlength=classes)
    found = np.full(classes, np.nan)
    np.divide(hits, examples, out=found, where=examples > 0)
    return found
