"""Two runs compared: what changed, their scores, and the test examples that only one of them gets right."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from perennial.base import documents
from perennial.base.choices import SCORE_NAMES
from perennial.base.config import Config
from perennial.base.errors import DataError, PerennialError, printable
from perennial.model.evaluation import comparison, intervals, predictions
from perennial.model.evaluation.comparison import Champion, Comparison
from perennial.release.audit.sides import DvcObjects
from perennial.reports.runs import run_table
from perennial.reports.runs.run_table import Column

# Facts that differ between any two runs, and scores, which are compared apart.
OWN = {"run", "started", "started_again", "ended", "stages", "recorded", "approval", "message", "request",
       "scores", "environment.prefix"}  # fmt: skip
# Kinds of differences, as `perennial why` names them, by the start of a key; others are results.
KINDS = {
    "params.": "parameters", "environment.packages.": "packages", "environment.python": "packages",
    "revision": "code", "edits": "code", "data": "data", "champion": "champion", "machine.": "hardware",
}  # fmt: skip
NAMES = {"revision": "commit", "edits": "uncommitted edits"}
FACTS = ("run", "started, UTC", "data set, model", "result", "{score}, 95 %", "test loss", "time")
SHOWN = 20  # classes
DIGEST = 32  # hexadecimal digits, at least
HEXADECIMAL = frozenset("0123456789abcdef")


def facts(record: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a run that may be those of another run, by full key."""
    found = documents.flattened({key: value for key, value in record.items() if key not in OWN})
    return {key: value for key, value in found.items() if key not in OWN}


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The facts in which two runs differ, apart from times."""
    a, b = facts(one), facts(other)
    return [
        {"what": key, "a": a.get(key), "b": b.get(key)}
        for key in sorted(a.keys() | b.keys())
        if a.get(key) != b.get(key)
    ]


def input_of(key: str) -> tuple[str, str] | None:
    """The kind and the name of the input that a fact is; None of a result."""
    for start, kind in KINDS.items():
        if key == start or (start.endswith(".") and key.startswith(start)):
            return kind, key.removeprefix(start) or NAMES.get(key, key)
    return None


def document(
    config: Config, a: Mapping[str, Any], b: Mapping[str, Any], commits: Sequence[Any] | None
) -> dict[str, Any]:
    """The JSON document; commits: how they differ, as `perennial why` finds it, or None if it is unknown."""
    found = differences(a, b)
    named = ((input_of(each["what"]), each) for each in found)
    rows = run_table.rows(config, (a, b))
    recorded = [{**each, "kind": of[0], "what": of[1]} for of, each in named if of]
    try:
        compared, note = _compared(a, b), None
    except PerennialError as error:
        compared, note = None, str(error)
    return {
        "a": a["run"], "b": b["run"], "differences": found,
        "runs": list(map(asdict, rows)), "score": run_table.score_name(rows),
        "changed": recorded if commits is None else list(map(asdict, commits)),
        "loss": [each and each.loss for each in map(run_table.scores_of, (a, b))],
        "paired": compared and _paired(compared), "unpaired": note, "classes": list(_classes(a, b, compared)),
    }  # fmt: skip


def _compared(a: Mapping[str, Any], b: Mapping[str, Any]) -> Comparison:
    """The gate's comparison of B with A as its champion."""
    digests = []
    for record in (a, b):
        if (scores := run_table.scores_of(record)) is None:
            raise DataError(f"the scores of run {record['run']} are not recorded")
        digests.append((scores.predictions, f"the file of predictions of run {record['run']}"))
    with DvcObjects() as objects:
        one, other = (predictions.read(objects.file(*each)) for each in digests)
    if one.multilabel != other.multilabel:
        raise DataError("one gives one label an image, the other several, so nothing of them can be compared")
    if one.split_digest != other.split_digest:
        raise DataError("they were scored on different test images, so only their intervals can be compared")
    top, champion = other.judged(), Champion.of(one, commit="", version=a["run"])
    if top.multilabel:  # by exact match: permutations of average precisions may take minutes
        return comparison.counted(top, champion, comparison.correct(top, champion), ())
    return comparison.compare(top, champion)


def _paired(found: Comparison) -> dict[str, Any]:
    won, lost = found.won, found.lost
    return {
        "examples": found.examples, "only_a": lost, "only_b": won,
        "gain": found.gain, "gain_low": found.gain_low, "gain_high": found.gain_high,
        "p_value": min(1.0, 2 * comparison.mcnemar(max(won, lost), min(won, lost))),
    }  # fmt: skip


