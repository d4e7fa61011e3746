"""Thresholds of several labels an image, chosen on validation examples."""

import logging

import numpy as np
import pytest
from sklearn.metrics import f1_score, precision_score, recall_score

from perennial.base.config.release import PrecisionRule
from perennial.model.evaluation import thresholds

RANDOM = np.random.default_rng(2)
LABELS = (RANDOM.random((300, 3)) < 0.3).astype(np.uint8)
PROBABILITIES = np.round(1 / (1 + np.exp(-RANDOM.normal(2.0 * LABELS - 1, 1.0))), 2).astype(np.float32)
NAMES = ["cat", "dog", "owl"]


def predicted(found):
    return np.array(found, np.float32) <= PROBABILITIES


def test_no_other_threshold_has_a_higher_f1():
    found = thresholds.choose(LABELS, PROBABILITIES, "f1", NAMES)
    ours = f1_score(LABELS, predicted(found), average=None)
    grid = np.linspace(0.001, 0.999, 400)
    others = [f1_score(LABELS, each <= PROBABILITIES, average=None) for each in grid]
    np.testing.assert_allclose(ours, np.max(others, axis=0), atol=1e-12)


def test_a_precision_is_kept_with_the_most_labels_found():
    found = thresholds.choose(LABELS, PROBABILITIES, PrecisionRule(precision=0.8), NAMES)
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
    assert thresholds.choose(np.array(labels)[:, None], column, rule, ["cat"]) == [pytest.approx(expected)]


def test_it_lies_between_probabilities_that_differ_in_the_last_bit():
    below = np.float32(0.7)
    column = np.array([below, np.nextafter(below, np.float32(1))], np.float32)[:, None]
    (found,) = thresholds.choose(np.array([[0], [1]]), column, "f1", ["cat"])
    assert below < np.float32(found) <= column[1, 0]


def test_what_could_not_be_chosen_is_said(caplog):
    caplog.set_level(logging.WARNING)
    labels = LABELS.copy()
    labels[:, 1] = 0
    assert thresholds.choose(labels, PROBABILITIES, "f1", NAMES)[1] == 0.5
    assert "0.5 for dog: no validation example has this label" in caplog.text
    assert thresholds.choose(LABELS[:0], PROBABILITIES[:0], "f1", NAMES) == [0.5] * 3
    assert "0.5 for cat, dog, owl" in caplog.text
    assert thresholds.choose(LABELS, PROBABILITIES, 0.3, NAMES) == [0.3] * 3
