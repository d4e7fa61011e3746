"""The search among changes, on scores made up for it: how often it is right, how many it trains."""

import math
import random
from collections.abc import Collection
from typing import Any

import numpy as np
import pytest

from perennial.model.evaluation.predictions import Predictions
from perennial.reproduce.why import chain, effect
from perennial.reproduce.why.chain import Bisection, Untestable
from perennial.reproduce.why.effect import Outcome, RecordedScores


def outcome(accuracy: float) -> Outcome:
    scores = RecordedScores(accuracy=accuracy, examples=1000)
    return Outcome(name="", scores=scores, predictions=None, records=None)


def test_several_labels_an_image_are_compared_by_exact_sets_and_named() -> None:
    scores = RecordedScores(map_macro=0.5, examples=2)
    given = np.array([[1, 1], [0, 0]], np.int8)
    sides = []
    for probabilities in ([[0.9, 0.9], [0.1, 0.1]], [[0.9, 0.1], [0.9, 0.1]]):
        found = Predictions(
            labels=given, probabilities=np.array(probabilities, np.float32), classes=("cat", "dog"),
            split="test", thresholds=np.array([0.5, 0.5], np.float32), data="", split_digest="", model="",
        )  # fmt: skip
        sides.append(Outcome(name="", scores=scores, predictions=found, records=None))
    changes = effect.compare_examples(sides[0], sides[1], None)
    assert changes is not None
    assert (sides[0].score, changes.only_a, changes.only_b) == (0.5, 2, 0)
    assert [(each.label, each.a, each.b) for each in changes.flips] == [
        ("cat, dog", "cat, dog", "cat"),
        ("none", "none", "cat"),
    ]
    assert changes.classes == {"dog": (1.0, 0.0)}


def search(
    scores: list[float], *, broken: Collection[int] = (), recorded: Collection[int] = ()
) -> tuple[Bisection, int]:
    """The search on the score of each state, and how many it measured."""
    measured = list[int]()

    def measure(state: Any) -> Outcome:
        if state in broken:
            raise Untestable(f"{state}")
        measured.append(state)
        return outcome(scores[state])

    last = len(scores) - 1
    known = {n: outcome(scores[n]) for n in {0, last, *recorded}}
    return chain.bisect(range(len(scores)), known, measure), len(measured)  # type: ignore[arg-type]


@pytest.mark.parametrize("changes", range(1, 40))
def test_each_culprit_is_found_with_at_most_the_logarithm_of_trainings(changes: int) -> None:
    for culprit in range(changes):
        scores = [0.9 if n <= culprit else 0.7 for n in range(changes + 1)]
        found, measured = search(scores)
        assert (found.low, found.high) == (culprit, culprit + 1)
        assert measured <= math.ceil(math.log2(changes))
        assert found.share == pytest.approx(1)


def test_harmless_changes_and_noise_do_not_mislead() -> None:
    draws, right = random.Random(0), 0
    for _ in range(300):
        changes = draws.randint(4, 16)
        culprit = draws.randrange(changes)
        scores = [(0.9 if n <= culprit else 0.8) + draws.gauss(0, 0.015) for n in range(changes + 1)]
        right += search(scores)[0].low == culprit
    assert right >= 290


def test_recorded_scores_cost_no_training() -> None:
    scores = [0.9] * 5 + [0.7] * 4
    found, measured = search(scores, recorded={4, 5})
    assert (found.low, found.high, measured) == (4, 5, 0)


def test_states_without_a_score_are_passed_over() -> None:
    scores = [0.9] * 5 + [0.7] * 4
    found, _ = search(scores, broken={4})
    assert (found.low, found.high, set(found.untestable)) == (3, 5, {4})
    found, _ = search(scores, broken={2, 6})
    assert (found.low, found.high) == (4, 5)
    found, measured = search(scores, broken=set(range(1, 8)))
    assert (found.low, found.high, measured) == (0, 8, 0)


def test_the_largest_of_several_causes_is_found() -> None:
    found, _ = search([0.9, 0.88, 0.88, 0.7, 0.7, 0.68])
    assert (found.low, found.high, found.share) == (2, 3, pytest.approx(0.18 / 0.22))


def test_an_improvement_is_found_as_well() -> None:
    found, _ = search([0.5, 0.5, 0.9, 0.9])
    assert (found.low, found.high) == (1, 2)


def test_noise_is_at_least_one_example_and_the_difference_that_was_seen() -> None:
    start: Any = type("Start", (), {"commit": None, "before": None})

    def noise(change: float) -> chain.Noise:
        return chain.noise(start, outcome(0.9), 3, lambda _: outcome(0.9 + change))

    assert (noise(0.0).deviation, noise(-0.02).seed, round(noise(-0.02).limit, 6)) == (1 / 1000, 4, 0.04)
