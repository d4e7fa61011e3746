"""A task for each stage, for its pins and for publishing, with retries and a time limit."""

import json

from perennial.base.errors import QualityError
from perennial.orchestration.engine import this_run
from perennial.orchestration.steps.recording import COMPARING
from perennial.orchestration.terminal.view import training_progress
from perennial.orchestration.work.dvc_repo import Results, parameter, reproduce, stages, stale
from perennial.orchestration.work.perennial_command import perennial
from perennial.orchestration.work.stage_failures import StageFailed
from tasks.policy import HOUR_S, MINUTE_S, once, retried


@retried(limit_s=HOUR_S)
def pin(results: Results, *, fetch: bool) -> Results:
    """Pin the inputs of the run: the data source, the previous data version, initial weights and teacher."""
    perennial("pin", "source", "baseline", "weights", "--fetch" if fetch else "--no-fetch")
    return results


@once()
def find_unchanged(results: Results) -> Results:
    """Add `up to date` for each stage that is so, by one check of all, which takes a third of the time.

    Nothing if a stage that makes the model is stale, or if DVC cannot check.
    """
    try:
        found = stale()
    except StageFailed:  # the affected stage will raise it, or retry
        return results
    if not found <= set(COMPARING):
        return results
    unchanged = [name for name in stages() if name not in found]
    for name in unchanged:
        this_run.log().info("%s: up to date", name, extra={"stage": name, "result": "up to date"})
    return results | dict.fromkeys(unchanged, "up to date")


@retried(limit_s=6 * HOUR_S)
def download(results: Results) -> Results:
    """Download verified source files; if the source has changed since it was pinned, a retry pins it again."""
    if this_run.tries() > 1:
        perennial("pin", "source")
    return results | _run("download")


@retried(limit_s=6 * HOUR_S)
def convert(results: Results) -> Results:
    """Write TFRecord shards and their manifest; if they are new, pin the baseline again."""
    done = _run("convert")
    if done["convert"] != "up to date":
        perennial("pin", "baseline")
    return results | done


@retried(limit_s=6 * HOUR_S)
def validate(results: Results) -> Results:
    """Validate all records, and compare them with those of the last commit."""
    return results | _run("validate")


@retried(limit_s=HOUR_S)
def initialize(results: Results) -> Results:
    """Copy the weights that the training starts from; as in `download`, a retry pins them again."""
    if this_run.tries() > 1:
        perennial("pin", "weights", "--no-fetch")
    return results | _run("initialize")


@retried(limit_s=48 * HOUR_S)
def train(results: Results) -> Results:
    """Train the model."""
    with training_progress():
        return results | _run("train")


@retried(limit_s=6 * HOUR_S)
def evaluate(results: Results) -> Results:
    """Score the model on the test split."""
    return results | _run("evaluate")


@retried(limit_s=24 * HOUR_S)  # predicts the test split once per format
def export(results: Results) -> Results:
    """Export the SavedModel and other formats."""
    return results | _run("export")


@retried(limit_s=6 * HOUR_S)  # scores the champion's export if the test split is new
def champion(results: Results) -> Results:
    """Fetch the champion's predictions on the test split."""
    return results | (_run("champion") if "champion" not in results else {})


@retried(limit_s=10 * MINUTE_S)
def gate(results: Results) -> Results:
    """Decide whether to promote the model."""
    return results | (_run("gate") if "gate" not in results else {})


@retried(limit_s=HOUR_S)  # not a DVC stage, since DVC would remove old versions before adding one
def publish(results: Results, to: str | None = None) -> Results:
    """Publish a model that passed the gate, by default to publish.url; a refusal is a result, not a failure."""
    log = this_run.log()
    try:
        published = json.loads(perennial("publish", "--json", *(["--to", to] if to else [])))
    except StageFailed as refusal:
        if refusal.exit_code != QualityError.exit_code:
            raise
        log.warning(refusal.message)
        return results | {"publish": "refused"}
    result = "ran" if published["moved"] else "up to date"
    log.info("publish: %s; version %d: %s", result, published["version"], published["path"])
    return results | {"publish": result}


def publishing() -> bool:
    """Whether the parameters name a folder to publish to."""
    return parameter("publish", "url") is not None


def _run(name: str) -> Results:
    log = this_run.log()
    result = reproduce(name, log.info)
    log.info("%s: %s", name, result, extra={"result": result})
    return {name: result}
