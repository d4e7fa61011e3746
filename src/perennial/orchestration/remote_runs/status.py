"""The status of a pipeline: its champion, its last runs, and what the Prefect server does next."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perennial.base import limits
from perennial.base.config import Config
from perennial.base.errors import PerennialError, printable, redacted
from perennial.model.evaluation.results import scored_text
from perennial.orchestration.client import settings
from perennial.orchestration.client.owner import LocalOwner, Owner, owner, owner_of_checkout
from perennial.orchestration.client.prefect_server import PrefectServer, connect, said
from perennial.orchestration.client.responses import ServerRefused
from perennial.release.gate import compared
from perennial.release.registry import access, run_records, scores, versions

FLOWS = ("retrain", "monitor", "rebuild", "approve")
ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
STARTED = ("PENDING", "RUNNING", "CANCELLING", "PAUSED")
KIND = "process"  # of the work pools
LAST = 5  # runs that are shown
LATE_S = 60.0  # a worker looks for runs every few seconds
UNITS = (("day", 86400), ("hour", 3600), ("minute", 60))  # in seconds


def look(config: Config, environment: Mapping[str, str], *, fetch: bool) -> dict[str, Any]:
    """The JSON document of `perennial status --json`; `problems` holds one sentence per open problem."""
    # `fetch`: from the git remote first. Without PREFECT_API_URL in Prefect's settings, no server is asked.
    now = datetime.now(UTC)
    opened = access.open_registry(config, fetch=fetch, answer_s=limits.LOOK_S)
    registry = access.here(opened).registry
    local = owner_of_checkout(Path.cwd(), config.record.artifact, environment)
    server = _server(environment, local, now) if settings.read(environment).url else None
    problems = list(_problems(server, now)) if server else []
    if opened.unreachable:
        problems.insert(0, f"git's remote {opened.remote} does not answer: {opened.unreachable}")
    return {
        "pipeline": opened.registry.artifact,
        "champion": _champion(config, registry, now),
        "only_here": [version.name for version in registry.only_here],
        "promise": compared.promise(config.gate),
        "runs": [_recorded(record) for record in run_records.listing(config, LAST)],
        "server": server,
        "problems": problems,
    }


def lines(status: Mapping[str, Any]) -> Iterator[str]:
    """Format the status as lines of text."""
    champion, server = status["champion"], status["server"]
    if champion is None:
        why = " yet; `perennial promote` registers one"
        if here := ", ".join(status["only_here"][-LAST:]):
            why = f"; only here: {here} (`perennial docs versions`)"
        yield f"{status['pipeline']} has no champion{why}"
    else:
        scored = f", {text}" if (text := scored_text(champion)) else ""
        name = f"{status['pipeline']}: champion {champion['version']} ({champion['commit'][:10]}){scored}"
        yield f"{name}, registered {_ago(champion['age_s'])}"
        promise = filter(None, [status.get("promise")])
        yield from (f"    {line}" for line in (*scores.lines(champion), *promise))
    if server is None:
        yield "No server is asked: PREFECT_API_URL is not set"
    else:
        for deployment in server["deployments"]:
            yield f"{deployment['name']:<20} {deployment['schedule'] or 'no schedule':<20} {_next(deployment)}"
            yield from (f"    at work: {_row(run)}" for run in deployment["at_work"])
            yield from (f"    last: {_row(run)}" for run in [deployment["last_run"]] if run)
        for worker in server["workers"]:
            yield f"worker {printable(worker['name'])} of pool {worker['pool']}: {worker['status'].lower()}"
    if status["runs"]:
        yield "Last runs, here and in git:"
        yield from (f"    {_row(run)}" for run in status["runs"])
    yield from (f"Look at: {printable(problem)}" for problem in status["problems"])


def rows(statuses: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Format the status of several pipelines, a line for each, and their problems below it."""
    if not statuses:
        yield "this project has no pipeline: no folder has a params.yaml and a dvc.yaml"
    names = [str(each["name"] or each["pipeline"] or ".") for each in statuses]
    width = max(map(len, names), default=0)
    for name, each in zip(names, statuses, strict=True):
        champion, deployments = each["champion"], (each["server"] or {}).get("deployments", [])
        facts = ["no champion"]
        if champion is not None:
            scored = " ".join(filter(None, (champion["version"], scored_text(champion, short=True))))
            facts = [f"champion {scored}, {_ago(champion['age_s'])}"]
        facts += [f"at work: {run['name']}" for one in deployments for run in one["at_work"]]
        due = [one["next_run"] for one in deployments if one["active"] and one["next_run"]]
        facts += [f"next run {_minute(min(due))} UTC"] if due else []
        last = [run for run in each["runs"][:1] if run["start"]]
        facts += [f"last run {_minute(run['start'])} {run['state']}" for run in last]
        yield printable(f"{name:<{width}}  {'; '.join(facts)}")
        yield from (f"    look at: {printable(problem)}" for problem in each["problems"])


