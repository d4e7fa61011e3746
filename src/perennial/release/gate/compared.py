"""What git keeps of the comparison of a model with its champion."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from pydantic import Field, ValidationError

from perennial.base import documents
from perennial.base.config.release import GateConfig
from perennial.model.evaluation.results import Decision
from perennial.release.gate.budget import Budget

TRAFFIC = "traffic: random"  # slice of the random labels of traffic: column and reason


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
