"""A task for each stage, for its pins and for publishing, with retries and a time limit."""

import json
from typing import Literal

from prefect import get_run_logger
from prefect.runtime import task_run

from perennial.orchestration.steps.progress_artifact import training_progress
from perennial.orchestration.work.dvc_repo import Result, parameter, reproduce, stages, stale
from perennial.orchestration.work.perennial_command import perennial
from perennial.orchestration.work.stage_failures import ExitCode, StageFailed
from tasks.policy import HOUR_S, MINUTE_S, once, retried


@retried(timeout_s=HOUR_S)
def pin() -> None:
    """Pin the inputs of the run: the data source, the previous data version, initial weights."""
    perennial("pin", "source", "baseline", "weights")


@once()
def unchanged() -> dict[str, str]:
    """Return `up to date` for each stage that makes the model; empty if any is stale or DVC cannot check them.

    If there is nothing to do, one check of all stages takes a third of the time of a check per stage.
    """
    making = [name for name in stages() if name not in {"champion", "gate"}]  # a pin comes before these
    try:
        if not stale().isdisjoint(making):
            return {}
    except StageFailed:  # the affected stage will raise it, or retry
        return {}
    log = get_run_logger()
    for name in making:
        log.info("%s: up to date", name, extra={"stage": name, "result": "up to date"})
    return dict.fromkeys(making, "up to date")


@retried(timeout_s=6 * HOUR_S)
def download() -> Result:
    """Download verified source files; if the source has changed since it was pinned, a retry pins it again."""
    if task_run.run_count > 1:
        perennial("pin", "source")
    return _run("download")


@retried(timeout_s=6 * HOUR_S)
def convert() -> Result:
    """Write TFRecord shards and their manifest; if they are new, pin the baseline again."""
    result = _run("convert")
    if result != "up to date":
        perennial("pin", "baseline")
    return result


@retried(timeout_s=6 * HOUR_S)
def validate() -> Result:
    """Validate all records, and compare them with those of the last commit."""
    return _run("validate")


@retried(timeout_s=HOUR_S)
def initialize() -> Result:
    """Copy the weights that the training starts from; as in `download`, a retry pins them again."""
    if task_run.run_count > 1:
        perennial("pin", "weights")
    return _run("initialize")


@retried(timeout_s=48 * HOUR_S)
def train() -> Result:
    """Train the model."""
    with training_progress():
        return _run("train")


@retried(timeout_s=6 * HOUR_S)
def evaluate() -> Result:
    """Score the model on the test split."""
    return _run("evaluate")


@retried(timeout_s=24 * HOUR_S)  # predicts the test split once per format
def export() -> Result:
    """Export the SavedModel and other formats."""
    return _run("export")


@retried(timeout_s=6 * HOUR_S)  # scores the champion's export if the test split is new
def champion() -> Result:
    """Fetch the champion's predictions on the test split."""
    return _run("champion")


@retried(timeout_s=10 * MINUTE_S)
def gate() -> Result:
    """Decide whether to promote the model."""
    return _run("gate")


@retried(timeout_s=HOUR_S)  # not a DVC stage, since DVC would remove old versions before adding one
def publish(to: str | None = None) -> Result | Literal["refused"]:
    """Publish a model that passed the gate, by default to publish.url; a refusal is a result, not a failure."""
    log = get_run_logger()
    try:
        published = json.loads(perennial("publish", "--json", *(["--to", to] if to else [])))
    except StageFailed as refusal:
        if refusal.exit_code != ExitCode.NOT_GOOD_ENOUGH:
            raise
        log.warning(refusal.message)
        return "refused"
    result: Result = "ran" if published["moved"] else "up to date"
    log.info("publish: %s; version %d: %s", result, published["version"], published["path"])
    return result


def publishing() -> bool:
    """Whether the parameters name a folder to publish to."""
    return parameter("publish", "url") is not None


def _run(name: str) -> Result:
    log = get_run_logger()
    result = reproduce(name, log.info)
    log.info("%s: %s", name, result, extra={"result": result})
    return result
