"""Summary of a run: Prefect artifacts, log line, facts for the terminal."""

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path

from prefect import get_run_logger, task
from prefect.artifacts import create_image_artifact, create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from tasks.dvc import perennial

CLASSES = 20  # in the artifact; the report has more
MARKUP = re.compile(r"[\\`*_~\[\]()!#<>&|]")  # of Markdown and HTML
SCORES = ("examples", "precision", "recall", "f1")


@task(cache_policy=NO_CACHE)
def summarize(results: Mapping[str, str]) -> dict[str, str]:
    """Facts of the run; also creates the Prefect artifact `retrain` and one `retrain-NAME` for each picture.

    Raises:
        StageFailed: the results of a stage are missing.
    """
    report = json.loads(perennial("report", "--json"))
    per_class, pictures = report.pop("per_class"), report.pop("pictures")
    facts = {name: str(value) for name, value in report.items()}
    for result in ("ran", "restored", "up to date", "refused"):
        stages = [stage for stage, how in results.items() if how == result and stage != "record"]
        if stages:
            facts[result] = ", ".join(stages)
    if "record" in results:
        facts["record"] = results["record"]
    create_markdown_artifact(markdown(facts, per_class), key="retrain", description="Summary of the run")
    for name, file in pictures.items():
        # As data: the server may not reach this machine's files, and a later run replaces them.
        picture = f"data:image/png;base64,{base64.b64encode(Path(file).read_bytes()).decode()}"
        create_image_artifact(picture, key=f"retrain-{name}", description=file)
    get_run_logger().info("%s", facts["decision"])
    return facts


def markdown(facts: Mapping[str, str], per_class: Mapping[str, Mapping[str, float | None]]) -> str:
    """The decision as a heading, then tables of the other facts and of the classes with the lowest recall."""
    decision, _, reasons = facts["decision"].partition(": ")
    lines = [f"# {decision.capitalize()}", _cell(reasons), "", _row("fact", ""), _row("---", "---")]
    lines += [_row(name, value) for name, value in facts.items() if name != "decision"]
    worst = sorted(per_class.items(), key=lambda found: _order(found[1].get("recall")))
    if worst:
        lines += ["", "## Classes", "", _row("class", *SCORES), _row("---", *("---:" for _ in SCORES))]
        lines += [
            _row(name, *(_shown(found.get(score)) for score in SCORES)) for name, found in worst[:CLASSES]
        ]
    if len(worst) > CLASSES:
        lines += ["", f"{len(worst) - CLASSES} more in `{facts['report']}`"]
    return "\n".join(lines) + "\n"


def _row(*cells: str) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """Text with all markup escaped, since class names may hold any character."""
    return MARKUP.sub(lambda mark: f"&#{ord(mark[0])};", " ".join(text.split()))


def _shown(score: float | None) -> str:
    return "-" if score is None else str(round(score, 4))


def _order(recall: float | None) -> float:
    """Sort key; classes without a recall come last."""
    return 2 if recall is None else recall
