"""A person's decision about a model that passed the gate."""

from typing import Any

from perennial.orchestration.engine import this_run
from perennial.orchestration.engine.decorators import flow
from perennial.orchestration.guard.one_at_a_time import require_worth_starting
from perennial.orchestration.steps.artifacts import run_name
from perennial.orchestration.steps.wait_for_approval import announce, final_state, wait_for_answer
from perennial.orchestration.work.dvc_repo import restore
from perennial.orchestration.work.parameters import check_parameters
from tasks.server_steps import decide, read_request, show_request
from tasks.stages import publish, publishing


@flow(run_name=lambda: run_name(f"{this_run.parameters()['pipeline']}: approve"))
def approve(
    run: str, pipeline: str = "classifier", rev: str | None = None, publish_to: str | None = None
) -> Any:
    """Wait for a person, without a process, and carry out the answer.

    Args:
        run: Id of the run whose model waits.
        pipeline: Name under record.artifact in params.yaml.
        rev: Commit of that run, whose code and packages run here.
        publish_to: As in that run.
    """
    require_worth_starting()
    check_parameters(pipeline=pipeline, rev=rev, publish_to=publish_to)
    asked = read_request(run)
    if asked["state"] == "waiting":
        asked = decide(asked, wait_for_answer(show_request(asked), asked["until"]))
    elif asked["state"] in {"expired", "superseded"}:
        asked = decide(asked, None)
    announce(asked)
    if asked["state"] == "approved" and (publish_to or publishing()):
        restore("export", "gate")
        publish({}, publish_to)
    return final_state(asked)
