"""The record of a run: in `runs` its start and its end, in git what it made, as compared with the champion."""

import json
from contextlib import suppress
from typing import Any

from perennial.base.choices import Outcome
from perennial.orchestration.engine import this_run
from perennial.orchestration.steps.artifacts import NOT_PUSHED, alert
from perennial.orchestration.work.dvc_repo import Results
from perennial.orchestration.work.perennial_command import perennial
from perennial.orchestration.work.stage_failures import StageFailed

COMPARING = ("champion", "gate")  # stages that compare the model with the champion


def start_record(reason: str | None) -> dict[str, str]:
    """Start the record of this run in `runs`; returns the results of its stages, none yet."""
    request = {name: value for name, value in this_run.parameters().items() if value not in (None, {})}
    perennial("runs", "start", str(this_run.run_id()), f"--request={json.dumps(request)}")
    if reason:
        this_run.log().info("reason: %s", reason)
    return {}


def record_end(run: str, outcome: str, message: str) -> None:
    """Add the outcome of a run to its record, if it has one."""
    with suppress(StageFailed):  # with invalid parameters there is no record
        perennial("runs", "end", run, "--outcome", outcome, "--message", message)


def require_champion(results: Results, *, fetch: bool) -> Results:
    """Check before the training that the champion's predictions, which the gate needs, can be fetched."""
    perennial("pin", "champion", "--check", "--fetch" if fetch else "--no-fetch")
    return results


def pin_champion(results: Results, *, fetch: bool) -> Results:
    """Pin the version that the model will be compared with; `fetch`: ask the remote for it.

    If it has changed, what was compared with the one before is to do again.
    """
    pinned = json.loads(perennial("pin", "champion", "--json", "--fetch" if fetch else "--no-fetch"))
    this_run.log().info("champion: %s", pinned["champion"]["version"] or "none yet")
    left = COMPARING if pinned["champion"]["changed"] else ()
    return {name: result for name, result in results.items() if name not in left}


def record(results: Results) -> Results:
    """Commit and push this run, or ask a person for approval; after a lost race the gate must run again."""
    recorded: dict[str, Any] = json.loads(perennial("record", str(this_run.run_id()), "--json"))
    outcome: Outcome = recorded["outcome"]
    log = this_run.log()
    (log.warning if outcome == "kept" else log.info)("record: %s: %s", outcome, recorded["message"])
    if outcome == "promoted":
        alert("promoted", "\n".join([recorded["message"], *recorded["reasons"]]))
    elif outcome == "not promoted":
        alert("rejected", recorded["message"])
    elif outcome == "waiting":
        _ask_for_approval()
    return results | {"record": outcome, **({NOT_PUSHED: recorded["message"]} if outcome == "kept" else {})}


def _ask_for_approval() -> None:
    """Ask a person; the run is recorded, so a server that does not take the request is no failure of it."""
    answers = f"`perennial approve {this_run.run_id()}` answers"
    if not this_run.has_server():
        this_run.log().info(answers)
        return
    from httpx import HTTPError

    from perennial.orchestration.steps.wait_for_approval import ask_for_approval

    try:
        ask_for_approval()
    except HTTPError as error:
        this_run.log().warning("the server did not take the request (%s); %s", error, answers)


def lost_races(attempts: int) -> StageFailed:
    """The failure of a run before each push of which the champion changed."""
    text = f"another run changed the champion {attempts} times between the gate and the push, so this model is "
    text += "not promoted; what it made is in DVC's cache, from which a new run restores it"
    return StageFailed("record", 1, text)
