"""A person's decision about a model that passed the gate."""

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State

from tasks.approval import (
    announce,
    decide,
    final_state,
    look,
    publish_approved,
    run_name,
    show,
    wait_for_answer,
)
from tasks.guard import require_worth_starting
from tasks.parameters import check_parameters


@flow(flow_run_name=run_name, log_prints=True)
def approve(
    run: str, pipeline: str = "classifier", rev: str | None = None, publish_to: str | None = None
) -> State[Any]:
    """Wait for a person, without a process, and carry out the answer.

    Args:
        run: Id of the run whose model waits.
        pipeline: Name under record.artifact in params.yaml.
        rev: Commit of that run, whose code and packages run here.
        publish_to: As in that run.
    """
    require_worth_starting()
    check_parameters(pipeline=pipeline, rev=rev, publish_to=publish_to)
    asked = look(run)
    if asked["state"] == "waiting":
        asked = decide(run, wait_for_answer(show(asked), asked["until"]))
    elif asked["state"] in {"expired", "superseded"}:
        asked = decide(run, None)
    announce(asked)
    if asked["state"] == "approved":
        publish_approved(publish_to)
    return final_state(asked)
