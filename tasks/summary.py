"""What a run gave, where people look: Prefect's artifacts, its log and the terminal."""

import json
import subprocess
import sys
from collections.abc import Mapping

from prefect import get_run_logger, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from tasks.dvc import Outcome, StageFailed, environment


@task(cache_policy=NO_CACHE)
def summarize(outcomes: Mapping[str, Outcome]) -> dict[str, str]:
    """The facts of the run, also as the Prefect artifact `retrain`.

    Raises:
        StageFailed: a stage's results are not there.
    """
    facts = {name: str(value) for name, value in json.loads(perennial("report", "--json")).items()}
    for outcome in ("ran", "restored", "up to date"):
        stages = [stage for stage, how in outcomes.items() if how == outcome]
        if stages:
            facts[outcome] = ", ".join(stages)
    rows = "\n".join(f"| {name} | {value} |" for name, value in facts.items())
    create_markdown_artifact(
        f"| retrain | |\n|---|---|\n{rows}\n", key="retrain", description="Summary of the run"
    )
    get_run_logger().info("%s", facts["decision"])
    return facts


def perennial(*arguments: str) -> str:
    """What a command of `perennial` prints.

    Raises:
        StageFailed: it ended with an error, which the exception repeats.
    """
    command = [sys.executable, "-m", "perennial", *arguments]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise StageFailed(arguments[0], done.returncode, done.stderr.strip())
    return done.stdout
