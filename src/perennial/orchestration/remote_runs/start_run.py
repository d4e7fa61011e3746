"""Start a run of a deployment, and follow it; or let the server send a test alert."""

import logging
import re
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from perennial.base import limits, retries
from perennial.base.config import error_messages
from perennial.base.errors import ConfigError, PerennialError
from perennial.base.params import options
from perennial.orchestration.client import settings
from perennial.orchestration.client.owner import REPOSITORY, LocalOwner, clash
from perennial.orchestration.client.prefect_server import PrefectServer, connect, said
from perennial.orchestration.client.responses import ServerRefused
from perennial.orchestration.remote_runs.status import deployment_owner, hindrances, listed

log = logging.getLogger(__name__)
APPROVE = "approve"  # the flow that waits for a person
FLOW = "retrain"  # of a deployment that is named without its flow
POLL_S = 2.0
RESTART_S = 120.0  # workers start a crashed run again within 90 s, if the server does not
ENDED = ("COMPLETED", "FAILED", "CANCELLED")
SIGNALLED = "Execution was aborted by a termination signal."  # of a task in a run that was cancelled
PENDING: Mapping[str, Any] = {"type": "PENDING", "name": "Pending", "message": None}  # of a run without a state
NOT_BEGUN = {"SCHEDULED", "PENDING"}  # types of states
LATE = "Late"  # name of the state of a run that no worker took in time
INVALID = (400, 409, 422)  # status codes of parameters that the server refuses
CHANGING = re.compile(r"(, [\d:]+ left)?(, [\d,]+ examples/s)?$")  # of the training's progress, at each look
CODE = re.compile(r"ended with exit code (\d+)")  # in the message of a failed run
EVENT = "perennial.test-alert"
TEST_ALERT = "perennial: test alert"  # of infra/automations.yaml
CALL_POLL_S = 1.0
ALERT_S = 120.0  # a server writes its events down every few seconds, a busy one later
ADDRESS = re.compile(r"(https?://[^/\s'\"]*)/[^\s'\"]+")  # of a webhook, whose path is its password
INSTALL = "`PERENNIAL_NOTIFY_URL=https://... perennial deploy` installs alerts"


@dataclass(frozen=True, kw_only=True)
class StartedRun:
    """A run of a deployment, as the server reports it."""

    id: str
    name: str
    deployment: str
    state: str
    message: str | None = None
    type: str = "SCHEDULED"

    @property
    def described(self) -> str:
        """The state and its message, if it has one."""
        return f"{self.state}: {self.message}" if self.message else self.state

    @property
    def exit_code(self) -> int:
        """0 on success; else the stage's code if the message has one, 75 if the run was cancelled, or 1."""
        if self.type == "CANCELLED":
            return 75
        if self.type in {"FAILED", "CRASHED"}:
            found = CODE.search(self.message or "")
            return int(found[1]) if found else 1
        return 0


def require_options(overrides: Mapping[str, object]) -> None:
    """Check that all keys are options of params.yaml."""
    known = [each.key for each in options.options()]
    lines = []
    for key in overrides:
        if key not in known:
            near = error_messages.nearest(key, known)
            hint = f"did you mean {near}?" if near else "`perennial config --options` lists all"
            lines.append(f"{key} is not a key; {hint}")
    if lines:
        raise ConfigError("\n".join(lines))


def start(
    server: PrefectServer, deployment: str, parameters: Mapping[str, object], local: LocalOwner | None = None
) -> StartedRun:
    """Start a run of a deployment, which supplies the parameters that are not given."""
    name = deployment if "/" in deployment else f"{FLOW}/{deployment}"
    try:
        found = server.request("GET", f"deployments/name/{name}")
    except ServerRefused as error:
        if error.status != 404:
            raise
        there = (each for each in listed(server) if local is None or local.owns(deployment_owner(each)))
        names = ", ".join(f"{each['flow']}/{each['name']}" for each in there)
        known = names or "none; `perennial deploy` registers them"
        raise ConfigError(f"the server has no deployment {name} of this project; it has: {known}") from error
    whose = deployment_owner(found)
    if local and not local.owns(whose):
        hint = "" if local.has(whose) else f"; if both are one, set {REPOSITORY} to the server's address of it"
        raise ConfigError(f"{clash(name, whose, local)}; nothing was started{hint}")
    body = {
        "state": {"type": "SCHEDULED", "name": "Scheduled"},
        "parameters": dict(parameters),
        # A repeated request, after a lost response, must not start a second run.
        "idempotency_key": str(uuid.uuid4()),
    }
    try:
        run = server.request("POST", f"deployments/{found['id']}/create_flow_run", body)
    except ServerRefused as error:
        if error.status not in INVALID:
            raise
        raise ConfigError(f"{name} does not take these parameters: {error.reason}") from error
    return _seen(run, name)