def _classes(a: Mapping[str, Any], b: Mapping[str, Any], found: Comparison | None) -> list[dict[str, Any]]:
    """The recall of each class by both models, the largest change first."""
    sides = [each.per_class if each else {} for each in map(run_table.scores_of, (a, b))]
    groups = {group.name: group for group in found.classes} if found else {}
    rows = []
    for name in dict.fromkeys(each for side in sides for each in side):
        row: dict[str, Any] = {"class": name}
        for key, side in zip("ab", sides, strict=True):
            examples, recall = (side[name].examples, side[name].recall) if name in side else (0, None)
            low, high = intervals.wilson(round((recall or 0) * examples), examples)
            row |= {f"{key}_examples": examples, key: recall, f"{key}_low": low, f"{key}_high": high}
        group = groups.get(name)
        rows.append(row | {"only_a": group and group.lost, "only_b": group and group.won})
    return sorted(rows, key=lambda row: -abs((row["a"] or 0) - (row["b"] or 0)))


def lines(found: Mapping[str, Any], width: int) -> Iterator[str]:
    """The comparison for a terminal."""
    sides = [_side(row, loss) for row, loss in zip(found["runs"], found["loss"], strict=True)]
    names = [fact.format(score=found["score"]) for fact in FACTS]
    heads = [Column(""), Column("A", may_be_cut=True), Column("B", may_be_cut=True)]
    yield from run_table.table(heads, list(zip(names, *sides, strict=True)), width)
    yield from ("", *_paired_lines(found), "")
    yield from changed_lines(found["changed"], width)
    yield ""
    yield from _class_lines(found["classes"], width)


def _side(row: Mapping[str, Any], loss: float | None) -> list[str]:
    """The facts of one run, as FACTS names them."""
    return [
        row["run"],
        str(row["started"] or "-")[:16].replace("T", " "),
        f"{row['data_set']}, {row['model']}",
        " ".join(filter(None, (row["result"], row["version"]))),
        run_table.score(row["map"] if row["accuracy"] is None else row["accuracy"], row["low"], row["high"]),
        "-" if loss is None else f"{loss:.4f}",
        run_table.duration(row["seconds"]),
    ]


def _paired_lines(found: Mapping[str, Any]) -> Iterator[str]:
    paired = found["paired"]
    if paired is None:
        yield f"The same test images cannot be compared: {found['unpaired']}"
        return
    exact = ", by exact match" if found["score"] == SCORE_NAMES["multilabel"] else ""
    yield (
        f"On the same {paired['examples']:,} test images, B alone is right on {paired['only_b']:,}, "
        f"A alone on {paired['only_a']:,}."
    )
    yield (
        f"B - A{exact}: {100 * paired['gain']:+.1f} points, 95 % interval {100 * paired['gain_low']:+.1f} to "
        f"{100 * paired['gain_high']:+.1f}, p = {paired['p_value']:.2g}"
    )


def changed_lines(changed: Sequence[Mapping[str, Any]], width: int) -> Iterator[str]:
    """The differences of two runs, or of two revisions as `perennial why` finds them, for a terminal."""
    if not changed:
        yield "Nothing that a run reads has changed."
        return
    columns = [Column("CHANGED"), *(Column(head, may_be_cut=True) for head in ("", "A", "B"))]
    cells = [
        [
            each["kind"] if each.get("decides", True) else f"({each['kind']})",
            printable(" ".join(filter(None, (each["what"], each.get("changes"))))),
            shown(each["a"]),
            shown(each["b"]),
        ]
        for each in changed
    ]
    yield from run_table.table(columns, cells, width)
    if not all(each.get("decides", True) for each in changed):
        yield "What stands in brackets cannot change the score."


def shown(value: object) -> str:
    """A value of a parameter, or the start of a digest."""
    text = "none" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    is_digest = len(text) >= DIGEST and HEXADECIMAL.issuperset(text.removesuffix(".dir"))
    return text[:10] if is_digest else printable(text)


def _class_lines(classes: Sequence[Mapping[str, Any]], width: int) -> Iterator[str]:
    if not classes:
        yield "The scores of classes are not recorded."
        return
    changed = [each for each in classes if each["a"] != each["b"]]
    if not changed:
        yield f"The recall of all {len(classes)} classes is the same."
        return
    columns = [
        Column("CLASS", may_be_cut=True), Column("IMAGES", is_number=True), Column("A, 95 %"),
        Column("B, 95 %"), Column("B - A", is_number=True), Column("ONLY A", is_number=True),
        Column("ONLY B", is_number=True),
    ]  # fmt: skip
    cells = [
        [
            printable(each["class"]),
            f"{each['b_examples'] or each['a_examples']:,}",
            *(run_table.score(each[key], each[f"{key}_low"], each[f"{key}_high"]) for key in "ab"),
            "-" if None in (each["a"], each["b"]) else f"{100 * (each['b'] - each['a']):+.1f}",
            *("-" if each[key] is None else str(each[key]) for key in ("only_a", "only_b")),
        ]
        for each in changed[:SHOWN]
    ]
    yield from run_table.table(columns, cells, width)
    if (more := len(changed) - SHOWN) > 0:
        yield f"and {more} more classes"
    if same := len(classes) - len(changed):
        yield f"unchanged: {same} class{'es' if same > 1 else ''}"
