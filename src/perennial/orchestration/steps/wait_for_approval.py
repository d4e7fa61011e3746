"""A person's decision: the run that waits for it without a process, and what starts that run."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from prefect import get_client
from prefect.client.schemas.objects import State, StateType
from prefect.flow_runs import suspend_flow_run
from prefect.input import RunInput
from prefect.states import Cancelled, Completed, Scheduled
from pydantic import Field, ValidationError

from perennial.base.errors import ConfigError, QualityError
from perennial.base.layout import Project
from perennial.orchestration.engine import this_run
from perennial.orchestration.server.server_runs import Ours, Runs, in_states, of_flows
from perennial.orchestration.steps import artifacts
from perennial.orchestration.steps.artifacts import Alert, alert, cell, markdown_table
from perennial.orchestration.work.perennial_command import perennial
from perennial.orchestration.work.stage_failures import StageFailed

FLOW, NAME = "approve", "person"  # of the deployment that waits for a person
ALERTS: Mapping[str, Alert] = {"approved": "promoted", "rejected": "rejected", "expired": "approval-expired"}
KEY = "answer"  # identifies the pause, so that a restarted run finds the answer


class Answer(RunInput):
    """The form in Prefect's UI."""

    decision: Literal["approve", "reject"] = Field(description="Does this model become the champion?")
    name: str = Field(min_length=1, max_length=200, description="Who you are; it is recorded in git.")
    reason: str = Field(default="", max_length=1000, description="Why; recorded, too.")


def ask_for_approval() -> None:
    """Start the run that waits for a person's answer about this one; only one, however often this is called."""
    run, log = str(this_run.run_id()), this_run.log()
    same = {name: this_run.parameters()[name] for name in ("pipeline", "publish_to")}
    parameters = {"run": run, "rev": read_request(run)["commit"], **same}
    deployment = f"{FLOW}/{Project.find().deployment(NAME)}"
    with get_client(sync_client=True) as client:
        ours = Ours(client, str(same["pipeline"]))
        try:
            found = ours.deployment(deployment)
        except ConfigError as error:
            log.warning("%s; `perennial approve %s` answers", error, run)
            return
        made = client.create_flow_run_from_deployment(
            found.id, parameters=parameters, tags=["approval"], idempotency_key=f"approve {run}"
        )
        # Wake the runs that wait for an answer about an older model of this pipeline, so that they end.
        for each in ours.runs(of_flows(FLOW), in_states(StateType.PAUSED), ours.owner.pipeline):
            if each.parameters.get("run") != run:
                client.set_flow_run_state(each.id, Scheduled(message="A newer model waits for an answer."))
    log.info("run %s waits for a person's answer", made.name)


def show_request(asked: Mapping[str, Any]) -> str:
    """Create the artifact `approval` and the alert, once each; returns the text, which the form shows, too."""
    text = markdown(asked)
    before = Runs(str(this_run.parameters()["pipeline"])).history()
    if all(state.type != StateType.PAUSED for state in before):
        artifacts.write(text, "approval", "What a person is asked to approve")
        words = [f"waits for an answer until {asked['until'][:16]} UTC", *asked["reasons"]]
        alert("approval-wanted", "\n".join(words))
    return text


def wait_for_answer(text: str, until: str) -> Answer | None:
    """Suspend the run, without a process, until a person answers; None: nobody answered in time."""
    left = (datetime.fromisoformat(until) - datetime.now(UTC)).total_seconds()
    form = Answer.with_initial_data(description=text)
    try:
        return suspend_flow_run(wait_for_input=form, timeout=max(1, round(left) + 1), key=KEY)
    except ValidationError:  # no answer: the time limit has resumed the run
        return None


def decide(asked: Mapping[str, Any], answer: Answer | None) -> dict[str, Any]:
    """Carry out an answer, or record that there was none."""
    how = ["--expire"]
    if answer:
        reason = [f"--because={answer.reason}"] if answer.reason else []
        how = [f"--by={answer.name}", *reason, *(["--reject"] if answer.decision == "reject" else [])]
    try:
        perennial("approve", asked["run"], *how, "--json")
    except StageFailed as late:
        if late.exit_code != QualityError.exit_code:
            raise
        this_run.log().warning(late.message)
    return read_request(asked["run"])


def announce(asked: Mapping[str, Any]) -> None:
    """Send the alert about a decision, or that there was none in time."""
    if kind := ALERTS.get(asked["state"]):
        alert(kind, str(asked["message"]))


def final_state(asked: Mapping[str, Any]) -> State[Any]:
    """The final state of the run: Cancelled if nobody decided in time, or if a newer model waits."""
    decided = asked["state"] in {"approved", "rejected"}
    return (Completed if decided else Cancelled)(message=str(asked["message"]))


def read_request(run: str) -> dict[str, Any]:
    """Read the request of a run, as `perennial approve RUN --json` prints it."""
    return dict(json.loads(perennial("approve", run, "--json")))


def markdown(asked: Mapping[str, Any]) -> str:
    """Format the gate's decision, the scores of both models side by side, and the effect of each answer."""
    champion = asked["champion"] or {}
    rows = [
        (name.replace("_", " "), _score(asked["candidate"].get(name)), _score(champion.get(name)))
        for name in asked["candidate"]
    ]
    until = f"{asked['until'][:16]} UTC"
    lines = [
        f"# {cell(asked['run'])}",
        f"This model passed the gate. It waits until {until}; without an answer it will not become champion.",
        "",
        *markdown_table(("", "new model", f"champion {asked['opponent'] or '(none yet)'}"), rows),
        "",
        *(f"- {cell(reason)}" for reason in asked["reasons"]),
        "",
        f"Commit {asked['commit']}; the artifacts of run {cell(asked['run'])} have curves and pictures.",
    ]
    return "\n".join(lines) + "\n"


def _score(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str("-" if value is None else value)