def _champion(config: Config, registry: versions.Registry, now: datetime) -> dict[str, Any] | None:
    if registry.champion is None:
        return None
    facts = scores.of_version(config, registry, registry.champion.name) or {}
    return {**facts, "age_s": max(0, round(now.timestamp()) - registry.champion.date)}


def _recorded(record: Mapping[str, Any]) -> dict[str, Any]:
    outcome = [str(record[key]) for key in ("outcome", "recorded") if record.get(key)]
    decided = record.get("decision") or {}
    return {
        "name": record["run"],
        "start": record.get("started"),
        "state": ", ".join(outcome) or "not ended",
        "message": record.get("message"),
        **{key: decided.get(key) for key in ("map" if "map" in decided else "accuracy",)},
    }


def _server(environment: Mapping[str, str], local: LocalOwner, now: datetime) -> dict[str, Any]:
    """The project's deployments and their workers, or the reason why the server does not answer."""
    # `others`: the projects that other deployments there belong to; `obstacles`: why no worker takes runs.
    state: dict[str, Any] = {"deployments": [], "workers": [], "others": [], "obstacles": [], "error": None}
    deployments: list[dict[str, Any]] = state["deployments"]
    with connect(environment, pauses=(), total_s=limits.LOOK_S) as server:
        try:
            found = list(listed(server))
            own = [each for each in found if local.owns(deployment_owner(each))]
            state["others"] = sorted({str(deployment_owner(each)) for each in found if each not in own})
            deployments.extend(_deployment(server, each, now) for each in own)
            state["workers"] = list(_workers(server, {each["pool"] for each in deployments}))
            busy = {(each["pool"], each["queue"]) for each in deployments if each["active"] or each["at_work"]}
            obstacles = [text for place in sorted(busy, key=str) for text in hindrances(server, *place)]
            state["obstacles"] = list(dict.fromkeys(obstacles))
        except PerennialError as error:
            state["error"] = str(error)
    return {"url": redacted(server.url), **state}


def listed(server: PrefectServer) -> Iterator[dict[str, Any]]:
    """The deployments of flows with our names, each with the name of its `flow`."""
    named = {"flows": {"name": {"any_": list(FLOWS)}}}
    flows = {flow["id"]: flow["name"] for flow in server.request("POST", "flows/filter", named)}
    for deployment in server.request("POST", "deployments/filter", {**named, "sort": "NAME_ASC"}):
        if flows.get(deployment["flow_id"]) in FLOWS:
            yield {**deployment, "flow": flows[deployment["flow_id"]]}


def deployment_owner(deployment: Mapping[str, Any]) -> Owner:
    """Whose a deployment is."""
    return owner(deployment.get("job_variables"), deployment.get("parameters"))


