"""A check of the gate, and the sentence that explains its result."""

from typing import NamedTuple

from perennial.model.evaluation.results import Check


class Judged(NamedTuple):
    """A check, with the sentence that explains its result."""

    check: Check
    reason: str


def against(
    name: str, what: str, value: float, limit: float, *, least: bool = False, rule: str | None = None
) -> Judged:
    """Check a value against a limit: a maximum or, with `least`, a minimum; `rule`: its own name."""
    passed = value >= limit if least else value <= limit
    reached, missed = ("reaches", "is below") if least else ("is within", "is above")
    # Rounded, unless rounding would make a near miss look like a pass.
    near = float(f"{value:.4g}") == float(f"{limit:.4g}") and value != limit
    digits = 17 if near else 4
    reason = f"{what} {value:.{digits}g} {reached if passed else missed} gate.{name} {limit:.{digits}g}"
    return judged(rule or name, value, limit, reason, passed=passed)


def judged(name: str, value: float | None, limit: float | None, reason: str, *, passed: bool) -> Judged:
    """A check whose result is known."""
    return Judged(Check(name=name, value=value, limit=limit, passed=passed), reason)
