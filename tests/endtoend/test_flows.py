"""Flows with a real server: how often a stage is tried, and what a proxy without WebSockets or answers does."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import forks
from support.checkout import Server, wait_until
from support.s3 import Proxy
from support.tasks import write_pipeline

from perennial.orchestration.client.prefect_server import connect
from perennial.orchestration.provisioning import worker

pytestmark = pytest.mark.timing

ROOT = Path(__file__).parents[2]
ARTIFACT = """
from prefect import flow, task
from perennial.orchestration.engine import events
from perennial.orchestration.steps.artifacts import write

events.send_by_http()  # as our flows do

@task
def work():
    write("text", "summary", "what it did")

@flow
def train():
    work()

train()
"""
STAGE = """
import os, sys, time
from tasks import policy
policy.PAUSES_S = (0, 0)
from perennial.orchestration.engine.decorators import flow
from tasks.stages import gate

@policy.retried(limit_s=1)
def late(results):
    open("tries", "a").write("x")
    time.sleep(3600)

@flow(run_name=lambda: "a run")
def train():
    (late if os.getcwd().endswith("late") else gate)({})

for folder in sys.argv[1:]:
    os.chdir(folder)
    try:
        train()
    except Exception as error:
        print(os.path.basename(folder), type(error).__name__)
"""
BUG = "{}['x']"
KILLED = "import os; os.kill(os.getpid(), 9)"
NETWORK = """
import json, pathlib
failure = {"code": 1, "message": "no route", "kind": "network"}
pathlib.Path(".work").mkdir(exist_ok=True)
pathlib.Path(".work/failure.json").write_text(json.dumps(failure))
raise SystemExit(1)
"""
STAGES = {"bug": BUG, "data": "raise SystemExit(3)", "killed": KILLED, "network": NETWORK, "late": ""}


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    found = Proxy(server.url.removesuffix("/api"))
    yield found
    found.end()


def run(address: str, **variables: str) -> subprocess.CompletedProcess[str]:
    frequency = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30", "PREFECT_CLIENT_RETRY_JITTER_FACTOR": "0"}
    return forks.run("-m", "-c", ARTIFACT, PREFECT_API_URL=address, **frequency, **variables)


@pytest.mark.slow
def test_heartbeats_tasks_and_artifacts_arrive_through_a_proxy_without_websockets_that_answers_500_once(
    server: Server, proxy: Proxy
) -> None:
    address = f"{proxy.url}/api"
    proxy.only, proxy.plan = "POST /api/artifacts", ["500"]
    done = run(address, PREFECT_CLIENT_RETRY_EXTRA_CODES="500")
    assert (done.returncode, len(proxy.failed), "artifact missing" in done.stderr) == (0, 1, False)
    assert ("GET", "/api/events/in") not in proxy.asked
    sent = [path for method, path in proxy.asked if method == "POST" and path == "/api/events"]
    assert len(sent) >= 4  # one heartbeat, and the three states of the task
    with connect({"PREFECT_API_URL": address}, pauses=()) as through:
        assert [line[:26] for line in worker.problems(through, 1)] == ["WebSockets do not reach ht"]
    with connect({"PREFECT_API_URL": server.url}, pauses=()) as direct:
        assert list(worker.problems(direct, 1)) == []
        (line,) = worker.problems(direct, 2)
        assert "database is locked" in line
        wanted = {"filter": {"event": {"name": ["prefect.flow-run.heartbeat"]}}}
        wait_until(lambda: direct.request("POST", "events/filter", wanted)["events"])


@pytest.mark.slow
def test_an_artifact_that_the_server_does_not_take_is_no_failure_of_the_run(proxy: Proxy) -> None:
    proxy.only, proxy.faults, proxy.rate = "POST /api/artifacts", ["500"], 1.0
    codes = {"PREFECT_CLIENT_RETRY_EXTRA_CODES": "500", "PREFECT_CLIENT_MAX_RETRIES": "1"}
    done = run(f"{proxy.url}/api", **codes)
    assert (done.returncode, len(proxy.failed)) == (0, 2)
    assert "artifact missing: summary: Server error" in done.stderr
    assert "Finished in state Completed()" in done.stderr


@pytest.mark.slow
def test_a_run_waits_for_one_event_of_a_server_that_does_not_answer(proxy: Proxy) -> None:
    proxy.only, proxy.faults, proxy.rate = "POST /api/events", ["silent"], 1.0
    done = run(f"{proxy.url}/api", PERENNIAL_TIMEOUT_FACTOR="0.1")
    assert (done.returncode, len(proxy.failed)) == (0, 2)  # one event, tried twice


@pytest.mark.fast_rows("False")  # a server of its own would take a tenth of the suite
@pytest.mark.parametrize("has_server", [True, False])
def test_what_may_pass_is_tried_thrice_and_else_once(has_server: bool, request, tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in STAGES}
    for name, folder in folders.items():
        folder.mkdir()
        code = f"with open('tries', 'a') as file:\n    file.write('x')\n{STAGES[name]}\n"
        write_pipeline(folder, code, stage="gate")
    url = {"PREFECT_API_URL": request.getfixturevalue("server").url} if has_server else {}
    done = forks.run("-m", "-c", STAGE, *map(str, folders.values()), PATH=forks.path(), **url)
    assert done.returncode == 0, done.stderr
    late = "TaskRunTimeoutError" if has_server else "TookTooLong"
    ended = {name: late if name == "late" else "StageFailed" for name in STAGES}
    assert [tuple(line.split()) for line in done.stdout.splitlines()] == list(ended.items())
    tries = {name: len((folder / "tries").read_text()) for name, folder in folders.items()}
    assert tries == {"bug": 1, "data": 1, "killed": 3, "network": 3, "late": 1}
