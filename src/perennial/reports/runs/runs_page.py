"""All runs as an HTML page that needs no network: a table to sort and filter, curves, comparison, decisions."""

import base64
import hashlib
import json
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perennial.base import files
from perennial.base.config.release import GateConfig
from perennial.base.errors import ConfigError, printable
from perennial.data.validation import html
from perennial.model.evaluation import comparison
from perennial.release.gate import compared
from perennial.release.gate.compared import Compared
from perennial.reports.runs import run_comparison, run_table
from perennial.reports.runs.run_table import Row

MARK = b'<meta name="generator" content="perennial runs">'
DIGITS = 5  # of a share
POINTS = 200  # of a curve, about


@dataclass(frozen=True, kw_only=True)
class Decided:
    """A run whose model was compared with a champion, as a row of the table of decisions."""

    row: Row
    found: Compared
    opponent: str
    needed: str  # to pass


def write(file: Path, rows: Sequence[Row], records: Sequence[Mapping[str, Any]], limits: GateConfig) -> None:
    """Write the page, over an earlier one only."""
    if file.exists() and MARK not in file.read_bytes():
        raise ConfigError(f"{file} is not a page of runs, so it was not replaced; name another file")
    files.write_bytes(file, render(rows, records, limits, datetime.now(UTC)).encode())


def render(
    rows: Sequence[Row], records: Sequence[Mapping[str, Any]], limits: GateConfig, made: datetime
) -> str:
    """The page; equal arguments give equal text."""
    script = (Path(__file__).parent / "runs.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # `<` would end the element that holds it.
    content = json.dumps(_content(rows, records), separators=(",", ":"), allow_nan=False).replace(
        "<", "\\u003c"
    )
    template = html.environment(Path(__file__).parents[1]).get_template("runs/runs.html.jinja")
    mark, decided = MARK.decode(), _decided(rows, records)
    return template.render(
        rows=rows, made=made, mark=mark, script=script, digest=digest, content=content, score=run_table.score,
        scored=run_table.score_name(rows), duration=run_table.duration,
        decided=decided, promise=_promise(decided, limits),
    )  # fmt: skip


def _decided(runs: Sequence[Row], records: Sequence[Mapping[str, Any]]) -> list[Decided]:
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


def _promise(decided: Sequence[Decided], limits: GateConfig) -> str | None:
    """What `gate.false_share` promises, and what is left of its budget; None without it."""
    if (said := compared.promise(limits)) is None:
        return None
    state = compared.budget_after((each.found for each in decided), limits)
    return f"{said}. Next is {state.text(limits)}; it passes with a p-value up to {state.level(limits):.2g}."


def _content(rows: Sequence[Row], records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the script shows of each run; what many runs have in common stands in it once."""
    inputs = [_inputs(record) for record in records]
    keys = sorted({key for each in inputs for key in each})
    varying = [key for key in keys if len({each.get(key) for each in inputs}) > 1]
    classes: dict[tuple[Any, ...], int] = {}
    runs = []
    for row, record, own in zip(rows, records, inputs, strict=True):
        scores = run_table.scores_of(record)
        per_class = scores.per_class if scores else {}
        counts = tuple((printable(name), each.examples) for name, each in per_class.items())
        curve = scores.evaluations if scores else []
        every = len(curve) // POINTS + 1
        runs.append(
            {
                "id": row.short,
                "loss": scores and scores.loss,
                "curve": [[each.step, _short(each.score), _short(each.loss)] for each in curve[::-every][::-1]],
                "classes": classes.setdefault(counts, len(classes)),
                "recall": [_short(each.recall) for each in per_class.values()],
                "inputs": [own.get(key) for key in varying],
            }
        )
    return {"runs": runs, "keys": varying, "classes": list(classes)}


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, DIGITS)


def _inputs(record: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """The inputs of a run by kind and name, as text."""
    named = ((run_comparison.input_of(key), value) for key, value in run_comparison.facts(record).items())
    return {(key[0], printable(key[1])): run_comparison.shown(value) for key, value in named if key is not None}
