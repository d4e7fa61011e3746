"""Tasks that pin the champion before the gate, and write the record of a run."""

import json
from contextlib import suppress
from typing import Any, Literal, NoReturn

from prefect import Flow, get_run_logger, runtime, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import FlowRun, State

from tasks.approval import ask_for_approval
from tasks.cli import perennial
from tasks.dvc import StageFailed, load
from tasks.server import alert
from tasks.stages import retried

Outcome = Literal["promoted", "not promoted", "waiting", "unchanged", "kept", "refused"]


@task(cache_policy=NO_CACHE)
def start_record(reason: str | None) -> None:
    """Start the record of this run in `paths.runs`, with its parameters; its stages add to it."""
    request = {name: value for name, value in runtime.flow_run.parameters.items() if value not in (None, {})}
    start = ("runs", "start", str(runtime.flow_run.id), f"--request={json.dumps(request)}")
    perennial(*start, meanwhile=load)  # the tasks after this one need it
    if reason:
        get_run_logger().info("reason: %s", reason)


def record_failure(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:  # noqa: ARG001 - Prefect's
    """Add to the record that the run failed or crashed; a hook of Prefect.

    For a run whose process is gone, Prefect's worker calls it outside the run's checkout, and nothing is added.
    """
    record_end(str(flow_run.id), state.name or "", state.message or "")


def record_end(run: str, outcome: str, message: str) -> None:
    """Add the outcome of a run to its record, if it has one."""
    with suppress(StageFailed):  # with invalid parameters there is no record
        perennial("runs", "end", run, "--outcome", outcome, "--message", message)


@retried()
def require_champion(*, fetch: bool) -> dict[str, str]:
    """Check before the training that the champion's predictions, which the gate needs, can be fetched.

    It is no stage, so it adds no result to those of the stages: the returned ones are empty.
    """
    perennial("pin", "champion", "--check", *(["--fetch"] if fetch else []))
    return {}


@task(cache_policy=NO_CACHE)
def pin_champion(*, fetch: bool) -> str | None:
    """Pin the version that the model will be compared with; `fetch`: ask the remote for it."""
    pinned = json.loads(perennial("pin", "champion", "--json", *(["--fetch"] if fetch else [])))
    version: str | None = pinned["champion"]["version"]
    get_run_logger().info("champion: %s", version or "none yet")
    return version


@retried()
def record() -> Outcome:
    """Commit and push this run, or ask a person for approval; `refused`: the gate must run again."""
    recorded: dict[str, Any] = json.loads(perennial("record", str(runtime.flow_run.id), "--json"))
    outcome: Outcome = recorded["outcome"]
    log = get_run_logger()
    (log.warning if outcome == "kept" else log.info)("record: %s: %s", outcome, recorded["message"])
    if outcome == "promoted":
        alert("promoted", "\n".join([recorded["message"], *recorded["reasons"]]))
    elif outcome == "not promoted":
        alert("rejected", recorded["message"])
    elif outcome == "waiting":
        ask_for_approval()
    return outcome


def raise_lost_races(attempts: int) -> NoReturn:
    """End the run as failed: the champion changed before each push of this run.

    Raises:
        StageFailed: always, with exit code 1.
    """
    raise StageFailed(
        "record",
        1,
        f"another run changed the champion {attempts} times between the gate and the push, so this model is "
        f"not promoted; its commit is kept on waiting/{runtime.flow_run.id}; start a run again, which restores "
        "the stages from DVC's cache",
    )
