"""The flow `monitor`: check the rules, start one retraining per change, report the findings."""

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

from httpx import HTTPError
from prefect import get_client
from prefect.client.schemas.filters import FlowFilter, FlowRunFilter
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.responses import DeploymentResponse
from prefect.variables import Variable

from perennial.base.errors import ConfigError
from perennial.base.layout import Project
from perennial.orchestration.client.owner import normal, owner_of_checkout
from perennial.orchestration.engine import this_run
from perennial.orchestration.server.server_runs import Ours, due_now, in_states
from perennial.orchestration.steps import artifacts
from perennial.orchestration.steps.artifacts import alert, cell, markdown_table
from perennial.orchestration.work.perennial_command import call_perennial
from perennial.orchestration.work.stage_failures import StageFailed

STARTED, BEFORE = "was started", "was started before, for the same change"
SHOWN = 10  # windows of traffic
DIGITS = 16  # of a digest in a name
REASON = 500  # characters that the flow takes
AT_WORK = "is active; the next check decides"
RULES = {"source": "source", "max_age_days": "age"}


def check_champion() -> dict[str, Any]:
    """The JSON of `perennial monitor`, with its exit code as `code`."""
    done = call_perennial("monitor", "--json", log=this_run.log().info)
    if not done.output.strip():
        raise StageFailed("monitor", done.exit_code or 1, "\n".join(done.log), done.kind)
    seen: dict[str, Any] = json.loads(done.output)
    return {**seen, "code": done.exit_code}


def start_retraining(deployment: str | None, seen: Mapping[str, Any]) -> dict[str, Any]:
    """Start a run of a deployment, unless this change has one already or one of the pipeline is active."""
    # The key makes the server create only one run, however often this is called. While a run is active, the
    # change waits for a later check, because that run may cover it. Returns the run's id and name, and which
    # case applied as `how`. Without `deployment`, it is the pipeline's `on-demand`.
    if not this_run.has_server():
        message = f"{seen['reason']}; a run needs a server: set PREFECT_API_URL, or run `perennial run`"
        raise StageFailed("monitor", ConfigError.exit_code, message)
    deployment = deployment or f"retrain/{Project.find().deployment('on-demand')}"
    with get_client(sync_client=True) as client:
        ours = Ours(client, str(seen["pipeline"]))
        try:
            found = ours.deployment(deployment)
        except ConfigError as error:
            raise StageFailed("monitor", ConfigError.exit_code, f"{error}; name another to the flow") from None
        # Of another project, the same change is another one.
        key = f"{seen['key']} {normal(ours.owner.repository)} {ours.owner.folder}".rstrip()
        flows = FlowFilter.model_validate({"id": {"any_": [found.flow_id]}})
        same = FlowRunFilter.model_validate({"idempotency_key": {"any_": [key]}})
        how = BEFORE
        made = next(iter(client.read_flow_runs(flow_filter=flows, flow_run_filter=same)), None)
        if made is None:
            how, made = AT_WORK, _at_work(flows, ours)
        if made is None:
            how = STARTED
            made = client.create_flow_run_from_deployment(
                found.id, parameters=_parameters(found, seen), tags=["monitor"], idempotency_key=key
            )
    this_run.log().info("run %s of %s %s: %s", made.name, deployment, how, seen["reason"])
    # A retry finds the run that was started before it, if only the response was lost.
    if how == STARTED or (how == BEFORE and this_run.tries() > 1):
        alert("retraining-started", f"{seen['reason']}\nrun {made.name} of {deployment}")
    return {"id": str(made.id), "name": made.name, "deployment": deployment, "how": how}


def report_checks(seen: Mapping[str, Any], run: Mapping[str, Any] | None) -> None:
    """Create the artifact `monitor`, and send an alert of drift, once as long as it lasts."""
    artifacts.write(markdown(seen, run), "monitor", "What the monitor saw last")
    key = (seen.get("traffic") or {}).get("key")
    if key is None or not this_run.is_deployed():
        return
    ours = owner_of_checkout(Path.cwd(), str(seen["pipeline"]))
    whose = f"{normal(ours.repository)} {ours.folder} {ours.pipeline}"
    name = f"perennial-drift-{hashlib.sha256(whose.encode()).hexdigest()[:DIGITS]}"
    try:
        if Variable.get(name) != key:
            alert("drift", "\n".join(seen["traffic"]["words"]))
            Variable.set(name, key, overwrite=True)
    except HTTPError as error:  # the next check sends it
        this_run.log().warning("the server did not take the alert of drift: %s", error)


def require_all_seen(seen: Mapping[str, Any]) -> None:
    """Fail if a rule could not be checked."""
    if seen["code"]:
        raise StageFailed("monitor", seen["code"], "; ".join(seen["problems"]))


def markdown(seen: Mapping[str, Any], run: Mapping[str, Any] | None) -> str:
    """Format the decision as a heading, a table of the rules, and what could not be checked."""
    lines = [f"# {'Retrain' if seen['retrain'] else 'No retraining'}", cell(seen["reason"]), ""]
    if run is not None:
        named = f"[{cell(run['name'])}](/runs/flow-run/{run['id']}) of {cell(run['deployment'])}"
        lines += [f"Run {named} {run['how']}.", ""]
    rows = [("champion", "none yet", "")]
    if champion := seen["champion"]:
        named = f"{champion['version']} of {datetime.fromisoformat(champion['date']):%Y-%m-%d %H:%M} UTC"
        rows = [("champion", named, "")]
    for each in seen["rules"]:
        limit, on = each["limit"], each["limit"] not in {None, False}
        shown = f"{each['name']}: {json.dumps(limit)}{': retrain' if each['fires'] else ''}" if on else "none"
        rows.append((RULES[each["name"]], each["seen"], shown))
    lines += [
        *markdown_table(("", "seen", "rule"), rows),
        "",
        *_traffic(seen.get("traffic")),
        *(f"Not looked at: {cell(problem)}" for problem in seen["problems"]),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _traffic(traffic: Mapping[str, Any] | None) -> list[str]:
    """The windows of traffic as a table, and the last one in words."""
    if traffic is None or traffic["problem"]:
        return []
    rows = [
        (
            each["end"][:16].replace("T", " "),
            str(each["images"]),
            f"{each['distance']:.4f}",
            f"{each['threshold']:.4f}{': drift' if each['drifted'] else ''}",
        )
        for each in traffic["windows"][-SHOWN:]
    ]
    shown = markdown_table(("until", "images", "distance", "expected at most"), rows) if rows else []
    title = "## Traffic: alarm" if traffic["alarm"] else "## Traffic"
    return [title, *(f"{cell(line)}  " for line in traffic["words"]), "", *shown, ""]


def _at_work(flows: FlowFilter, ours: Ours) -> FlowRun | None:
    """A run of the pipeline that is active or due to start."""
    busy = in_states(StateType.RUNNING, StateType.PENDING, StateType.CANCELLING)
    found = (ours.runs(flows, which, ours.owner.pipeline) for which in (busy, due_now()))
    return next(chain.from_iterable(found), None)


def _parameters(deployment: DeploymentResponse, seen: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters for the run, if the flow has them: pipeline, reason, and to wait for another run."""
    given = {"pipeline": seen["pipeline"], "reason": seen["reason"][:REASON], "when_busy": "wait"}
    takes = (deployment.parameter_openapi_schema or {}).get("properties", {})
    return {name: value for name, value in given.items() if name in takes}
