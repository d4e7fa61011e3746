"""What a run shows: its name, its artifacts and alerts on its server, and facts for the terminal.

An artifact or alert that the server does not take is no failure of the run.
"""

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any, Literal, cast

from perennial.base.errors import redacted
from perennial.base.layout import Project
from perennial.orchestration.engine import this_run
from perennial.orchestration.work.perennial_command import call_perennial, perennial
from perennial.orchestration.work.stage_failures import StageFailed

TIMEOUT_S = 60.0
Alert = Literal["promoted", "rejected", "retraining-started", "approval-wanted", "approval-expired", "drift"]
_missing: list[str] = []  # of this process
NOT_PUSHED = "not pushed"  # among the results: why
CLASSES = 20  # in the artifact; the report has more
MARKUP = re.compile(r"[\\`*_~\[\]()!#<>&|]")  # of Markdown and HTML
REASON = 60  # characters of it in the name of a run
SCORES = ("examples", "precision", "recall", "f1")


def alert(kind: Alert, words: str) -> None:
    """Emit an event about this run of a deployment, which infra/automations.yaml turns into an alert."""
    if this_run.is_deployed():
        from prefect.events import emit_event

        run = f"prefect.flow-run.{this_run.run_id()}"
        resource = {"prefect.resource.id": run, "prefect.resource.name": this_run.run_name()}
        emit_event(f"perennial.{kind}", resource=resource, payload={"words": words})


def write(content: str, key: str, description: str, kind: Literal["markdown", "image"] = "markdown") -> None:
    """Write an artifact of Markdown, or of the address of an image, or log that it is missing."""
    if not this_run.has_server():
        return
    import httpx
    from prefect import artifacts
    from prefect.settings import PREFECT_API_REQUEST_TIMEOUT, temporary_settings

    from perennial.orchestration.server.server_runs import await_server

    log, create = this_run.log(), getattr(artifacts, f"create_{kind}_artifact")
    content = redacted(content) if kind == "markdown" else content
    try:
        with temporary_settings({PREFECT_API_REQUEST_TIMEOUT: TIMEOUT_S}):
            try:
                create(content, key=key, description=description)
            except httpx.TransportError:
                if _missing:
                    raise
                await_server(log)  # once in this process, beside the retries of Prefect's client
                create(content, key=key, description=description)
    except httpx.HTTPError as error:
        _missing.append(key)
        reason = " ".join(str(error).split()) or type(error).__name__
        log.warning("artifact missing: %s: %s", key, reason)


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
        if stages := [stage for stage, how in results.items() if how == result and stage != "record"]:
            facts[result] = ", ".join(stages)
    facts |= {name: results[name] for name in ("record", NOT_PUSHED) if name in results}
    if sinks and changed:
        facts |= _sent_to_sinks()
    write(markdown(facts, per_class), "retrain", "Summary of the run")
    for name, file in pictures.items():
        # Embed the data: the server may not reach this machine's files, and a later run replaces them.
        picture = f"data:image/png;base64,{base64.b64encode(Path(file).read_bytes()).decode()}"
        write(picture, f"retrain-{name}", file, "image")
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
    if NOT_PUSHED in facts:  # nobody else has what the run made
        raise StageFailed("record", 1, facts[NOT_PUSHED])
    if not this_run.has_server():
        return facts
    from prefect.states import Completed

    recorded = f"; record: {facts['record']}" if "record" in facts else ""
    state: Any = Completed(message=facts["decision"] + recorded, data=facts)
    return cast("dict[str, str]", state)  # Prefect gives the caller its data


def run_name(what: str, why: str = "") -> str:
    """The name of a run, such as `monitor 2026-11-22 02:00`, with its reason if it has one."""
    return Project.find().titled(f"{what} {this_run.start():%Y-%m-%d %H:%M}{why}")


def retrain_run_name() -> str:
    """The name of a run: model, date and reason, such as `classifier 2026-11-22 02:00, nightly`."""
    given = this_run.parameters()
    why = given.get("reason") or this_run.deployment() or "by hand"
    return run_name(given["pipeline"], f", {shorten(why, REASON, placeholder=' ...')}")


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
