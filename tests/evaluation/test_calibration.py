"""How sure a model is against how often it is right."""

import numpy as np
import pytest
from sklearn.calibration import calibration_curve

from perennial.evaluation import calibration

RANDOM = np.random.default_rng(0)
PROBABILITIES = RANDOM.dirichlet(np.full(4, 0.3), 500).astype(np.float32)
LABELS = RANDOM.integers(0, 4, 500)


def test_every_example_is_in_one_interval() -> None:
    found = calibration.reliability(PROBABILITIES, LABELS, bins=15)
    assert (len(found.examples), found.examples.sum()) == (15, 500)


def test_intervals_that_have_examples_are_those_of_scikit_learn() -> None:
    confidence, right = PROBABILITIES.max(axis=1), PROBABILITIES.argmax(axis=1) == LABELS
    accuracy, mean = calibration_curve(right, confidence, n_bins=10)
    found = calibration.reliability(PROBABILITIES, LABELS, bins=10)
    some = found.examples > 0
    assert found.accuracy[some] == pytest.approx(accuracy)
    assert found.confidence[some] == pytest.approx(mean)


def test_the_error_is_the_mean_distance_of_sure_and_right() -> None:
    # Two examples at 0.9, one right; one at 0.6, right: (2 * |0.5 - 0.9| + 1 * |1 - 0.6|) / 3.
    probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]], np.float32)
    found = calibration.reliability(probabilities, np.array([0, 1, 1]), bins=10)
    assert found.ece == pytest.approx(0.4)


def test_a_model_that_is_sure_and_right_has_no_error() -> None:
    probabilities = np.eye(3, dtype=np.float32)
    assert calibration.reliability(probabilities, np.arange(3), bins=15).ece == 0.0


def test_probabilities_that_rounding_lifts_above_one_count() -> None:
    above = np.nextafter(np.float32(1), np.float32(2))
    found = calibration.reliability(np.array([[above, 0]], np.float32), np.array([0]), bins=5)
    assert found.examples.tolist() == [0, 0, 0, 0, 1]
