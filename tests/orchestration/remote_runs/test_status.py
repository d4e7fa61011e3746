"""What `perennial status` says of a server, from the answers of one."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.git import git
from support.small_servers import Answering, served

from perennial.base import config, limits
from perennial.orchestration.remote_runs import status

NOW = datetime.now(UTC)
FAILED = {"name": "Failed", "type": "FAILED", "message": "train ended with exit code 3"}
LATE = {"name": "Late", "type": "SCHEDULED", "message": None}
SUSPENDED = {"name": "Suspended", "type": "PAUSED", "message": ""}
AGAIN = {"name": "AwaitingRetry", "type": "SCHEDULED", "message": ""}
RUNNING = {"name": "Running", "type": "RUNNING", "message": ""}


def run(state: dict[str, str | None], minutes: float = 0) -> dict[str, object]:
    due = (NOW + timedelta(minutes=minutes)).isoformat()
    times = {"start_time": None, "expected_start_time": due, "next_scheduled_start_time": None}
    return {"id": "1", "name": "night", **times, "state": state}


@pytest.fixture
def answers() -> dict[str, Any]:
    """What the server finds: one active deployment with an online worker and no run."""
    schedule = {"active": True, "schedule": {"cron": "0 2 * * *", "timezone": "UTC"}}
    return {
        "/api/flows/filter": [{"id": "f", "name": "retrain"}],
        "/api/deployments/filter": [
            {
                "id": "d", "flow_id": "f", "name": "nightly", "work_pool_name": "cpu", "paused": False,
                "schedules": [schedule],
            }
        ],
        "/api/work_pools/cpu/workers/filter": [
            {"name": "w", "status": "ONLINE", "last_heartbeat_time": NOW.isoformat()}
        ],
        "/api/work_pools/cpu": {"is_paused": False, "concurrency_limit": 1},
        "runs": [run({"name": "Scheduled", "type": "SCHEDULED", "message": None}, minutes=90)],
    }  # fmt: skip


@pytest.fixture
def url(answers: dict[str, Any]) -> Iterator[str]:
    class Handler(Answering):
        def do_GET(self) -> None:
            found = answers.get(self.path)
            self.answer(found, 404 if found is None else 200)

        def do_POST(self) -> None:
            body, found = self.body(), answers.get(self.path)
            if self.path == answers.get("silent"):
                time.sleep(2)
            if found is None:
                types = body["flow_runs"]["state"]["type"]["any_"]
                found = [each for each in answers["runs"] if each["state"]["type"] in types]
            self.answer(found)

    with served(Handler) as address:
        yield f"{address}/api"


@pytest.fixture
def repository(workspace: Path) -> Path:
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "first")
    return workspace


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, None),
        ({"runs": [run(FAILED, -300)]}, "train ended with exit code 3"),
        ({"runs": [run(LATE, -90)]}, "was due 1 hour ago, and no worker has taken it"),
        ({"runs": [run(RUNNING, -5)]}, "has created no run for it yet"),
        ({"runs": [run(SUSPENDED, -90)]}, "waits for a person's answer"),
        ({"/api/work_pools/cpu/workers/filter": []}, "pool cpu has no worker online"),
        ({"/api/deployments/filter": []}, "`perennial deploy` registers them"),
    ],
)
def test_what_needs_a_look_is_a_problem(answers, url, change, problem, repository) -> None:
    answers |= change
    found = status.look(config.load(repository / "params.yaml"), {"PREFECT_API_URL": url}, fetch=False)
    text = "\n".join(status.lines(found))
    if problem is None:
        assert found["problems"] == []
        assert "0 2 * * * UTC        next run" in text
    else:
        assert any(problem in each for each in found["problems"])
        assert problem in text


def test_a_run_that_was_rescheduled_is_not_late(answers: dict[str, Any], url: str, repository: Path) -> None:
    first = (NOW - timedelta(hours=5)).isoformat()
    soon = (NOW + timedelta(hours=1)).isoformat()
    again = {**run(AGAIN, -300), "start_time": first, "next_scheduled_start_time": soon}
    answers["runs"].append(again)
    found = status.look(config.load(repository / "params.yaml"), {"PREFECT_API_URL": url}, fetch=False)
    assert found["problems"] == []


def test_a_server_that_falls_silent_costs_the_limit_once_and_what_it_said_is_shown(
    answers: dict[str, Any], url: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LOOK_S", 1.0)
    answers["silent"] = "/api/work_pools/cpu/workers/filter"
    started = time.monotonic()
    environment = {"PREFECT_API_URL": url.replace("//", "//user:hunter2@")}
    found = status.look(config.load(repository / "params.yaml"), environment, fetch=False)
    assert (time.monotonic() - started < 2.5, "hunter2" in json.dumps(found)) == (True, False)
    assert [each["name"] for each in found["server"]["deployments"]] == ["retrain/nightly"]
    (problem,) = (each for each in found["problems"] if "does not answer" in each)
    assert "workers/filter: no answer in time" in problem


def test_a_deployment_of_no_pool_needs_no_worker(answers: dict[str, Any], url: str, repository: Path) -> None:
    (one,) = answers["/api/deployments/filter"]
    answers["/api/deployments/filter"].append({**one, "id": "e", "name": "served", "work_pool_name": None})
    answers["/api/work_pools/cpu/workers/filter"] = []
    found = status.look(config.load(repository / "params.yaml"), {"PREFECT_API_URL": url}, fetch=False)
    assert [each for each in found["problems"] if "no worker online" in each] == [
        "pool cpu has no worker online; `perennial worker --pool cpu` starts one"
    ]
