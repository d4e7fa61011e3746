"""Temperature and thresholds: what they promise, and when they cannot be fitted."""

import logging

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax
from scipy.stats import binomtest
from sklearn.metrics import f1_score, precision_score, recall_score

from perennial.base.config.release import PrecisionRule
from perennial.base.errors import DataError
from perennial.model.evaluation import confidence

CLASSES = 5


def drawn(examples: int, temperature: float, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Logits of a model that is too sure by this temperature, and labels as it says after it."""
    random = np.random.default_rng(seed)
    logits = (3 * temperature * random.normal(size=(examples, CLASSES))).astype(np.float32)
    cumulated = softmax(logits / temperature, axis=1).cumsum(axis=1)
    return logits, (random.random((examples, 1)) > cumulated).sum(axis=1)


def loss(logits: NDArray[np.float32], labels: NDArray[np.int64], temperature: float) -> float:
    found = log_softmax(logits.astype(np.float64) / temperature, axis=1)
    return -float(found[np.arange(len(labels)), labels].mean())


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.5])
def test_the_temperature_is_the_one_by_which_a_model_is_too_sure(temperature: float) -> None:
    assert confidence.fit_temperature(*drawn(20_000, temperature)) == pytest.approx(temperature, rel=0.03)


def test_no_other_temperature_has_a_lower_loss() -> None:
    logits, labels = drawn(60, 2.0)
    fitted = confidence.fit_temperature(logits, labels)
    losses = [loss(logits, labels, fitted * factor) for factor in (0.98, 1, 1.02)]
    assert min(losses) == losses[1]


def test_the_order_of_the_sums_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = drawn(300, 1.7)
    fitted = confidence.fit_temperature(logits, labels)
    monkeypatch.setattr(confidence, "BLOCK", 7 * CLASSES)
    nudged = logits * (1 + np.random.default_rng(1).choice([-6e-8, 6e-8], logits.shape)).astype(np.float32)
    assert confidence.fit_temperature(nudged, labels) == fitted


def test_without_mistakes_the_temperature_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    logits, _ = drawn(30, 1.0)
    assert confidence.fit_temperature(logits, logits.argmax(axis=1)) == 1
    assert "no mistake on 30 validation examples" in caplog.text


def test_a_model_that_is_always_wrong_gets_the_highest_temperature(caplog: pytest.LogCaptureFixture) -> None:
    logits, _ = drawn(30, 1.0)
    with caplog.at_level(logging.INFO):
        assert confidence.fit_temperature(logits, logits.argmin(axis=1)) == confidence.HIGHEST
    assert "the limit" in caplog.text


def test_answers_keep_the_stated_error_in_at_least_95_of_100_models() -> None:
    """Of a model that is right as often as it says; temperature and threshold are from the same examples."""
    most, broken, none = 0.1, 0, 0
    for seed in range(200):
        logits, labels = drawn(400, 2.0, seed)
        probabilities = softmax(logits / confidence.fit_temperature(logits, labels), axis=1)
        correct = probabilities.argmax(axis=1) == labels
        threshold = confidence.fit_threshold(probabilities.max(axis=1), correct, most)
        if threshold is None:
            none += 1
            continue
        further, truth = drawn(4000, 2.0, seed + 1000)
        sure = softmax(further / confidence.fit_temperature(logits, labels), axis=1)
        error = confidence.answered(sure.max(axis=1), sure.argmax(axis=1) == truth, threshold).error
        broken += error is not None and error > most
    assert none < 60
    assert binomtest(broken, 200, 0.05, alternative="greater").pvalue > 0.01


def test_a_threshold_is_the_lowest_of_which_the_limit_is_kept() -> None:
    sure = np.repeat(np.float32([0.99, 0.9, 0.6]), 200)
    correct = np.ones(600, np.bool_)
    correct[[250, 410, 420, 430, 440, 450, 460, 470, 480, 490, 500, 510, 520, 530, 540, 550]] = False
    assert 0.6 < confidence.fit_threshold(sure, correct, 0.02) <= 0.9
    assert confidence.fit_threshold(sure, correct, 0.1) == 0


def test_a_model_that_is_often_wrong_answers_nothing() -> None:
    sure, correct = np.full(500, 0.99, np.float32), np.arange(500) % 3 > 0
    assert confidence.fit_threshold(sure, correct, 0.05) is None
    found = confidence.answered(sure, correct, None)
    assert (found.answered, found.coverage, found.error) == (0, 0, None)


@pytest.mark.parametrize(("most", "least"), [(0.5, 5), (0.05, 59), (0.01, 299)])
def test_as_many_right_examples_as_are_needed_suffice(most: float, least: int) -> None:
    assert confidence.needed(most) == least
    for examples, threshold in ((least, 0), (least - 1, None)):
        sure, correct = np.full(examples, 0.7, np.float32), np.ones(examples, np.bool_)
        assert confidence.fit_threshold(sure, correct, most) == threshold


def test_too_few_examples_are_refused_with_what_they_can_show() -> None:
    with pytest.raises(DataError, match=r"needs 299 validation .* are 144; .* set it to 0\.0206 or more"):
        confidence.require_enough(144, 0.01)
    confidence.require_enough(144, 0.0206)


RANDOM = np.random.default_rng(2)
LABELS = (RANDOM.random((150, 3)) < 0.3).astype(np.uint8)
PROBABILITIES = np.round(1 / (1 + np.exp(-RANDOM.normal(2.0 * LABELS - 1, 1.0))), 2).astype(np.float32)
NAMES = ["cat", "dog", "owl"]


def predicted(found):
    return np.array(found, np.float32) <= PROBABILITIES


def test_no_other_threshold_has_a_higher_f1():
    found = confidence.choose_thresholds(LABELS, PROBABILITIES, "f1", NAMES)
    ours = f1_score(LABELS, predicted(found), average=None)
    grid = np.linspace(0.0049, 0.9949, 100)  # between all probabilities
    others = [f1_score(LABELS, each <= PROBABILITIES, average=None) for each in grid]
    np.testing.assert_allclose(ours, np.max(others, axis=0), atol=1e-12)


def test_a_precision_is_kept_with_the_most_labels_found():
    found = confidence.choose_thresholds(LABELS, PROBABILITIES, PrecisionRule(precision=0.8), NAMES)
    assert (precision_score(LABELS, predicted(found), average=None) >= 0.8).all()
    for number in range(3):
        own, recall = LABELS[:, number], recall_score(LABELS, predicted(found), average=None)[number]
        for each in np.unique(PROBABILITIES[:, number]):
            other = PROBABILITIES[:, number] >= each
            assert precision_score(own, other) < 0.8 or recall_score(own, other) <= recall


@pytest.mark.parametrize(
    ("labels", "probabilities", "rule", "expected"),
    [
        ([0, 1, 1], [0.2, 0.6, 0.9], "f1", 0.4),  # in the middle of the gap
        ([0, 1, 0, 1], [0.1, 0.3, 0.5, 0.7], "f1", 0.2),  # 4/5 with three labels, 2/3 with one
        ([1, 0, 0, 1], [0.1, 0.3, 0.5, 0.7], "f1", 0.6),  # 2/3 with one label or with all four: the fewest
        ([1, 1], [0.5, 0.5], "f1", 0.25),  # nothing below
        ([0, 1, 1], [0.5, 0.5, 0.5], PrecisionRule(precision=0.9), 1.0),  # none reaches it
        ([0, 0], [0.9, 0.8], "f1", 0.5),  # no label to choose by
    ],
)
def test_the_threshold_of_a_class_is(labels, probabilities, rule, expected):
    column = np.array(probabilities, np.float32)[:, None]
    assert confidence.choose_thresholds(np.array(labels)[:, None], column, rule, ["cat"]) == [
        pytest.approx(expected)
    ]


def test_it_lies_between_probabilities_that_differ_in_the_last_bit():
    below = np.float32(0.7)
    column = np.array([below, np.nextafter(below, np.float32(1))], np.float32)[:, None]
    (found,) = confidence.choose_thresholds(np.array([[0], [1]]), column, "f1", ["cat"])
    assert below < np.float32(found) <= column[1, 0]


def test_what_could_not_be_chosen_is_said(caplog):
    caplog.set_level(logging.WARNING)
    labels = LABELS.copy()
    labels[:, 1] = 0
    assert confidence.choose_thresholds(labels, PROBABILITIES, "f1", NAMES)[1] == 0.5
    assert "0.5 for dog: no validation example has this label" in caplog.text
    assert confidence.choose_thresholds(LABELS[:0], PROBABILITIES[:0], "f1", NAMES) == [0.5] * 3
    assert "0.5 for cat, dog, owl" in caplog.text
    assert confidence.choose_thresholds(LABELS, PROBABILITIES, 0.3, NAMES) == [0.3] * 3