def follow(server: PrefectServer, started: StartedRun, log: Callable[[str], None]) -> StartedRun:
    """Wait until a run has ended for good, including restarts after a crash."""
    # Log the states before its last, and what its stages do: start, progress of the training, retries, failure.
    now, crashed = started, 0.0
    shown: set[str] = set()
    server.pauses = retries.PREFECT_PAUSES_S  # the run continues while the server restarts
    log(f"{started.deployment}: run {started.id}: {started.described}")
    while now.type not in ENDED and crashed < RESTART_S:
        time.sleep(POLL_S)
        crashed = crashed + POLL_S if now.type == "CRASHED" else 0.0
        try:
            found = server.request("GET", f"flow_runs/{started.id}")
            later = _seen(found, started.deployment)
            if later.state == LATE:
                lines = list(hindrances(server, found.get("work_pool_name"), found.get("work_queue_name")))
            else:
                lines = [] if later.type in NOT_BEGUN else list(_progress(server, started.id))
        except PerennialError as error:
            if isinstance(error, ServerRefused) and error.status == 404:
                raise PerennialError(
                    f"run {started.id} is no longer on the server: it, or {started.deployment}, was deleted"
                ) from error
            raise PerennialError(f"{error}; the run continues, its id is {started.id}") from error
        if (later.state, later.message) != (now.state, now.message) and later.type not in ENDED:
            log(f"{started.deployment}: {later.described}")
        for line in lines:
            if line not in shown:
                shown.add(line)
                log(line)
        now = later
    return now


def _progress(server: PrefectServer, run: str) -> Iterator[str]:
    """What the stages of a run have done so far, a line each, in their order."""
    wanted = {"flow_runs": {"id": {"any_": [run]}}, "sort": "EXPECTED_START_TIME_ASC"}
    trained = {"artifacts": {"flow_run_id": {"any_": [run]}, "key": {"any_": ["training"]}}, "limit": 1}
    for each in server.request("POST", "task_runs/filter", wanted):
        state = each["state"] or PENDING
        name = each["name"].removesuffix(f"-{each['dynamic_key'][:3]}")
        tried = f", try {each['run_count']}" if each["run_count"] > 1 else ""
        if state["type"] in {"RUNNING", "COMPLETED", "FAILED", "CRASHED"}:
            yield f"{name}: running{tried}"
        if name == "train" and state["type"] != "PENDING":
            for artifact in server.request("POST", "artifacts/filter", trained):
                yield f"train: {CHANGING.sub('', artifact['description'] or '')}"
        reason = said(state) or ""
        if state["name"] in {"AwaitingRetry", "Retrying"}:
            yield f"{name}: is tried again after try {each['run_count']}: {reason}".rstrip(": ")
        elif state["type"] == "COMPLETED":
            yield f"{name}: done in {each['total_run_time']:.0f} s"
        elif reason == SIGNALLED:
            yield f"{name}: stopped"
        elif state["type"] in {"FAILED", "CRASHED"}:
            yield f"{name}: {state['name']}: {reason}"


def wake(run: str) -> None:
    """Wake the `approve` run that waits on the server, if one is set: it finds the answer in git and ends."""
    # If the server does not answer, that run ends at its time limit.
    waiting = {"flows": {"name": {"any_": [APPROVE]}}, "flow_runs": {"state": {"type": {"any_": ["PAUSED"]}}}}
    now = {"type": "SCHEDULED", "name": "AwaitingRetry", "message": "It was answered by a command."}
    try:
        if settings.read().url is None:
            return
        server = connect(pauses=retries.TERMINAL_PAUSES_S)
        for each in server.request("POST", "flow_runs/filter", waiting):
            if each["parameters"].get("run") == run:
                server.request("POST", f"flow_runs/{each['id']}/set_state", {"state": now})
    except PerennialError as error:
        log.warning("the run that waits on the server was not woken: %s", error)


def _seen(run: Mapping[str, Any], deployment: str) -> StartedRun:
    state = run["state"] or PENDING
    return StartedRun(
        id=run["id"],
        name=run["name"],
        deployment=deployment,
        state=state["name"],
        message=said(state),
        type=state["type"],
    )


def send_alert(server: PrefectServer, text: str) -> int:
    """Make the server send a test alert; returns the webhook's status code."""
    wanted = {"automations": {"name": {"any_": [TEST_ALERT]}}}
    installed = next(iter(server.request("POST", "automations/filter", wanted)), None)
    if installed is None:
        raise ConfigError(f"the server sends no alerts; {INSTALL}")
    if not installed["enabled"]:
        raise ConfigError(f"the automation `{TEST_ALERT}` is disabled on the server; enable it in the UI")
    before = {each["id"] for each in _calls(server, installed["id"])}
    server.emit(EVENT, EVENT, words=text)
    done = _outcome(server, installed["id"], before)
    status = done.get("status_code")
    if status is None:
        reason = ADDRESS.sub(r"\1/***", str(done.get("reason")))
        raise PerennialError(f"the server could not call the webhook: {reason}; {INSTALL}")
    if status >= 400:
        answer = ADDRESS.sub(r"\1/***", str(done.get("response_body")))
        raise PerennialError(f"the webhook answered {status}: {answer}; {INSTALL}")
    return int(status)


def _outcome(server: PrefectServer, automation: str, before: Collection[str]) -> Mapping[str, Any]:
    """The server's record of this webhook call: a new one, whatever the clocks show."""
    limit_s = limits.scaled(ALERT_S)
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if new := [each for each in _calls(server, automation) if each["id"] not in before]:
            return dict(new[0]["payload"])
        time.sleep(CALL_POLL_S)
    raise PerennialError(
        f"the server has not recorded within {limit_s:.0f} s what became of the alert; look at its automation "
        f"`{TEST_ALERT}`"
    )


def _calls(server: PrefectServer, automation: str) -> list[dict[str, Any]]:
    """The newest events about calls of the webhook by an automation."""
    wanted = {
        "event": {"name": ["prefect.automation.action.executed", "prefect.automation.action.failed"]},
        "resource": {"id": [f"prefect.automation.{automation}"]},
    }
    return list(server.request("POST", "events/filter", {"filter": wanted})["events"])
