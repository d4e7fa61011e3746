"""What git keeps of the comparison of a model with its champion."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from pydantic import Field, ValidationError

from perennial.base import documents
from perennial.model.evaluation.results import Decision


class Compared(documents.JsonFile):
    """A decision against a champion, in the record of a run and in the tag of a version."""

    opponent: str
    model: str  # digest of the weights
    passed: bool  # every rule of the gate
    validation_gain: float | None = None
    examples: int | None = None  # of the test split; these five are None where it was not asked
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
    tested, validated = limits.get("significance"), limits.get("validation_gain")
    known = {
        "validation_gain": validated and validated.value,
        **{name: found.get(name) for name in ("examples", "won", "lost", "gain", "p_value")},
        "level": tested and tested.limit,
        "min_gain": next(
            (limits[name].limit for name in ("min_gain", "validation_gain") if name in limits), None
        ),
        **(decision.budget or {}),
    }
    who = {"opponent": decision.champion.version, "model": decision.candidate.model, "passed": decision.promote}
    return who | {name: value for name, value in known.items() if value is not None}


def parsed(found: Iterable[object]) -> Iterator[Compared]:
    """Those of the values that are valid: anyone with push access can write them."""
    for each in found:
        with suppress(ValidationError):
            yield Compared.model_validate(each)
