"""Runs as rows of a table: when, on what, the score with its interval, and what became of the model."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from os.path import commonprefix
from typing import Any, NamedTuple

from pydantic import ValidationError
from rich.cells import cell_len, set_cell_size

from perennial.base import layout
from perennial.base.config import Config
from perennial.base.errors import PerennialError, printable
from perennial.model.evaluation import results
from perennial.model.evaluation.results import ClassMetrics, OfOneLabel, Scored, Share, ValidationScores
from perennial.release.registry import run_records
from perennial.release.registry.access import open_registry

FACTS = ("revision", "changes", "lock", "data")  # of a record, that are printed
SHORT = 8  # characters of a run's name that are shown at least
LEAST = 8  # characters that are left of a text which is cut
# What `recorded` says, in the words of the glossary.
WORDS = {
    "not promoted": "rejected",
    "refused": "champion changed",
    "waiting": "waits for approval",
    "kept": "kept, not pushed",
}
ENDS = {2: "wrong parameters", 3: "wrong data", 4: "not good enough", 75: "interrupted"}  # by exit code


class Evaluation(ValidationScores):
    """A point of the curves of a training."""

    loss: float | None = None


class RunScores(Scored):
    """The scores in the record of a run."""

    model: str  # digest of the weights
    map: Share | None = None  # on the test split, of several labels an image
    accuracy: OfOneLabel = None  # the same, of one label
    low: Share  # ends of its 95 % interval
    high: Share
    loss: float
    per_class: dict[str, ClassMetrics]
    evaluations: list[Evaluation]
    predictions: str  # digest of the file in DVC's cache


def scores_of(record: Mapping[str, Any]) -> RunScores | None:
    """The scores in a record; None if an earlier version wrote it, or if somebody pushed other values."""
    with suppress(ValidationError):
        return RunScores.model_validate(record.get("scores"))
    return None


@dataclass(frozen=True, kw_only=True)
class Row:
    """A run in a table; None where something is not recorded."""

    run: str
    short: str  # the start of its name, which no other run has
    started: str | None  # in UTC
    data_set: str
    model: str
    accuracy: float | None  # on the test split, 0..1
    map: float | None  # in its place, of several labels an image
    low: float | None  # ends of its interval
    high: float | None
    result: str
    version: str | None  # that it became
    seconds: float | None  # since it was last started

    @property
    def score(self) -> float | None:
        """The accuracy, or the macro mean average precision, 0..1."""
        return self.map if self.accuracy is None else self.accuracy

    @property
    def outcome(self) -> str:
        """The result, with the version."""
        return f"{self.result} {self.version}" if self.version else self.result


class Column(NamedTuple):
    """A column of a table in a terminal."""

    head: str
    is_number: bool = False
    may_be_cut: bool = False


def rows(config: Config, records: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The rows of these records, in their order."""
    names = {*(each["run"] for each in records)}.union(*run_records.known(config))
    short, made = _shortest(names), dict[object, str]()
    with suppress(PerennialError):  # without git there are no versions
        for version in open_registry(config, fetch=False).registry.versions:
            by_run = version.facts.get("run") in names
            made[version.facts.get("run" if by_run else "model")] = version.name
    return [_row(record, short[record["run"]], _version(record, made)) for record in records]


def _version(record: Mapping[str, Any], made: Mapping[object, str]) -> str | None:
    """The version that a run became: by its name or, if a person promoted it, by its model."""
    passed = (record.get("decision") or {}).get("promote") and not record.get("recorded")
    scores = scores_of(record)
    return made.get(record["run"]) or (made.get(scores.model) if passed and scores else None)


def _row(record: Mapping[str, Any], short: str, version: str | None) -> Row:
    params, scores = record.get("params"), scores_of(record)
    main = scores.model_dump() if scores else record.get("decision") or {}
    started = [time for time in map(_time, (record.get("started"), *record.get("started_again", ()))) if time]
    ended = _time(record.get("ended"))
    return Row(
        run=record["run"], short=short, model=_name(params, "model"),
        started=started[0].isoformat(timespec="seconds") if started else None,
        data_set=layout.data_set(_name(params, "dataset"), _name(params, "record", "artifact")),
        accuracy=main.get("accuracy"), map=main.get("map"),
        low=scores.low if scores else None, high=scores.high if scores else None,
        result=_result(record, version), version=version,
        seconds=(ended - started[-1]).total_seconds() if started and ended else None,
    )  # fmt: skip


def _name(params: object, section: str, key: str = "name") -> str:
    """The name that a section of parameters chose, in a record that anyone with push access can write."""
    chosen = params.get(section) if isinstance(params, Mapping) else None
    return printable(str(chosen[key])) if isinstance(chosen, Mapping) and key in chosen else "-"


