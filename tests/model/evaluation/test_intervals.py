"""How often intervals contain the true value, and how often tests find a difference where there is none."""

import itertools
import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, binomtest

from perennial.model.evaluation import comparison, intervals

SIZES = (1, 2, 5, 24, 50, 100, 359)
SHARES = (0.0, 0.001, 0.01, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 0.95, 0.99, 0.993, 0.999, 1.0)
MEAN_SIZES = (24, 50, 100, 359)
SAMPLES = 500
Losses = Callable[[np.random.Generator, int], NDArray[np.float64]]


def classifier(mistakes: float) -> tuple[Losses, float]:
    """Losses of a classifier with this share of mistakes, and their true mean."""

    def draw(random: np.random.Generator, size: int) -> NDArray[np.float64]:
        right, wrong = math.log(2) * random.beta(0.3, 6, size), math.log(2) + random.exponential(1.5, size)
        return np.where(random.random(size) < mistakes, wrong, right)

    return draw, (1 - mistakes) * math.log(2) * 0.3 / 6.3 + mistakes * (math.log(2) + 1.5)


LOSSES: dict[str, tuple[Losses, float]] = {
    **{f"{mistakes:.1%} mistakes": classifier(mistakes) for mistakes in (0.005, 0.02, 0.1, 0.3)},
    "chance": (lambda random, size: random.normal(math.log(10), 0.2, size), math.log(10)),
    "exponential": (lambda random, size: random.exponential(1, size), 1.0),
    "log-normal": (lambda random, size: random.lognormal(0, 1, size), math.exp(0.5)),
}


@cache
def ends(examples: int, level: float) -> NDArray[np.float64]:
    """The intervals of a share by the number of hits, shape [examples + 1, 2]."""
    return np.array([intervals.share(hits, examples, level) for hits in range(examples + 1)])


def coverage(examples: int, share: float, level: float = intervals.LEVEL) -> float:
    """The probability that the interval of a sample contains the true share, summed over all samples."""
    low, high = ends(examples, level).T
    inside = (low <= share) & (share <= high)
    return float(binom.pmf(np.arange(examples + 1), examples, share)[inside].sum())


@pytest.mark.parametrize("examples", SIZES)
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_the_interval_of_a_share_contains_it_at_least_as_often_as_it_says(examples: int, level: float) -> None:
    found = {share: coverage(examples, share, level) for share in SHARES}
    assert min(found.values()) >= level - 1e-12


@pytest.mark.parametrize("examples", [24, 359])
def test_the_interval_of_a_share_is_hardly_wider_than_it_must_be(examples: int) -> None:
    found = np.mean([coverage(examples, share) for share in np.linspace(0.05, 0.95, 50)])
    assert 0.95 < found < 0.98


@pytest.mark.parametrize("examples", MEAN_SIZES)
@pytest.mark.parametrize("name", LOSSES)
def test_the_interval_of_a_mean_loss_contains_it_about_as_often_as_it_says(name: str, examples: int) -> None:
    draw, true = LOSSES[name]
    random = np.random.default_rng(examples)
    found = [intervals.mean(draw(random, examples), math.log(10)) for _ in range(SAMPLES)]
    covered = float(np.mean([low <= true <= high for low, high in found]))
    assert covered >= 0.92  # 0.94, less three standard errors of 500 samples


@pytest.mark.parametrize("examples", [24, 50, 100, 359])
def test_the_interval_of_a_gain_contains_it_about_as_often_as_it_says(examples: int) -> None:
    most = int(binom.ppf(1 - 1e-6, examples, 0.2))
    pairs = [each for each in itertools.product(range(most + 1), repeat=2) if sum(each) <= examples]
    (won, lost), ends = np.transpose(pairs), np.array([intervals.gain(*each, examples) for each in pairs])
    found = {}
    for discordant, better in itertools.product((0.005, 0.02, 0.1, 0.2), (0.5, 0.7, 1.0)):
        chances = binom.pmf(won + lost, examples, discordant) * binom.pmf(won, won + lost, better)
        gain = discordant * (2 * better - 1)
        found[discordant, better] = float(chances[(ends[:, 0] <= gain) & (gain <= ends[:, 1])].sum())
    assert min(found.values()) >= 0.93


@pytest.mark.parametrize("rate", [0.5, 0.8, 0.95])
def test_wilsons_interval_contains_the_true_share_as_often_as_it_says_on_average(rate: float) -> None:
    covered = []
    for examples in range(100, 130):
        ends = np.array([intervals.wilson(hits, examples) for hits in range(examples + 1)])
        chances = binom.pmf(np.arange(examples + 1), examples, rate)
        covered.append(float(chances[(ends[:, 0] <= rate) & (rate <= ends[:, 1])].sum()))
    assert np.mean(covered) == pytest.approx(0.95, abs=0.01)


def test_wilsons_interval_is_that_of_scipy() -> None:
    for hits, examples in ((0, 10), (7, 10), (306, 340), (50, 50)):
        expected = binomtest(hits, examples).proportion_ci(method="wilson")
        assert intervals.wilson(hits, examples) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_the_interval_of_equal_losses_is_not_a_point() -> None:
    low, high = intervals.mean(np.zeros(24), math.log(10))
    assert (low, high > 0.1) == (0, True)
    low, high = intervals.mean(np.full(24, 2.0), math.log(10))
    assert low == pytest.approx(2)
    assert high > 2


def test_a_single_example_has_intervals() -> None:
    assert intervals.share(1, 1) == pytest.approx((0.025, 1.0))
    low, high = intervals.mean(np.array([0.5]), math.log(10))
    assert 0 <= low < 0.5 < high < math.inf


@pytest.mark.parametrize("discordant", [1, 5, 24, 100])
@pytest.mark.parametrize("significance", [0.002, 0.05])
def test_equal_models_pass_the_test_of_the_gate_at_most_as_often_as_its_significance(
    discordant: int, significance: float
) -> None:
    p_values = np.array([comparison.mcnemar(won, discordant - won) for won in range(discordant + 1)])
    chances = binom.pmf(np.arange(discordant + 1), discordant, 0.5)
    one_sided = float(chances[p_values <= significance].sum())
    two_sided = float(chances[np.minimum(1, 2 * np.minimum(p_values, p_values[::-1])) <= significance].sum())
    assert max(one_sided, two_sided) <= significance
