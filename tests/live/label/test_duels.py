"""The decision between two models by labels of their disagreements, at any peek."""

import numpy as np
import pytest

from perennial.data.datasets.readers.labelled import Label
from perennial.live.label.duels import PROMOTE, duels, e_value


def simulated(rate: float, years: int, labels: int, seed: int = 0):
    """When each of some candidates is promoted, as the number of labels; 0: never.

    `rate`: how often the candidate is right where exactly one of the two is.
    """
    limits, wins = [], 0  # the wins among so many labels that promote
    for count in range(1, labels + 1):
        while wins <= count and e_value(wins, count - wins) < PROMOTE:
            wins += 1
        limits.append(wins)
    promoted = (np.random.default_rng(seed).random((years, labels)) < rate).cumsum(axis=1) >= limits
    return np.where(promoted.any(axis=1), promoted.argmax(axis=1) + 1, 0)


def integral(wins: int, losses: int) -> float:
    """The mean likelihood ratio over shares from one half to one, by the rectangle rule."""
    shares = (np.arange(200_000) + 0.5) / 400_000 + 0.5
    return float(np.mean((2 * shares) ** wins * (2 * (1 - shares)) ** losses))


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (1, 0), (0, 1), (5, 2), (30, 12), (3, 40)])
def test_the_e_value_is_the_mean_of_the_likelihood_ratio(wins, losses):
    assert e_value(wins, losses) == pytest.approx(integral(wins, losses), rel=1e-5)


def test_an_equal_model_is_promoted_in_at_most_5_percent_of_the_cases_at_any_peek():
    promoted = simulated(0.5, years=20_000, labels=400)
    assert (promoted > 0).mean() <= 0.05


def test_disagreements_are_counted_for_each_pair_of_versions():
    def label(name, served, candidate, version="7"):
        return Label(
            sha256=f"{name}{served}", class_=name, reason="disagreement", version=version, served=served,
            candidate_version="8", candidate=candidate, time=f"2026-11-2{version}",
        )  # fmt: skip

    rows = [label("cat", "dog", "cat"), label("dog", "dog", "cat"), label("", "dog", "cat")]
    rows += [label("cat", "cat", "cat"), label("cat", "dog", "cat", "6")]
    assert [(each.version, each.wins, each.losses, each.neither) for each in duels(rows)] == [
        ("7", 1, 1, 1), ("6", 1, 0, 0),
    ]  # fmt: skip
