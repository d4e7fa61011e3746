"""What a search found: a JSON document, lines for the terminal and an HTML page with plots."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from perennial.base import files
from perennial.data.validation import html
from perennial.model.evaluation.plots import COLORS, HEIGHT, WIDTH, Plot
from perennial.project.tune import space
from perennial.project.tune.study import Trial
from perennial.project.tune.tune import Search
from perennial.project.tune.winner import Experiment

PAGE, DOCUMENT = "tune.html", "tune.json"  # in the folder of the search
# A legend that covers no points.
ABOVE: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": 3, "columnspacing": 1}
LISTED = 10  # trials in the terminal, the best ones
OPTIMISTIC = (
    "the best validation score of several trials is optimistic, because the choice was made by it; the test "
    "split played no part in the choice"
)


def write(
    found: Search, present: Trial | None, *, written: bool, experiment: Experiment | None
) -> dict[str, Any]:
    """Write the page and the JSON document about a search; returns the document.

    `present`: the trial with the settings before this search. `written`: whether the best ones replaced them.
    """
    trials = found.study.trials()
    states = [each.state for each in trials]
    document = {
        "folder": str(found.folder),
        "page": str(found.folder / PAGE),
        "metric": found.metric,
        "search": {each.key: each.text for each in found.dimensions},
        "trials": [asdict(each) for each in trials],
        "stopped_early": states.count("stopped early") / max(len(states), 1),
        "evaluations": sum(len(each.evaluations) for each in trials),
        "best": (best := found.study.best()) and best.number,
        "present": present and present.number,
        "written": written,
        "importance": found.study.importance(),
        "experiment": experiment and asdict(experiment),
        "note": OPTIMISTIC,
    }
    files.write_bytes(
        found.folder / PAGE, _render(document, trials, best=best, maximizes=found.study.maximizes).encode()
    )
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
    yield from _done(document)
    yield f"page: {document['page']}"


def _done(document: dict[str, Any]) -> Iterator[str]:
    best, metric, made = document["best"], document["metric"], document["experiment"]
    if document["written"]:
        yield f"params.yaml has the settings of trial {best}; {document['note']}"
    elif made is None:
        yield f"params.yaml is unchanged: no trial has a better validation {metric} than its settings"
    if made is not None:
        between = made["test_interval"]
        within = f", between {between[0]:.4f} and {between[1]:.4f}" if between else ""
        same = "as" if made["repeats"] else "not as"
        score = f"validation {metric} {made['score']:.4f}, {same} in trial {made['trial']}"
        yield f"experiment {made['name']}: {score}"
        yield f"test accuracy of the experiment: {made['test_accuracy']:.4f}{within}"


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


def _render(document: dict[str, Any], trials: Sequence[Trial], *, best: Trial | None, maximizes: bool) -> str:
    pages = html.environment(Path(__file__).parent)
    return pages.get_template("tune.html.jinja").render(
        found=document,
        best=best,
        ranked=_ranked(document["trials"], maximizes=maximizes, best=document["best"]),
        figures=[
            _by_trial(trials, document["metric"], maximizes=maximizes),
            _curves(trials, document["metric"], best),
        ],
        last=_last,
        written=space.written,
        colors=COLORS,
    )


def _by_trial(trials: Sequence[Trial], metric: str, *, maximizes: bool) -> Plot:
    """The last score of each trial, and the best one so far."""
    scored = [
        (each, each.score if each.score is not None else each.evaluations[-1])
        for each in trials
        if each.evaluations
    ]
    finished = [(each.number, score) for each, score in scored if each.state == "finished"]
    others = [(each.number, score) for each, score in scored if each.state != "finished"]
    better = max if maximizes else min
    record = [
        (number, better(score for _, score in finished[: place + 1]))
        for place, (number, _) in enumerate(finished)
    ]

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot(title=f"Validation {metric} by trial", xlabel="trial")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        for points, color, label in (
            (others, COLORS["soft"], "stopped early"),
            (finished, COLORS["accent"], "finished"),
        ):
            axes.plot(*(zip(*points, strict=True) if points else ([], [])), "o", ms=4, color=color, label=label)
        if record:
            axes.step(
                *zip(*record, strict=True), where="post", color=COLORS["second"], lw=1.2, label="best so far"
            )
        axes.grid(axis="y")
        axes.legend(**ABOVE)

    text = f"Validation {metric} by trial: {len(finished)} finished, {len(others)} did not"
    return Plot(name="trials", description=text, draw=draw, width=1.4 * WIDTH, height=1.2 * HEIGHT)


def _curves(trials: Sequence[Trial], metric: str, best: Trial | None) -> Plot:
    """The score of each trial after each evaluation."""

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot(title=f"Validation {metric} by evaluation", xlabel="evaluation")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        for each in trials:
            chosen = best is not None and each.number == best.number
            color = COLORS["accent" if chosen else "second" if each.before else "soft"]
            label = "best" if chosen else "present settings" if each.before else None
            steps = range(1, len(each.evaluations) + 1)
            (line,) = axes.plot(steps, each.evaluations, ".-", color=color, label=label)
            line.set(lw=1.8 if label else 0.8, alpha=1 if label else 0.5, zorder=3 if label else 2)
        axes.grid(axis="y")
        axes.legend(**ABOVE)

    text = f"Validation {metric} of each trial by evaluation; the best one is highlighted"
    return Plot(name="curves-of-trials", description=text, draw=draw, width=1.4 * WIDTH, height=1.2 * HEIGHT)
