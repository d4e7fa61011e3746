"""The name of a run, its progress and summary as Prefect artifacts, and facts for the terminal."""

import base64
import contextvars
import json
import logging
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from textwrap import shorten
from typing import Any
from uuid import UUID

from prefect import get_run_logger, runtime, task
from prefect.artifacts import (
    create_image_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    update_progress_artifact,
)
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from tasks.cli import perennial
from tasks.dvc import work_folder

CLASSES = 20  # in the artifact; the report has more
MARKUP = re.compile(r"[\\`*_~\[\]()!#<>&|]")  # of Markdown and HTML
REASON = 60  # characters of it in the name of a run
PROGRESS_S = 3.0  # between two looks at the file of a training
SCORES = ("examples", "precision", "recall", "f1")


@task(cache_policy=NO_CACHE)
def summarize(results: Mapping[str, str]) -> dict[str, str]:
    """Create the Prefect artifact `retrain` and one per picture; returns the facts that end the run's record.

    Raises:
        StageFailed: the results of a stage are missing.
    """
    changed = {"ran", "restored"} & set(results.values())
    end = (f"--end={runtime.flow_run.id}", f"--results={json.dumps(dict(results))}")
    report = json.loads(perennial("report", "--json", *end, *([] if changed else ["--no-page"])))
    per_class, pictures, advice = (report.pop(name) for name in ("per_class", "pictures", "advice"))
    facts = {name: str(value) for name, value in report.items()}
    if advice:
        facts["advice"] = "\n\n".join("{message}; {remedy}".format(**each) for each in advice)
    for result in ("ran", "restored", "up to date", "refused"):
        stages = [stage for stage, how in results.items() if how == result and stage != "record"]
        if stages:
            facts[result] = ", ".join(stages)
    if "record" in results:
        facts["record"] = results["record"]
    create_markdown_artifact(markdown(facts, per_class), key="retrain", description="Summary of the run")
    for name, file in pictures.items():
        # Embed the data: the server may not reach this machine's files, and a later run replaces them.
        picture = f"data:image/png;base64,{base64.b64encode(Path(file).read_bytes()).decode()}"
        create_image_artifact(picture, key=f"retrain-{name}", description=file)
    get_run_logger().info("%s", facts["decision"])
    return facts


def completed(facts: Mapping[str, str]) -> State[dict[str, str]]:
    """The final state of a run: its message is the decision and what git has of it, its data are the facts."""
    recorded = f"; record: {facts['record']}" if "record" in facts else ""
    return Completed(message=facts["decision"] + recorded, data=dict(facts))


def run_name() -> str:
    """The name of a run: pipeline, date and reason, such as `classifier 2026-11-22 02:00, nightly`."""
    given, start = runtime.flow_run.parameters, runtime.flow_run.scheduled_start_time
    why = given.get("reason") or runtime.deployment.name or "by hand"
    return f"{given['pipeline']} {start:%Y-%m-%d %H:%M}, {shorten(why, REASON, placeholder=' ...')}"


@contextmanager
def training_progress() -> Iterator[None]:
    """Show the progress of the training in this block as the Prefect artifact `training`."""
    file, over = work_folder() / "progress.json", threading.Event()
    # The run that artifacts belong to is in the context.
    run, before = contextvars.copy_context().run, _changed(file)
    thread = threading.Thread(target=lambda: run(_show_progress, file, before, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _show_progress(file: Path, shown: int, over: threading.Event) -> None:
    """Show each new content of a file until the training is over; `shown`: the change to leave out."""
    artifact: UUID | None = None
    last = False
    while not last:
        last = over.wait(PROGRESS_S)
        if (changed := _changed(file)) == shown:
            continue
        try:
            percent, text = progress(json.loads(file.read_text(encoding="utf-8")))
            if artifact is None:
                created = create_progress_artifact(percent, key="training", description=text)
                artifact = UUID(str(created))
            else:
                update_progress_artifact(artifact, percent, description=text)
        except Exception as error:  # noqa: BLE001 - the server is away; the training goes on
            logging.getLogger(__name__).debug("the progress is not shown: %s", error)
        else:
            shown = changed


def progress(training: Mapping[str, Any]) -> tuple[float, str]:
    """The progress of a training as a percentage and as text, from the file that it writes.

    The accuracy is that on validation.
    """
    shown = [f"epoch {training['epoch']} of {training['epochs']}"]
    if (accuracy := training["accuracy"]) is not None:
        shown.append(f"accuracy {accuracy:.4f}")
    if (seconds := training["seconds_left"]) is not None:
        left = str(timedelta(seconds=round(seconds)))
        shown.append(f"{left.removeprefix('0:')} left")
    if (speed := training["examples_per_second"]) is not None:  # last: a narrow terminal cuts it off
        shown.append(f"{speed:,.0f} examples/s")
    return round(100 * training["step"] / training["steps"], 1), ", ".join(shown)


def _changed(file: Path) -> int:
    """The modification time of a file in nanoseconds; 0 if it does not exist."""
    return file.stat().st_mtime_ns if file.exists() else 0


def markdown(facts: Mapping[str, str], per_class: Mapping[str, Mapping[str, float | None]]) -> str:
    """Format the decision as a heading, then tables of other facts and of classes with the lowest recall."""
    decision, _, reasons = facts["decision"].partition(": ")
    others = [(name, value) for name, value in facts.items() if name != "decision"]
    lines = [f"# {decision.capitalize()}", cell(reasons), "", *table(("fact", ""), others)]
    worst = sorted(per_class.items(), key=lambda found: _order(found[1].get("recall")))
    if worst:
        lines += ["", "## Classes", "", row("class", *SCORES), row("---", *("---:" for _ in SCORES))]
        lines += [row(name, *(_shown(found.get(score)) for score in SCORES)) for name, found in worst[:CLASSES]]
    if len(worst) > CLASSES:
        lines += ["", f"{len(worst) - CLASSES} more in `{facts['report']}`"]
    return "\n".join(lines) + "\n"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    return [row(*header), row(*("---" for _ in header)), *(row(*each) for each in rows)]


def row(*cells: str) -> str:
    """A row of a Markdown table, all markup in its cells escaped."""
    return f"| {' | '.join(map(cell, cells))} |"


def cell(text: str) -> str:
    """Text with all markup escaped, since class names may hold any character.

    It uses backslashes, because one of Prefect's two UIs shows `&#95;` literally.
    """
    return MARKUP.sub(r"\\\g<0>", " ".join(text.split()))


def _shown(score: float | None) -> str:
    return "-" if score is None else str(round(score, 4))


def _order(recall: float | None) -> float:
    """Sort key; classes without a recall come last."""
    return 2 if recall is None else recall
