"""Scores against scikit-learn's, and inputs that are refused."""

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn import metrics

from perennial.base.errors import QualityError
from perennial.model.evaluation import scoring
from perennial.model.evaluation.scoring import ExampleScores, NonFinite

CLASSES, EXAMPLES = 10, 103
RANDOM = np.random.default_rng(0)
LOGITS = RANDOM.normal(size=(EXAMPLES, CLASSES)).astype(np.float32)
LABELS = RANDOM.integers(0, CLASSES, EXAMPLES)


def batches(size: int, logits: NDArray[np.float32]) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]:
    for start in range(0, EXAMPLES, size):
        yield logits[start : start + size], LABELS[start : start + size]


def scored(batch_size: int = 10) -> ExampleScores:
    return scoring.score(batches(batch_size, LOGITS), classes=CLASSES, examples=EXAMPLES)


def test_scores_are_those_of_scikit_learn() -> None:
    probabilities = softmax(LOGITS.astype(np.float64), axis=1)
    assert scored().summary == {
        "accuracy": pytest.approx(metrics.accuracy_score(LABELS, LOGITS.argmax(axis=1)), abs=1e-15),
        "loss": pytest.approx(metrics.log_loss(LABELS, probabilities, labels=range(CLASSES))),
        "recall_at_5": pytest.approx(
            metrics.top_k_accuracy_score(LABELS, LOGITS, k=5, labels=range(CLASSES)), abs=1e-15
        ),
    }


def test_a_confident_mistake_has_its_full_loss() -> None:
    logits = np.array([[1000.0, 0.0]], np.float32)
    assert scoring.score([(logits, np.array([1]))], classes=2, examples=1).loss == 1000.0


@pytest.mark.parametrize(("equal", "label", "recall"), [(4, 0, 1.0), (9, 0, 1.0), (5, 9, 0.0)])
def test_logits_that_tie_at_the_fifth_place_all_count_and_lower_ones_do_not(equal, label, recall) -> None:
    logits = np.zeros((1, CLASSES), np.float32)
    logits[0, :equal] = 1
    assert scoring.score([(logits, np.array([label]))], classes=CLASSES, examples=1).recall_at_5 == recall


def test_with_fewer_than_five_classes_every_label_counts() -> None:
    logits = np.array([[3.0, 2.0, 1.0]], np.float32)
    assert scoring.score([(logits, np.array([2]))], classes=3, examples=1).recall_at_5 == 1.0


@pytest.mark.parametrize("batch_size", [1, 7, 103, 500])
def test_scores_do_not_depend_on_the_batch_size(batch_size: int) -> None:
    assert scored(batch_size).summary == scored().summary


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_first_example_with_a_non_finite_logit_is_named(value: float) -> None:
    logits = LOGITS.copy()
    logits[33:, 4] = value
    with pytest.raises(NonFinite, match="example 33;"):
        scoring.score(batches(10, logits), classes=CLASSES, examples=EXAMPLES)


def test_a_missing_example_is_an_error() -> None:
    with pytest.raises(QualityError, match=r"102 .* 103") as caught:
        scoring.score([(LOGITS[1:], LABELS[1:])], classes=CLASSES, examples=EXAMPLES)
    assert not isinstance(caught.value, NonFinite)


def test_no_examples_are_an_error() -> None:
    with pytest.raises(QualityError, match="0 examples"):
        scoring.score([], classes=CLASSES, examples=0)


@pytest.mark.parametrize("batch_size", [1, 7, 103])
def test_several_labels_have_average_precision_and_the_mean_loss_of_all(batch_size: int) -> None:
    labels = (np.arange(EXAMPLES * CLASSES).reshape(EXAMPLES, CLASSES) % 3 == 0).astype(np.uint8)
    cuts = [slice(start, start + batch_size) for start in range(0, EXAMPLES, batch_size)]
    found = scoring.score([(LOGITS[cut], labels[cut]) for cut in cuts], classes=CLASSES, examples=EXAMPLES)
    p = 1 / (1 + np.exp(-LOGITS.astype(np.float64)))
    expected = -np.where(labels, np.log(p), np.log(1 - p)).mean()
    precision = metrics.average_precision_score(labels, found.probabilities, average="macro")
    assert found.summary == {"map": pytest.approx(precision, abs=1e-12), "loss": pytest.approx(expected)}