def _deployment(server: PrefectServer, deployment: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """A deployment with its schedule, its next, last, active and late runs."""
    waiting = _runs(server, deployment["id"], ["SCHEDULED"], "EXPECTED_START_TIME_ASC")
    ended = _runs(server, deployment["id"], ENDED, "END_TIME_DESC", limit=1)
    late = [run for run in waiting if _time(run) < now]
    return {
        "name": f"{deployment['flow']}/{deployment['name']}",
        "pool": deployment["work_pool_name"],
        "queue": deployment.get("work_queue_name"),
        "schedule": ", ".join(_schedule(schedule["schedule"]) for schedule in deployment["schedules"]) or None,
        "active": not deployment["paused"] and any(schedule["active"] for schedule in deployment["schedules"]),
        "next_run": next((run["start"] for run in waiting if _time(run) >= now), None),
        "last_run": ended[0] if ended else None,
        "at_work": [*_runs(server, deployment["id"], STARTED, "START_TIME_ASC"), *late],
    }


def _runs(
    server: PrefectServer, deployment: str, types: Sequence[str], sort: str, *, limit: int = 100
) -> list[dict[str, Any]]:
    """The runs of a deployment in states of these types."""
    wanted = {
        "flow_runs": {"deployment_id": {"any_": [deployment]}, "state": {"type": {"any_": list(types)}}},
        "sort": sort,
        "limit": limit,
    }
    return [
        {
            "name": run["name"],
            "id": run["id"],
            "start": datetime.fromisoformat(_start(run)).astimezone(UTC).isoformat(timespec="seconds"),
            "state": run["state"]["name"],
            "type": run["state"]["type"],
            "message": said(run["state"]),
        }
        for run in server.request("POST", "flow_runs/filter", wanted)
    ]


def _start(run: Mapping[str, Any]) -> str:
    """When a run started, or will start; one that was rescheduled still has its first start."""
    due = run["next_scheduled_start_time"] if run["state"]["type"] == "SCHEDULED" else None
    return str(due or run["start_time"] or run["expected_start_time"])


def _time(run: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(run["start"])


def _schedule(schedule: Mapping[str, Any]) -> str:
    if "interval" in schedule:
        return f"every {schedule['interval']:g} s"
    return f"{schedule.get('cron') or schedule.get('rrule')} {schedule.get('timezone') or 'UTC'}"


def _workers(server: PrefectServer, pools: set[str | None]) -> Iterator[dict[str, Any]]:
    for pool in sorted(filter(None, pools)):
        for worker in server.request("POST", f"work_pools/{pool}/workers/filter", {}):
            seen = worker["last_heartbeat_time"]
            yield {"name": worker["name"], "pool": pool, "status": worker["status"], "last_seen": seen}


def hindrances(server: PrefectServer, pool: str | None, queue: str | None) -> Iterator[str]:
    """Why no worker takes the runs of a work pool, each reason with its remedy; nothing without a pool."""
    if pool is None:
        return
    work_pool = existing(server, f"work_pools/{pool}")
    if work_pool is None:
        yield f"the server has no pool {pool}; `perennial deploy` creates the pools"
        return
    if work_pool["is_paused"]:
        yield f"pool {pool} is paused; `prefect work-pool resume {pool}` lets its runs start"
    elif work_pool["concurrency_limit"] == 0:
        yield f"pool {pool} has the concurrency limit 0, so no run starts; `perennial deploy` sets it again"
    work_queue = existing(server, f"work_pools/{pool}/queues/{queue}") if queue else {}
    if work_queue is None:
        yield f"pool {pool} has no queue {queue}; `perennial deploy` puts the deployment into one that exists"
    elif work_queue.get("is_paused"):
        yield f"queue {queue} of pool {pool} is paused; `prefect work-queue resume {queue} --pool {pool}`"
    elif work_queue.get("concurrency_limit") == 0:
        yield f"queue {queue} of pool {pool} has the concurrency limit 0, so no run starts"
    if all(worker["status"] != "ONLINE" for worker in _workers(server, {pool})):
        yield f"pool {pool} has no worker online; `perennial worker --pool {pool}` starts one"


def existing(server: PrefectServer, path: str) -> Any:
    """What the server has at a path; None if nothing."""
    try:
        return server.request("GET", path)
    except ServerRefused as error:
        if error.status != 404:
            raise
        return None


def _problems(server: Mapping[str, Any], now: datetime) -> Iterator[str]:
    """The problems that a person should look at."""
    deployments = server["deployments"]
    if server["error"]:
        yield server["error"]
    elif not deployments:
        others = f"; it has those of {', '.join(server['others'])}" if server["others"] else ""
        yield f"the server has no deployment of this project{others}; `perennial deploy` registers them"
    elif not any(deployment["active"] for deployment in deployments):
        yield "no schedule is active: nothing starts by itself; resume one in the UI"
    yield from server["obstacles"]
    for deployment in deployments:
        name, last = deployment["name"], deployment["last_run"]
        if last and last["type"] in {"FAILED", "CRASHED"}:
            yield f"the last run of {name}, {last['name']}: {last['state']}: {last['message']}"
        if deployment["active"] and deployment["next_run"] is None:
            yield f"the schedule of {name} is active, but the server has created no run for it yet"
        for run in deployment["at_work"]:
            if line := _held_up(run, name, now):
                no_pool = f"; {name} has no work pool: `perennial deploy` gives it one"
                yield line + (no_pool if deployment["pool"] is None and run["type"] == "SCHEDULED" else "")


def _held_up(run: Mapping[str, Any], deployment: str, now: datetime) -> str | None:
    waited = (now - _time(run)).total_seconds()
    if run["type"] == "PAUSED":
        return f"run {run['name']} waits for a person's answer; `perennial approve` lists what is asked"
    if run["type"] == "SCHEDULED" and waited > LATE_S:
        return f"run {run['name']} of {deployment} was due {_ago(waited)}, and no worker has taken it"
    return None


def _row(run: Mapping[str, Any]) -> str:
    scored = f"  {text}" if (text := scored_text(run, short=True)) else ""
    why = f": {run['message']}" if run["message"] and run["state"] != "Completed" else ""
    return printable(f"{_minute(run['start'])}  {run['name']}{scored}  {run['state']}{why}")


def _minute(time: str) -> str:
    return time[:16].replace("T", " ")


def _next(deployment: Mapping[str, Any]) -> str:
    if deployment["active"]:
        return f"next run {_minute(deployment['next_run'])} UTC" if deployment["next_run"] else "active"
    return "paused" if deployment["schedule"] else "runs when asked"


def _ago(seconds: float) -> str:
    for name, size in UNITS:
        if count := int(seconds // size):
            return f"{count} {name}{'s' if count > 1 else ''} ago"
    return "just now"
