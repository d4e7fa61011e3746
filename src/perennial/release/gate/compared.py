"""What git keeps of the comparison of a model with its champion, and the budget of comparisons."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from pydantic import Field, ValidationError

from perennial.base import documents
from perennial.base.config.release import GateConfig
from perennial.model.evaluation.results import Decision

TRAFFIC = "traffic: random"  # slice of the random labels of traffic: column and reason


class Budget(NamedTuple):
    """The state of `gate.false_share` before a comparison: few promotions of models that are no better.

    LOND (A. Javanmard and A. Montanari, Online rules for control of false discovery rate, Annals of Statistics
    46, 2018) in blocks of N comparisons: a comparison has the level q (1 + R) / N, with R promotions before it
    in its block. If each p-value is valid given the decisions before it, a block has at most q (1 + E[R]) false
    promotions on average: their expectations are at most the sum of the levels, which is at most q (1 + R).
    """

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


class Compared(documents.JsonFile):
    """A decision against a champion, in the record of a run and in the tag of a version."""

    opponent: str
    model: str  # digest of the weights
    passed: bool  # every rule of the gate
    validation_gain: float | None = None
    # Of the test split, or of its labels of traffic if these passed; these five are None where not asked.
    examples: int | None = None
    won: int | None = None
    lost: int | None = None
    gain: float | None = None
    p_value: float | None = None
    level: float | None = None  # the highest p-value that passes
    min_gain: float | None = None
    comparisons: int | None = Field(default=None, ge=0)  # state of the budget before it (gate.false_share)
    promotions: int = Field(default=0, ge=0)


def facts(decision: Decision) -> dict[str, Any] | None:
    """What a record keeps of a decision; None without a champion."""
    if decision.champion is None:
        return None
    found, limits = decision.comparison or {}, {each.name: each for each in decision.checks}
    validated, levels = limits.get("validation_gain"), ("significance", "false_share", "traffic_gain")
    tested = next((limits[name] for name in levels if name in limits), None)
    if of_traffic := promoted_by_traffic(decision):
        found = of_traffic | {
            "gain": of_traffic["candidate"] - of_traffic["champion"],
            "p_value": limits["traffic_gain"].value,
        }
    gains = (limits[name].limit for name in ("min_gain", "validation_gain") if name in limits)
    known = {
        "validation_gain": validated and validated.value,
        **{name: found.get(name) for name in ("examples", "won", "lost", "gain", "p_value")},
        "min_gain": next(gains, None),
        **(decision.budget or {}),
        **({"level": tested.limit} if tested else {}),
    }
    who = {"opponent": decision.champion.version, "model": decision.candidate.model, "passed": decision.promote}
    return who | {name: value for name, value in known.items() if value is not None}


def promoted_by_traffic(decision: Decision) -> dict[str, Any] | None:
    """The random labels of traffic, as in a comparison, if their gain passed and not that on all images."""
    if not any(each.name == "traffic_gain" and each.passed for each in decision.checks):
        return None
    slices = (decision.comparison or {}).get("slices", ())
    return next((each for each in slices if each["name"] == TRAFFIC), None)


def parsed(found: Iterable[object]) -> Iterator[Compared]:
    """Those of the values that are valid: anyone with push access can write them."""
    for each in found:
        with suppress(ValidationError):
            yield Compared.model_validate(each)


def budget_after(found: Iterable[Compared], limits: GateConfig) -> Budget:
    """The state of the budget after comparisons; two models with one number were compared at the same time."""
    counted = [(each.comparisons, each) for each in found if each.comparisons is not None]
    last = max((number for number, _ in counted), default=0)
    newest = {(each.model, each.opponent): each for number, each in counted if number == last}
    state = Budget(last, min((each.promotions for each in newest.values()), default=0))
    for each in newest.values():
        state = state.after(limits, passed=each.passed)
    return state
