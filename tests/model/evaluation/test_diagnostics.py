"""Confusion matrix and reliability."""

import tracemalloc

import numpy as np
import pytest
from sklearn.calibration import calibration_curve

from perennial.model.evaluation import diagnostics

RANDOM = np.random.default_rng(0)
PROBABILITIES = RANDOM.dirichlet(np.full(4, 0.3), 500).astype(np.float32)
CORRECT = PROBABILITIES.argmax(axis=1) == RANDOM.integers(0, 4, 500)
CONFIDENCE = PROBABILITIES.max(axis=1)
FEW = diagnostics.reliability(np.array([0.75, 0.75, 0.5], np.float32), np.array([True, False, True]), bins=4)


def confusion(pairs: list[tuple[int, int]], classes: int):
    labels, predicted = np.array(pairs).T
    return diagnostics.confusion(labels, predicted, classes)


def test_confusion_holds_each_pair_once_in_row_major_order() -> None:
    found = confusion([(2, 0), (0, 2), (2, 0), (0, 1)], 3)
    assert (found.row.tolist(), found.col.tolist(), found.data.tolist()) == ([0, 0, 2], [1, 2, 0], [1, 1, 2])


def test_few_classes_have_a_row_each() -> None:
    found = diagnostics.matrix(confusion([(0, 1), (2, 2)], 3), ["a", "b", "c"])
    assert (found.row_of.tolist(), found.names, found.counts.sum()) == ([0, 1, 2], ("a", "b", "c"), 2)


def test_of_many_classes_those_with_most_mistakes_have_a_row_and_all_examples_count() -> None:
    pairs = [(label, label) for label in range(1000)] * 5 + [(700, 30)] * 9
    found = diagnostics.matrix(confusion(pairs, 1000), [f"class {label}" for label in range(1000)])
    rows = found.row_of
    assert (len(found.names), found.names[rows[700]], found.names[rows[999]]) == (
        diagnostics.MAX_ROWS, "class 700", "(971 others)",
    )  # fmt: skip
    assert (found.counts.sum(), found.counts[rows[700], rows[30]], found.counts[-1, -1]) == (5009, 9, 971 * 5)


def test_21000_classes_take_no_dense_matrix() -> None:
    classes = 21_000
    labels = RANDOM.integers(0, classes, 50_000)
    predicted = np.where(RANDOM.random(50_000) < 0.7, labels, RANDOM.integers(0, classes, 50_000))
    tracemalloc.start()
    counts = diagnostics.confusion(labels, predicted, classes)
    matrix = diagnostics.matrix(counts, [f"class {label}" for label in range(classes)])
    diagnostics.confusion_csv(labels, predicted, matrix)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 100 << 20  # bytes; a dense matrix takes 3,365 MiB


def test_the_confusion_csv_has_a_line_per_example_with_names() -> None:
    labels, predicted = np.array([0, 1]), np.array([1, 1])
    rows = diagnostics.matrix(diagnostics.confusion(labels, predicted, 2), ["cat", "dog"])
    assert diagnostics.confusion_csv(labels, predicted, rows) == b"actual,predicted\ncat,dog\ndog,dog\n"


def test_bins_with_examples_equal_scikit_learns() -> None:
    accuracy, mean = calibration_curve(CORRECT, CONFIDENCE, n_bins=10)
    found = diagnostics.reliability(CONFIDENCE, CORRECT, bins=10)
    some = found.examples > 0
    assert (len(found.examples), found.examples.sum()) == (10, 500)
    assert found.accuracy[some] == pytest.approx(accuracy)
    assert found.confidence[some] == pytest.approx(mean)


@pytest.mark.parametrize(
    ("confidence", "correct", "ece"),
    # Two examples at 0.9, one correct; one at 0.6, correct: (2 * |0.5 - 0.9| + 1 * |1 - 0.6|) / 3.
    [([0.9, 0.9, 0.6], [True, False, True], 0.4), ([1, 1, 1], [True] * 3, 0.0)],
)
def test_ece_is_the_mean_distance_of_accuracy_and_confidence(confidence, correct, ece) -> None:
    found = diagnostics.reliability(np.array(confidence, np.float32), np.array(correct), bins=10)
    assert found.ece == pytest.approx(ece)


def test_probabilities_that_rounding_lifts_above_1_count() -> None:
    above = np.nextafter(np.float32([1]), np.float32(2))
    assert diagnostics.reliability(above, np.array([True]), bins=5).examples.tolist() == [0, 0, 0, 0, 1]


def test_the_reliability_csv_has_the_bins_with_examples() -> None:
    lines = diagnostics.reliability_csv(FEW).decode().splitlines()
    assert lines == ["bin,confidence,accuracy,examples", "3,0.5,1.0,1", "4,0.75,0.5,2"]


def test_a_missed_label_is_paired_with_the_added_ones_of_its_image() -> None:
    #                  right        missed and added  missed       added        nothing
    labels = np.array([[1, 1, 0], [0, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0]], np.int8)
    predicted = np.array([[1, 1, 0], [1, 0, 1], [0, 0, 0], [0, 0, 1], [0, 0, 0]], np.int8)
    counts = diagnostics.co_confusion(labels, predicted)
    assert counts.tolist() == [[1, 0, 0, 1], [1, 1, 1, 0], [0, 0, 0, 0], [0, 0, 1, 0]]
    lines = diagnostics.co_confusion_csv(labels, predicted, ["a", "b", "c"]).decode().splitlines()
    assert lines == ["actual,predicted", "a,a", "a,(none)", "b,a", "b,b", "b,c", "(none),c"]
