"""Average precision against scikit-learn, and its interval in simulations."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from perennial.model.evaluation import average_precision


def drawn(seed: int, examples: int, classes: int, *, digits: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels and probabilities that tell something about them, rounded so that they have ties."""
    random = np.random.default_rng(seed)
    labels = (random.random((examples, classes)) < 0.3).astype(np.int8)
    logits = random.normal(1.2 * labels, 1.0)
    return labels, np.round(1 / (1 + np.exp(-logits)), digits).astype(np.float32)


@pytest.mark.parametrize("digits", [1, 2, 9])
def test_it_equals_scikit_learn_with_and_without_ties(digits):
    labels, probabilities = drawn(digits, 500, 7, digits=digits)
    found = average_precision.per_class(labels, probabilities)
    expected = [average_precision_score(labels[:, each], probabilities[:, each]) for each in range(7)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    macro, micro = (average_precision_score(labels, probabilities, average=name) for name in ("macro", "micro"))
    assert average_precision.macro(found) == pytest.approx(macro, abs=1e-12)
    flat = average_precision.average_precision(labels.ravel(), probabilities.ravel())
    assert flat == pytest.approx(micro, abs=1e-12)


def test_a_class_without_labels_has_none_and_does_not_count():
    labels, probabilities = drawn(0, 50, 3, digits=2)
    labels[:, 1] = 0
    found = average_precision.per_class(labels, probabilities)
    assert found[1] is None
    assert average_precision.macro(found) == pytest.approx((found[0] + found[2]) / 2)
    assert average_precision.macro([None, None]) == 0


@pytest.mark.parametrize("digits", [1, 9])
def test_the_influence_is_the_derivative_by_the_weight_of_an_example(digits):
    labels, probabilities = drawn(3, 20, 4, digits=digits)
    labels[:, 2] = 0

    def weighted(weights: np.ndarray) -> float:
        own = [0, 1, 3]
        pairs = ((labels[:, each], probabilities[:, each]) for each in own)
        return np.mean([average_precision_score(*pair, sample_weight=weights) for pair in pairs])

    step = 1e-6 * np.eye(len(labels))
    slopes = [(weighted(1 + each) - weighted(1 - each)) / 2e-6 for each in step]
    found = average_precision.influence(labels, probabilities)
    np.testing.assert_allclose(found, slopes, atol=1e-8)
    assert found.sum() == pytest.approx(0, abs=1e-12)


def test_the_interval_holds_the_value_of_the_population_about_as_often_as_it_says():
    labels, probabilities = drawn(5, 100_000, 5, digits=9)
    truth = average_precision.macro(average_precision.per_class(labels, probabilities))
    random, held = np.random.default_rng(0), 0
    for _ in range(400):
        rows = random.integers(0, len(labels), 200)
        low, high = average_precision.interval(labels[rows], probabilities[rows], 0.95)
        held += low <= truth <= high
    assert 0.91 <= held / 400 <= 0.98


def test_after_a_perfect_order_the_interval_is_not_one_point():
    labels = np.array([[1, 0], [0, 1], [1, 1]] * 20)
    low, high = average_precision.interval(labels, labels.astype(np.float32), 0.95)
    assert 0.8 < low < 0.99 < high == 1.0


@pytest.mark.parametrize(("labels", "ends"), [([[0, 0]] * 5, (0.0, 0.0)), ([[1, 0]] * 5, (1.0, 1.0))])
def test_without_two_kinds_of_examples_the_interval_is_one_point(labels, ends):
    assert average_precision.interval(np.array(labels), np.ones((5, 2)), 0.95) == ends
