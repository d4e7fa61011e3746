"""The permutation test of average precision."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.metrics import average_precision_score

from perennial.model.evaluation import label_comparison

RANDOM = np.random.default_rng(0)
LABELS = (RANDOM.random((60, 2)) < 0.3).astype(np.int8)
OURS = RANDOM.random((60, 2)) + 0.5 * LABELS
THEIRS = np.round(RANDOM.random((60, 2)) + 0.4 * LABELS, 1)  # with ties


def macro(scores: list[NDArray[np.float64]]) -> float:
    pairs = zip(LABELS.T, scores, strict=True)
    return float(np.mean([average_precision_score(own, score) for own, score in pairs]))


def test_each_exchange_gives_the_gain_that_scikit_learn_finds() -> None:
    classes = [label_comparison._ranks(*each) for each in zip(LABELS.T != 0, OURS.T, THEIRS.T, strict=True)]
    swapped = label_comparison._swapped("seed", 0, len(LABELS))
    ours, theirs = ([rankdata(column) for column in each.T] for each in (OURS, THEIRS))
    expected = [
        macro([np.where(one, b, a) for a, b in zip(ours, theirs, strict=True)])
        - macro([np.where(one, a, b) for a, b in zip(ours, theirs, strict=True)])
        for one in (swapped != 0).T
    ]
    assert label_comparison._gains(classes, swapped) == pytest.approx(expected, abs=1e-6)
    assert 0.4 < swapped.mean() < 0.6


def test_equal_rankings_and_classes_without_a_label_are_no_gain() -> None:
    surer = 1 / (1 + np.exp(-9 * OURS))  # the same ranks
    assert label_comparison.p_value(LABELS, OURS, surer, "seed") == 1
    assert label_comparison.p_value(LABELS * 0, OURS, THEIRS, "seed") == 1


def test_a_clear_gain_has_the_least_value_and_its_opposite_stops_early(monkeypatch: pytest.MonkeyPatch) -> None:
    perfect, least = LABELS + 0.1 * RANDOM.random((60, 2)), 1 / (label_comparison.SWAPS + 1)
    assert label_comparison.p_value(LABELS, perfect, THEIRS, "seed") == least
    monkeypatch.setattr(label_comparison, "SWAPS", 1 << 40)
    assert label_comparison.p_value(LABELS, THEIRS, perfect, "seed", 1 << 40) == 1


def test_of_equally_good_models_few_are_called_better() -> None:
    found = []
    for seed in range(200):
        random = np.random.default_rng(seed)
        labels = (random.random((120, 3)) < 0.2).astype(np.int8)
        hard = random.standard_normal((120, 3))
        one, other = (labels + hard + 0.6 * random.standard_normal((120, 3)) for _ in range(2))
        found.append(label_comparison.p_value(labels, one, 0.3 * other - 2, str(seed), 1984))
    assert 0.01 <= np.mean(np.array(found) <= 0.05) <= 0.1
    assert 0.4 < np.mean(np.array(found) <= 0.5) < 0.6
