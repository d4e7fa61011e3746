"""Scores against scikit-learn's, and what is no score."""

import numpy as np
import pytest
from sklearn import metrics

from perennial.errors import QualityError
from perennial.evaluation import scores
from perennial.evaluation.scores import Scores

CLASSES, EXAMPLES = 10, 103
RANDOM = np.random.default_rng(0)
LOGITS = RANDOM.normal(size=(EXAMPLES, CLASSES)).astype(np.float32)
LABELS = RANDOM.integers(0, CLASSES, EXAMPLES)


def scored(batch_size: int = 10) -> Scores:
    starts = range(0, EXAMPLES, batch_size)
    batches = ((LOGITS[start : start + batch_size], LABELS[start : start + batch_size]) for start in starts)
    return scores.score(batches, classes=CLASSES, examples=EXAMPLES)


def test_accuracy_is_the_share_of_right_answers() -> None:
    assert scored().accuracy == metrics.accuracy_score(LABELS, LOGITS.argmax(axis=1))


def test_loss_is_the_mean_cross_entropy() -> None:
    exact = np.exp(LOGITS.astype(np.float64))
    probabilities = exact / exact.sum(axis=1, keepdims=True)
    assert scored().loss == pytest.approx(metrics.log_loss(LABELS, probabilities, labels=range(CLASSES)))


def test_recall_at_5_is_top_5_accuracy() -> None:
    expected = metrics.top_k_accuracy_score(LABELS, LOGITS, k=5, labels=range(CLASSES))
    assert scored().recall_at_5 == expected


def test_the_confusion_matrix_has_labels_in_rows() -> None:
    expected = metrics.confusion_matrix(LABELS, LOGITS.argmax(axis=1))
    assert (scored().confusion() == expected).all()


def test_recall_of_a_class_is_its_share_of_right_answers() -> None:
    names = [str(label) for label in range(CLASSES)]
    expected = metrics.recall_score(LABELS, LOGITS.argmax(axis=1), average=None)
    assert [each["recall"] for each in scored().per_class(names).values()] == pytest.approx(list(expected))


@pytest.mark.parametrize("batch_size", [1, 7, 103, 500])
def test_scores_do_not_depend_on_the_batch_size(batch_size: int) -> None:
    one, other = scored(batch_size), scored(10)
    assert (one.accuracy, one.examples) == (other.accuracy, other.examples)
    assert one.loss == pytest.approx(other.loss, abs=1e-12)


def test_a_logit_that_is_no_number_is_no_score() -> None:
    logits = LOGITS.copy()
    logits[3, 4] = np.nan
    with pytest.raises(QualityError, match="not finite"):
        scores.score([(logits, LABELS)], classes=CLASSES, examples=EXAMPLES)


def test_a_missing_example_is_no_score() -> None:
    with pytest.raises(QualityError, match="scored 102 examples, expected the 103"):
        scores.score([(LOGITS[1:], LABELS[1:])], classes=CLASSES, examples=EXAMPLES)


def test_no_examples_are_no_score() -> None:
    with pytest.raises(QualityError, match="scored 0 examples"):
        scores.score([], classes=CLASSES, examples=0)
