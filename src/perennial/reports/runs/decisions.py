"""Decisions against a champion as rows of a table: won, lost, p-value, its level, what would pass."""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perennial.base.config.release import GateConfig
from perennial.base.errors import printable
from perennial.model.evaluation import comparison
from perennial.release.gate import budget, compared
from perennial.release.gate.budget import Budget
from perennial.release.gate.compared import Compared
from perennial.reports.runs.run_table import Row


@dataclass(frozen=True, kw_only=True)
class Decided:
    """A run whose model was compared with a champion."""

    row: Row
    found: Compared
    opponent: str
    needed: str  # to pass


def rows(runs: Sequence[Row], records: Sequence[Mapping[str, Any]]) -> list[Decided]:
    """The runs that were compared with a champion, in their order."""
    decided = []
    for row, record in zip(runs, records, strict=True):
        decision = record.get("decision") or {}
        for found in compared.parsed([decision.get("compared")]):
            needed = _needed(found, by_label=decision.get("map") is not None)
            decided.append(Decided(row=row, found=found, opponent=printable(found.opponent), needed=needed))
    return decided


def _needed(found: Compared, *, by_label: bool) -> str:
    """The least that passes the rules for the gain, with as many images lost."""
    won, lost, examples, least = found.won, found.lost, found.examples, found.min_gain or 0.0
    if won is None or lost is None or examples is None:
        return f"+{100 * least:g} on validation" if found.validation_gain is not None else ""
    level = math.inf if found.level is None else found.level
    if by_label:
        return f"+{100 * least:g}" + (f", p-value {level:.2g}" if level < 1 else "")

    def passes(more: int) -> bool:
        return more > lost and (more - lost) / examples >= least and comparison.mcnemar(more, lost) <= level

    enough = bisect_left(range(examples - lost + 1), True, key=passes)
    return f"{enough:,} won" if enough <= examples - lost else "fewer lost"


def promise(decided: Sequence[Decided], limits: GateConfig) -> str | None:
    """What `gate.false_share` promises, and what is left of its budget; None without it."""
    said = budget.promise(limits)
    counted = [each.found for each in decided if each.found.comparisons is not None]
    if said is None:
        return None
    state = Budget()
    if last := max(counted, key=lambda each: each.comparisons or 0, default=None):
        state = Budget(last.comparisons or 0, last.promotions).after(limits, passed=last.passed)
    return f"{said}. Next is {state.text(limits)}; it passes with a p-value up to {state.level(limits):.2g}."
