"""The budget of comparisons: levels, blocks, and what they add up to."""

import numpy as np
import pytest

from perennial.base.config.release import GateConfig
from perennial.release.gate.compared import Budget, promise

LIMITS = GateConfig(false_share=0.1, comparisons_a_year=50)


def test_a_level_grows_with_promotions_and_a_block_ends_with_them() -> None:
    state = Budget(48, 1)
    assert state.level(LIMITS) == 0.1 * 2 / 50
    state = state.after(LIMITS, passed=True)
    assert (state, state.level(LIMITS)) == (Budget(49, 2), pytest.approx(0.006))
    assert state.text(LIMITS) == "comparison 50 of 50, 2 passed before"
    assert state.after(LIMITS, passed=True) == Budget(50, 0)
    assert Budget(0, 600).level(LIMITS) == 1.0


@pytest.mark.parametrize("better", [0.0, 0.2])
def test_false_promotions_are_at_most_the_promised_share_of_all_and_one(better: float) -> None:
    """E[V] <= q (E[R] + 1), with p-values that are uniform for models that are no better."""
    random, false, promoted, blocks = np.random.default_rng(0), 0, 0, 400
    for _ in range(blocks):
        state = Budget()
        for is_better, p in zip(random.random(50) < better, random.random(50), strict=True):
            passed = bool((p / 500 if is_better else p) <= state.level(LIMITS))
            false, promoted = false + (passed and not is_better), promoted + passed
            state = state.after(LIMITS, passed=passed)
        assert state == Budget(50, 0)
    assert 0 < false / blocks <= 0.1 * (promoted / blocks + 1) * 1.1


def test_the_promise_is_one_sentence() -> None:
    assert promise(GateConfig()) is None
    assert promise(LIMITS) == "Each year, on average at most 10 % of promotions are no real gain"
