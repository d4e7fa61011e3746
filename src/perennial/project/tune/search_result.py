"""What a search found: a JSON document, and lines for the terminal."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from perennial.base import files
from perennial.project.tune import space
from perennial.project.tune.study import DATABASE, Trial
from perennial.project.tune.tune import Search

DOCUMENT = "tune.json"  # in the folder of the search
LISTED = 10  # trials in the terminal, the best ones
OPTIMISTIC = (
    "the best validation score of several trials is optimistic, because the choice was made by it; the test "
    "split played no part in the choice"
)


def write(found: Search, present: Trial | None, *, written: bool) -> dict[str, Any]:
    """Write the JSON document about a search; `present`: the trial with the settings before it."""
    trials = found.study.trials()
    states = [each.state for each in trials]
    document = {
        "folder": str(found.folder), "study": str(found.folder / DATABASE), "metric": found.metric,
        "search": {each.key: each.text for each in found.dimensions},
        "trials": [asdict(each) for each in trials],
        "stopped_early": states.count("stopped early") / max(len(states), 1),
        "evaluations": sum(len(each.evaluations) for each in trials),
        "best": (best := found.study.best()) and best.number, "present": present and present.number,
        "written": written, "importance": found.study.importance(), "note": OPTIMISTIC,
    }  # fmt: skip
    files.write_json(found.folder / DOCUMENT, document)
    return document


def lines(document: dict[str, Any]) -> Iterator[str]:
    """The best trials as a table, and what was done with the settings."""
    ranked = _ranked(document["trials"], maximizes=document["metric"] != "loss", best=document["best"])
    names = {document["present"]: "present", document["best"]: "best"}
    scores = tuple(dict.fromkeys((document["metric"], "loss")))
    rows = [("trial", *scores, "evaluations", "", *document["search"])]
    for each in ranked[:LISTED]:
        last = ("" if value is None else f"{value:.4f}" for value in _last(each)[: len(scores)])
        state = names.get(each["number"], each["state"])
        settings = (space.written(each["settings"][key]) for key in document["search"])
        rows.append((str(each["number"]), *last, str(len(each["evaluations"])), state, *settings))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True))
    if len(ranked) > LISTED:
        yield f"and {len(ranked) - LISTED} more trials"
    for key, share in document["importance"].items():
        yield f"importance {share:4.0%}  {key}"
    if document["written"]:
        yield f"params.yaml has the settings of trial {document['best']}; {document['note']}"
        yield "next: perennial run"
    else:
        metric = document["metric"]
        yield f"params.yaml is unchanged: no trial has a better validation {metric} than its settings"
    yield f"all trials: {document['folder']}/{DOCUMENT}"


def _ranked(trials: Sequence[dict[str, Any]], *, maximizes: bool, best: int | None) -> list[dict[str, Any]]:
    """The trials, the best one first; those that finished before those that did not."""
    sign = -1 if maximizes else 1

    def place(each: dict[str, Any]) -> tuple[bool, bool, float, int]:
        return each["number"] != best, each["score"] is None, sign * (_last(each)[0] or 0.0), each["number"]

    return sorted(trials, key=place)


def _last(each: dict[str, Any]) -> tuple[float | None, float | None]:
    """The score and the loss of a trial, or the last ones of one that did not finish."""
    if each["score"] is not None:
        return each["score"], each["loss"]
    score, loss = (next(iter(each[name][-1:]), None) for name in ("evaluations", "losses"))
    return score, loss