def _shortest(names: set[str]) -> dict[str, str]:
    """The shortest start of each name that no other name has; a name of few characters is not cut."""
    ordered = ["", *sorted(names), ""]
    found = {}
    for before, name, after in zip(ordered, ordered[1:], ordered[2:], strict=False):
        shared = max(len(commonprefix((name, other))) for other in (before, after))  # noqa: RUF071 - of characters
        length = max(shared + 1, SHORT)
        found[name] = name if len(name) <= length + SHORT // 2 else name[:length]
    return found


def _result(record: Mapping[str, Any], version: str | None) -> str:
    """What became of a run, in a few words."""
    outcome, recorded, stages = record.get("outcome"), record.get("recorded"), record["stages"]
    decided = record.get("decision")
    done = "promoted" if version else WORDS.get(recorded or "", recorded)
    if outcome is None and not done:
        return f"not ended: {stages[-1]['stage']}" if stages else "started"
    if outcome in {None, run_records.COMPLETED}:
        judged = "passed" if decided and decided["promote"] else "rejected" if decided else "completed"
        return printable(done or judged)
    failed = next((each for each in reversed(stages) if each["exit_code"]), None)
    why = ENDS.get(failed["exit_code"], f"in {failed['stage']}") if failed else outcome.lower()
    return printable(f"{done}, then {outcome.lower()}" if done else f"failed: {why}")


def lines(found: Sequence[Row], width: int) -> Iterator[str]:
    """The table for a terminal; what all rows share is said once, above it."""
    if not found:
        yield "no run is recorded here; `git fetch` gets those that were pushed"
        return
    shared = [name for name in ("data_set", "model") if len({getattr(row, name) for row in found}) == 1]
    varying = [name for name in ("data_set", "model") if name not in shared]
    if shared:
        yield from (f"All of {', '.join(getattr(found[0], name) for name in shared)}:", "")
    of = [Column(" AND ".join(varying).replace("_", " ").upper(), may_be_cut=True)] if varying else []
    columns = [
        Column("RUN"), Column("STARTED, UTC"), *of, Column(f"{score_name(found).upper()}, 95 %"),
        Column("RESULT", may_be_cut=True), Column("TIME", is_number=True),
    ]  # fmt: skip
    cells = []
    for row in found:
        named = [", ".join(getattr(row, name) for name in varying)] if varying else []
        scored = score(row.score, row.low, row.high)
        cells.append([row.short, _day(row.started), *named, scored, row.outcome, duration(row.seconds)])
    yield from table(columns, cells, width)


def record_lines(record: Mapping[str, Any], row: Row) -> Iterator[str]:
    """The facts of a record for a terminal."""
    found = {key: record.get(key) for key in ("run", "started", "ended", *FACTS)}
    found |= {f"{score_name([row])}, 95 %": None if row.score is None else score(row.score, row.low, row.high)}
    found |= {"result": row.outcome}
    found |= {f"stage {each['stage']}": f"{each['started']} to {each['ended']}" for each in record["stages"]}
    return (f"{name:<20} {value}" for name, value in found.items() if value is not None)


def table(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """The lines of a table; columns that may be cut are, the widest first, until it fits."""
    widths = [max(map(cell_len, texts)) for texts in zip([each.head for each in columns], *cells, strict=True)]
    flexible = [place for place, column in enumerate(columns) if column.may_be_cut]
    while sum(widths) + 2 * (len(widths) - 1) > width and any(widths[place] > LEAST for place in flexible):
        widths[max(flexible, key=lambda place: widths[place])] -= 1
    for row in ([each.head for each in columns], *cells):
        fitted = []
        for text, size, column in zip(row, widths, columns, strict=True):
            shown = text if cell_len(text) <= size else f"{set_cell_size(text, size - 1).rstrip()}…"
            space = " " * (size - cell_len(shown))
            fitted.append(space + shown if column.is_number else shown + space)
        yield "  ".join(fitted).rstrip()


def score_name(found: Sequence[Row]) -> str:
    """The name of the runs' scores: accuracy, mAP or, of both, score."""
    names = {results.named_score(vars(row))[0] for row in found if row.score is not None}
    return names.pop() if len(names) == 1 else "score"


def score(value: float | None, low: float | None, high: float | None) -> str:
    """A share with its interval, in percent; `-` where it is not recorded."""
    if value is None:
        return "-"
    interval = "" if low is None or high is None else f" ({100 * low:.1f}-{100 * high:.1f})"
    return f"{100 * value:.1f}{interval}"


def duration(seconds: float | None) -> str:
    """Seconds for people, in one unit."""
    if seconds is None:
        return "-"
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _day(time: str | None) -> str:
    """When a run started: the time of day only in this year."""
    if time is None:
        return "-"
    found = datetime.fromisoformat(time)
    return f"{found:%d %b %H:%M}" if found.year == datetime.now(UTC).year else f"{found:%d %b %Y}"


def _time(text: object) -> datetime | None:
    """A time in a record, in UTC."""
    with suppress(ValueError, OverflowError):
        found = datetime.fromisoformat(str(text))
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    return None
