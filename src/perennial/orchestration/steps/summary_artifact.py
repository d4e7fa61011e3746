"""The name of a run, its progress and summary as Prefect artifacts, and facts for the terminal."""

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any, cast

from perennial.base.layout import Project
from perennial.orchestration.engine import this_run
from perennial.orchestration.server import artifacts
from perennial.orchestration.work.perennial_command import call_perennial, perennial

CLASSES = 20  # in the artifact; the report has more
MARKUP = re.compile(r"[\\`*_~\[\]()!#<>&|]")  # of Markdown and HTML
REASON = 60  # characters of it in the name of a run
SCORES = ("examples", "precision", "recall", "f1")


def summarize(results: Mapping[str, str]) -> dict[str, str]:
    """Create the Prefect artifact `retrain` and one per picture; returns facts that end the run's record."""
    changed = {"ran", "restored"} & set(results.values())
    end = (f"--end={this_run.run_id()}", f"--results={json.dumps(dict(results))}")
    report = json.loads(perennial("report", "--json", *end, *([] if changed else ["--no-page"])))
    per_class, pictures, advice, sinks = map(report.pop, ("per_class", "pictures", "advice", "sinks"))
    facts = {name: str(value) for name, value in report.items()}
    if advice:
        facts["advice"] = "\n\n".join("{message}; {remedy}".format(**each) for each in advice)
    for result in ("ran", "restored", "up to date", "refused"):
        stages = [stage for stage, how in results.items() if how == result and stage != "record"]
        if stages:
            facts[result] = ", ".join(stages)
    if "record" in results:
        facts["record"] = results["record"]
    if sinks and changed:
        facts |= _sent_to_sinks()
    artifacts.write_text(markdown(facts, per_class), "retrain", "Summary of the run")
    for name, file in pictures.items():
        # Embed the data: the server may not reach this machine's files, and a later run replaces them.
        picture = f"data:image/png;base64,{base64.b64encode(Path(file).read_bytes()).decode()}"
        artifacts.write_image(picture, f"retrain-{name}", file)
    this_run.log().info("%s", facts["decision"])
    return facts


def _sent_to_sinks() -> dict[str, str]:
    """Send the results to `logging.sinks`, and return the address of each; failures are warnings."""
    done = call_perennial("report", "--send", "--json")
    if done.exit_code:
        this_run.log().warning("%s", " ".join(done.log))
    try:
        sent = json.loads(done.output)
    except ValueError:
        return {}
    return {each["sink"]: each["place"] for each in sent if each["place"]}


def completed(facts: dict[str, str]) -> dict[str, str]:
    """What the flow returns: the facts, on a server with the decision and what git has of it as its message."""
    if not this_run.has_server():
        return facts
    from prefect.states import Completed

    recorded = f"; record: {facts['record']}" if "record" in facts else ""
    state: Any = Completed(message=facts["decision"] + recorded, data=facts)
    return cast("dict[str, str]", state)  # Prefect gives the caller its data


def retrain_run_name() -> str:
    """The name of a run: model, date and reason, such as `classifier 2026-11-22 02:00, nightly`."""
    given, start = this_run.parameters(), this_run.start()
    why = given.get("reason") or this_run.deployment() or "by hand"
    short = shorten(why, REASON, placeholder=" ...")
    return Project.find().titled(f"{given['pipeline']} {start:%Y-%m-%d %H:%M}, {short}")


def markdown(facts: Mapping[str, str], per_class: Mapping[str, Mapping[str, float | None]]) -> str:
    """Format the decision as a heading, then tables of other facts and of classes with the lowest recall."""
    decision, _, reasons = facts["decision"].partition(": ")
    others = [(name, value) for name, value in facts.items() if name != "decision"]
    lines = [f"# {decision.capitalize()}", cell(reasons), "", *markdown_table(("fact", ""), others)]
    recalls = {name: scores.get("recall") for name, scores in per_class.items()}
    worst = sorted(per_class.items(), key=lambda found: (recalls[found[0]] is None, recalls[found[0]] or 0))
    if worst:
        lines += ["", "## Classes", "", row("class", *SCORES), row("---", *("---:" for _ in SCORES))]
        for name, found in worst[:CLASSES]:
            shown = (found.get(score) for score in SCORES)
            lines.append(row(name, *("-" if score is None else str(round(score, 4)) for score in shown)))
    if len(worst) > CLASSES:
        lines += ["", f"{len(worst) - CLASSES} more in `{facts['report']}`"]
    return "\n".join(lines) + "\n"


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    return [row(*header), row(*("---" for _ in header)), *(row(*each) for each in rows)]


def row(*cells: str) -> str:
    """A row of a Markdown table, all markup in its cells escaped."""
    return f"| {' | '.join(map(cell, cells))} |"


def cell(text: str) -> str:
    """Text with all markup escaped, since class names may hold any character."""
    # It uses backslashes, because one of Prefect's two UIs shows `&#95;` literally.
    return MARKUP.sub(r"\\\g<0>", " ".join(text.split()))
