"""What a run gave, where people look: Prefect's artifacts, its log and the terminal."""

import base64
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from prefect import get_run_logger, task
from prefect.artifacts import create_image_artifact, create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from tasks.dvc import StageFailed, environment

CLASSES = 20  # in the artifact; the report has more
MARKUP = re.compile(r"[\\`*_~\[\]()!#<>&|]")  # of Markdown and HTML
SCORES = ("examples", "precision", "recall", "f1")


@task(cache_policy=NO_CACHE)
def summarize(outcomes: Mapping[str, str]) -> dict[str, str]:
    """The facts of the run; also as the Prefect artifact `retrain`, its pictures as `retrain-NAME`.

    Raises:
        StageFailed: a stage's results are not there.
    """
    told = json.loads(perennial("report", "--json"))
    per_class, pictures = told.pop("per_class"), told.pop("pictures")
    facts = {name: str(value) for name, value in told.items()}
    for outcome in ("ran", "restored", "up to date", "refused"):
        stages = [stage for stage, how in outcomes.items() if how == outcome]
        if stages:
            facts[outcome] = ", ".join(stages)
    create_markdown_artifact(markdown(facts, per_class), key="retrain", description="Summary of the run")
    for name, file in pictures.items():
        # As data: the server need not reach this machine's files, and what runs later changes nothing.
        picture = f"data:image/png;base64,{base64.b64encode(Path(file).read_bytes()).decode()}"
        create_image_artifact(picture, key=f"retrain-{name}", description=file)
    get_run_logger().info("%s", facts["decision"])
    return facts


def markdown(facts: Mapping[str, str], per_class: Mapping[str, Mapping[str, float | None]]) -> str:
    """The outcome as a heading, the other facts and the scores of the classes as tables, the worst first."""
    outcome, _, reasons = facts["decision"].partition(": ")
    lines = [f"# {outcome.capitalize()}", _cell(reasons), "", _row("fact", ""), _row("---", "---")]
    lines += [_row(name, value) for name, value in facts.items() if name != "decision"]
    worst = sorted(per_class.items(), key=lambda found: _order(found[1].get("recall")))
    if worst:
        lines += ["", "## Classes", "", _row("class", *SCORES), _row("---", *("---:" for _ in SCORES))]
        lines += [
            _row(name, *(_shown(found.get(score)) for score in SCORES)) for name, found in worst[:CLASSES]
        ]
    if len(worst) > CLASSES:
        lines += ["", f"and {len(worst) - CLASSES} more, which `{facts['report']}` tells of"]
    return "\n".join(lines) + "\n"


def perennial(*arguments: str) -> str:
    """What a command of `perennial` prints.

    Raises:
        StageFailed: it ended with an error, which the exception repeats.
    """
    command = [sys.executable, "-m", "perennial", *arguments]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise StageFailed(arguments[0], max(done.returncode, 0) or 1, done.stderr.strip())
    return done.stdout


def _row(*cells: str) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """A text that is no markup, whatever a class is called."""
    return MARKUP.sub(lambda mark: f"&#{ord(mark[0])};", " ".join(text.split()))


def _shown(score: float | None) -> str:
    return "-" if score is None else str(round(score, 4))


def _order(recall: float | None) -> float:
    """What nothing is known of comes last."""
    return 2 if recall is None else recall
