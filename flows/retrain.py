"""The pipeline from source files to a decision about the new model."""

from typing import Annotated, Any, Literal

from pydantic import Field

from perennial.base.choices import LOST_RACE
from perennial.orchestration.engine.decorators import flow
from perennial.orchestration.guard.one_at_a_time import one_at_a_time
from perennial.orchestration.steps.artifacts import completed, retrain_run_name
from perennial.orchestration.steps.recording import lost_races, record_end
from perennial.orchestration.terminal.flow_command import run
from perennial.orchestration.work.dvc_repo import Results
from perennial.orchestration.work.parameters import check_parameters
from tasks import stages, steps
from tasks.policy import GATE_TRIES

UNPUBLISHED = ("waiting", "kept", LOST_RACE)
# A git revision; excludes what git would parse as an option.
Revision = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/+-]*$", max_length=200)]
Reason = Annotated[str, Field(max_length=500)]


@flow(run_name=retrain_run_name, at_failure=record_end)
def retrain(
    *,
    overrides: dict[str, Any] = {},  # noqa: B006 - never changed, and Prefect shows it
    rev: Revision | None = None,
    pipeline: str = "classifier",
    push: bool = False,
    publish_to: str | None = None,
    reason: Reason | None = None,
    when_busy: Literal["end", "wait"] = "end",
) -> dict[str, str]:
    """Retrain the model. Stages whose inputs are unchanged are skipped.

    Args:
        overrides: Values for keys of params.yaml, such as {"train.epochs": 2}; committed with the results.
        rev: Branch, tag or commit whose code, parameters and packages run. Default: the default branch.
        pipeline: Name under record.artifact in params.yaml; a checkout of another model is refused.
        push: Commit and push what the run makes; a model that passes the gate becomes champion.
        publish_to: Where a model that passed the gate is published instead of publish.url: a folder or s3 URL.
        reason: Why this run was started. Kept in its record and in the message of its commit.
        when_busy: What to do while another run of the same pipeline is active: end, or (with a server) wait.
    """
    with one_at_a_time(pipeline, when_busy):
        check_parameters(overrides, rev=rev, pipeline=pipeline, publish_to=publish_to)
        results = steps.start_record(reason)
        results = stages.pin(results, fetch=push)
        results = stages.find_unchanged(results)
        if not results:
            results = make_model(results, fetch=push)
        results = compare_and_record(results, push=push)
        try:
            if (publish_to or stages.publishing()) and results.get("record") not in UNPUBLISHED:
                results = stages.publish(results, publish_to)
        finally:  # summarize even if publishing fails
            facts = steps.summarize(results)
        return completed(facts)


def make_model(results: Results, *, fetch: bool) -> Results:
    """Run each stage up to the export whose inputs have changed."""
    results = steps.require_champion(results, fetch=fetch)
    results = stages.download(results)
    results = stages.convert(results)
    results = stages.validate(results)
    results = stages.initialize(results)
    results = stages.train(results)
    results = stages.evaluate(results)
    return stages.export(results)


def compare_and_record(results: Results, *, push: bool) -> Results:
    """Compare the model with the champion and record the run, again whenever the champion has changed."""
    for _ in range(GATE_TRIES if push else 1):
        results = steps.pin_champion(results, fetch=push)
        results = stages.champion(results)
        results = stages.gate(results)
        if push:
            results = steps.record(results)
        if results.get("record") != LOST_RACE:
            return results
    raise lost_races(GATE_TRIES)


if __name__ == "__main__":
    run(retrain)
