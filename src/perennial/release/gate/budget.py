"""The budget of comparisons (`gate.false_share`): few promotions of models that are no better, over years.

LOND (A. Javanmard and A. Montanari, Online rules for control of false discovery rate, Annals of Statistics 46,
2018) in blocks of N comparisons: a comparison has the level q (1 + R) / N, with R promotions before it in its
block. If each p-value is valid given the decisions before it, a block has at most q (1 + E[R]) false promotions
on average: their expectations are at most the sum of the levels, which is at most q (1 + R).
"""

from typing import NamedTuple

from perennial.base.config.release import GateConfig


class Budget(NamedTuple):
    """The state before a comparison."""

    comparisons: int = 0  # with the test split, of all blocks
    promotions: int = 0  # models that passed in this block

    def level(self, limits: GateConfig) -> float:
        """The highest p-value that passes; `gate.false_share` must be set."""
        return min((limits.false_share or 0.0) * (1 + self.promotions) / limits.comparisons_a_year, 1.0)

    def after(self, limits: GateConfig, *, passed: bool) -> "Budget":
        """The state after a comparison."""
        ends = (self.comparisons + 1) % limits.comparisons_a_year == 0
        return Budget(self.comparisons + 1, 0 if ends else self.promotions + passed)

    def text(self, limits: GateConfig) -> str:
        """Which comparison this is, in words."""
        number = self.comparisons % limits.comparisons_a_year + 1
        return f"comparison {number:,} of {limits.comparisons_a_year:,}, {self.promotions:,} passed before"


def promise(limits: GateConfig) -> str | None:
    """What `gate.false_share` promises; None without it."""
    if (share := limits.false_share) is None:
        return None
    return f"Each year, on average at most {100 * share:g} % of promotions are no real gain"
