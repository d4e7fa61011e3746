"""Metrics per class and confidence intervals."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn import metrics as sklearn
from support.predicted import predictions

from perennial.model.evaluation import metrics, scoring
from perennial.model.evaluation.scoring import ExampleScores

RANDOM = np.random.default_rng(0)
LOGITS = RANDOM.normal(size=(103, 10)).astype(np.float32)
LABELS = RANDOM.integers(0, 10, 103)
NAMES = [str(label) for label in range(10)]


def scored(logits: NDArray[np.float32] = LOGITS, labels: NDArray[np.int64] = LABELS) -> ExampleScores:
    return scoring.score([(logits, labels)], classes=logits.shape[1], examples=len(labels))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("precision", sklearn.precision_score), ("recall", sklearn.recall_score), ("f1", sklearn.f1_score)],
)
def test_each_class_has_its_score(name: str, expected: Callable[..., NDArray[np.float64]]) -> None:
    found = [each[name] for each in metrics.per_class(scored(), NAMES).values()]
    assert found == pytest.approx(list(expected(LABELS, LOGITS.argmax(axis=1), average=None)))


def test_a_metric_with_denominator_0_is_none() -> None:
    found = metrics.per_class(scored(np.eye(4, dtype=np.float32)[[0, 2, 0]], np.array([0, 1, 0])), list("abcd"))
    assert found == {
        "a": {"examples": 2, "precision": 1.0, "recall": 1.0, "f1": 1.0},
        "b": {"examples": 1, "precision": None, "recall": 0.0, "f1": 0.0},
        "c": {"examples": 0, "precision": 0.0, "recall": None, "f1": 0.0},
        "d": {"examples": 0, "precision": None, "recall": None, "f1": None},
    }


def test_intervals_hold_the_score() -> None:
    for name, ends in metrics.scored_intervals(scored(), 0.95).items():
        assert ends["low"] < getattr(scored(), name) < ends["high"]


def test_a_higher_level_gives_wider_intervals() -> None:
    narrow, wide = (metrics.scored_intervals(scored(), level)["loss"] for level in (0.5, 0.99))
    assert wide["low"] < narrow["low"] < narrow["high"] < wide["high"]


def test_if_all_predictions_are_correct_the_interval_is_not_one_point() -> None:
    found = metrics.scored_intervals(scored(np.eye(10, dtype=np.float32)[LABELS], LABELS), 0.95)
    assert found["accuracy"] == {"low": pytest.approx(0.0253 ** (1 / 103), abs=0.001), "high": 1.0}


def test_scores_of_several_labels_are_those_of_scikit_learn() -> None:
    """200 images with any of four labels, of which the last has none."""
    labels = (RANDOM.random((200, 4)) < [0.5, 0.2, 0.1, 0.0]).astype(np.int8)
    probabilities = 1 / (1 + np.exp(-RANDOM.normal(labels * 2.0 - 1, 1.0)))
    thresholds = np.array([0.5, 0.4, 0.1, 0.9999], np.float32)
    top = predictions(labels, probabilities, tuple("abcd"), thresholds=thresholds)
    predicted, own = top.predicted, [0, 1, 2]
    found = metrics.of_labels(top, np.full(200, 0.5), 0.95)
    pair = labels[:, own], top.probabilities[:, own]
    expected = {
        "map_macro": sklearn.average_precision_score(*pair, average="macro"),
        "map_micro": sklearn.average_precision_score(labels.ravel(), top.probabilities.ravel()),
        "f1_macro": sklearn.f1_score(labels, predicted, average="macro", zero_division=np.nan),
        "exact_match": sklearn.accuracy_score(labels, predicted),
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-12)
    for name, score in (("precision", sklearn.precision_score), ("recall", sklearn.recall_score)):
        each = [found["per_class"][of][name] for of in "abc"]
        assert each == pytest.approx(list(score(labels[:, own], predicted[:, own], average=None)), abs=1e-12)
    assert found["per_class"]["d"]["average_precision"] is None
    assert found["thresholds"] == {"a": 0.5, "b": 0.4, "c": 0.1, "d": 0.9999}
    for name, score in (
        ("map_macro", found["map_macro"]),
        ("exact_match", found["exact_match"]),
        ("loss", 0.5),
    ):
        assert found["intervals"][name]["low"] <= score <= found["intervals"][name]["high"]
