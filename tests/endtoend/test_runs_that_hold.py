"""One run at a time, and runs that are killed, cancelled or moved, with the project's own guard and worker.

They run a pipeline of one small stage. PREFECT_SERVER_DATABASE_CONNECTION_URL names another database than
SQLite.
"""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from pathlib import Path
from uuid import uuid4

import pytest
from prefect import get_client
from prefect.client.schemas.objects import StateType
from prefect.settings import PREFECT_API_URL, temporary_settings
from support.checkout import ROOT, STANDIN, Server, copy_standin, processes_under, wait_until
from support.small_servers import Hook, webhook

from perennial.orchestration.run_setup.flow_run import RESTARTS
from perennial.orchestration.server.dead_runs import CHECKS, Silent, end_silent

pytestmark = [pytest.mark.timing, pytest.mark.slow]

RUNS = 3
AWAY_S = 120  # longer than the 80 s after which a silent run is dead
MISSED = 10
SETTLED_S = 100  # a run of a deployment has started again by then
STEPS = 24
DAY_S = 86_400
ENDED = {"COMPLETED", "FAILED", "CANCELLED"}


@dataclass(frozen=True)
class Standin:
    """The deployed pipeline of one stage, and where its runs work."""

    server: Server
    repository: Path
    home: Path
    webhook: Hook

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ, "PREFECT_API_URL": self.server.url, "PERENNIAL_HOME": str(self.home),
            "PERENNIAL_REPOSITORY": str(self.repository), "PERENNIAL_NOTIFY_URL": self.webhook.url,
            "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",
        }  # fmt: skip

    @contextmanager
    def worker(self) -> Iterator[subprocess.Popen[bytes]]:
        """The supervised workers of both pools, stopped at the end of the block."""
        command = [sys.executable, "-m", "tasks.worker", "--pool", "one", "--pool", "other"]
        with (self.home / "worker.log").open("a") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )
            try:
                yield process
            finally:
                process.terminate()
                process.wait(300)

    @property
    def hold(self) -> Path:
        """A training does its last step once this file is gone."""
        return self.home / "hold"

    def start(self, count: int = 1) -> list[str]:
        """Start runs at once, one after the other in each pool; returns their ids."""
        deployments = self.server.post("/deployments/filter", {})
        paths = islice(cycle(f"/deployments/{each['id']}/create_flow_run" for each in deployments), count)
        return [str(self.server.post(path, {})["id"]) for path in paths]  # type: ignore[call-overload]

    def begin(self) -> str:
        """Start a run, and wait until its training is at work; it ends once `hold` is gone."""
        self.hold.touch()
        (run,) = self.start()
        wait_until(lambda: self.steps(run))
        return run

    def complete(self, run: str) -> None:
        """Wait until a run has completed; it has made what an unbroken one makes."""
        self.hold.unlink(missing_ok=True)
        wait_until(lambda: self.state(run) == "COMPLETED")
        assert json.loads((self.folder(run) / "model.json").read_text()) == unbroken()

    def runs(self, ids: list[str]) -> list[dict[str, str]]:
        found = self.server.post("/flow_runs/filter", {"flow_runs": {"id": {"any_": ids}}})
        return sorted(found, key=lambda run: ids.index(str(run["id"])))  # type: ignore[return-value]

    def state(self, run: str) -> str:
        return self.runs([run])[0]["state_type"]

    def folder(self, run: str) -> Path:
        return self.home / "runs" / run

    def steps(self, run: str) -> list[tuple[int, int]]:
        """Process and number of each step of the training that was saved."""
        file = self.folder(run) / ".work" / "steps.log"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(int(process), int(step)) for process, step in (line.split() for line in lines)]

    def process(self, run: str, what: str) -> int:
        """The process of a run: `prefect.engine` is its flow, `train.py` its stage."""
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if (file.parent / "cwd").readlink() == self.folder(run):
                    words = file.read_bytes().split(b"\0")
                    if what.encode() in words[1:3]:
                        return int(file.parent.name)
        return 0


@pytest.fixture(scope="module")
def standin(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standin]:
    with webhook() as hook:
        yield deployed(server, hook, tmp_path_factory.mktemp("standin"))


def deployed(server: Server, hook: Hook, base: Path) -> Standin:
    made = Standin(server, base / "repository", base / "home", hook)
    copy_standin(made.repository, STEPS)
    made.home.mkdir()
    deploy = [sys.executable, str(STANDIN / "deploy.py")]
    subprocess.run(deploy, env=made.environment, check=True, cwd=ROOT)
    return made


def test_a_run_whose_worker_is_stopped_goes_on_at_the_next_one(standin: Standin) -> None:
    with standin.worker() as first:
        run = standin.begin()
        first.send_signal(signal.SIGTERM)
        assert first.wait(120) == 0
        assert processes_under(standin.folder(run)) == []
        wait_until(lambda: standin.state(run) in {"CRASHED", "SCHEDULED"})
    with standin.worker():
        standin.complete(run)


def test_ten_slots_that_no_worker_was_there_for_make_one_run(standin: Standin) -> None:
    missed: list[str] = []
    standin.hold.touch()
    with standin.server.schedule("one", seconds=2):  # its end would delete the runs that are late
        while len(missed) < MISSED:
            time.sleep(1)
            made = standin.server.runs("SCHEDULED")
            missed = [str(run["id"]) for run in made if run["auto_scheduled"] and is_over(run)]
        with standin.worker():
            others = len(missed) - 1
            wait_until(lambda: states(standin, missed).count("CANCELLED") == others)
            standin.hold.unlink()
            wait_until(lambda: "COMPLETED" in states(standin, missed))
    for late in standin.server.runs("PENDING", "CRASHED"):  # they would run in later tests
        set_state(standin, str(late["id"]), "CANCELLED")
    assert len([run for run in missed if standin.steps(run)]) == 1


def states(standin: Standin, runs: list[str]) -> list[str]:
    return [run["state_type"] for run in standin.runs(runs)]


def is_over(run: dict[str, object]) -> bool:
    """Whether the time at which a run was to start is over."""
    return datetime.fromisoformat(str(run["expected_start_time"])) < datetime.now(UTC)


@pytest.fixture(scope="module")
def worker(standin: Standin) -> Iterator[subprocess.Popen[bytes]]:
    with standin.worker() as process:
        yield process


@pytest.mark.usefixtures("worker")
def test_of_runs_that_start_at_once_one_trains_and_the_others_say_why(standin: Standin) -> None:
    standin.hold.touch()
    runs = standin.start(RUNS)
    wait_until(lambda: any(standin.steps(run) for run in runs))
    shell = subprocess.run(
        [sys.executable, "flow.py"], cwd=standin.repository, env=standin.environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    wait_until(lambda: sum(run["state_type"] == "CANCELLED" for run in standin.runs(runs)) == RUNS - 1)
    standin.hold.unlink()
    wait_until(lambda: all(run["state_type"] in ENDED for run in standin.runs(runs)))
    found = standin.runs(runs)
    trained = [run for run in found if run["state_type"] == "COMPLETED"]
    assert len(trained) == 1
    assert [run for run in runs if standin.steps(run)] == [trained[0]["id"]]
    others = [run for run in found if run not in trained]
    start, last = (datetime.fromisoformat(each) for each in (trained[0]["start_time"], max(map(ended, others))))
    print(f"{len(others)} ended within {(last - start).total_seconds():.1f} s of the start of the first")
    why = f"run {trained[0]['name']} has been running since "
    messages = [str(run["state"]["message"]) for run in others]  # type: ignore[index]
    assert [text for text in messages if not text.startswith(why)] == []
    assert shell.returncode == 75
    assert shell.stderr.strip().splitlines()[-1][: len(why)] == why


@pytest.mark.parametrize("target", ["flow", "stage", "worker", "worker and flow", "server"])
def test_a_killed_run_goes_on_by_itself_and_ends_as_an_unbroken_one(standin, worker, target) -> None:
    standin.hold.touch()
    (run,) = standin.start()
    at = random.randrange(1, STEPS - 1)
    wait_until(lambda: len(standin.steps(run)) >= at)
    started = time.monotonic()
    kill(standin, worker, run, target)
    standin.complete(run)
    print(f"{target} killed at step {at}: completed {time.monotonic() - started:.0f} s later")
    steps = [step for _, step in standin.steps(run)]
    assert sorted(set(steps)) == list(range(1, STEPS + 1))
    assert len(steps) <= STEPS + 1  # the step that was cut off may be repeated
    wait_until(lambda: not processes_under(standin.folder(run)))


@pytest.mark.usefixtures("worker")
def test_a_run_that_crashes_again_and_again_fails_and_a_message_is_sent(standin: Standin) -> None:
    standin.hold.touch()
    (run,) = standin.start()
    killed: set[int] = {0}
    while len(killed) <= RESTARTS + 1:
        wait_until(
            lambda: standin.state(run) == "RUNNING" and standin.process(run, "prefect.engine") not in killed
        )
        flow = standin.process(run, "prefect.engine")
        os.kill(flow, signal.SIGKILL)
        killed.add(flow)
        print(f"crash {len(killed) - 1} of run {run}")
    wait_until(lambda: standin.state(run) == "FAILED")
    standin.hold.unlink()
    state = standin.runs([run])[0]["state"]
    assert f"it crashed {RESTARTS + 1} times" in state["message"]  # type: ignore[index]
    dead = f": crashed too often\nit crashed {RESTARTS + 1} times, "
    wait_until(lambda: any(dead in each for each in standin.webhook.texts()))


@pytest.mark.usefixtures("worker")
def test_a_run_that_was_called_dead_and_lives_goes_on(standin: Standin) -> None:
    with at_work(standin) as run:
        set_state(standin, run, "CRASHED")
        wait_until(lambda: standin.state(run) == "RUNNING")
        standin.complete(run)
    assert len({process for process, _ in standin.steps(run)}) == 1


@pytest.mark.usefixtures("worker")
def test_a_run_that_was_called_dead_stops_where_another_has_taken_its_place(standin: Standin) -> None:
    flow = standin.server.request("GET", "/flows/name/retrain")["id"]  # type: ignore[index]
    elsewhere = {"flow_id": flow, "name": "elsewhere", "state": {"type": "RUNNING"}}
    with at_work(standin) as run:
        other = str(standin.server.request("POST", "/flow_runs/", elsewhere)["id"])  # type: ignore[index]
        set_state(standin, run, "CRASHED")
        set_state(standin, other, "RUNNING")  # after the other was marked as crashed
        wait_until(lambda: standin.state(run) == "CANCELLED")
        wait_until(lambda: not processes_under(standin.folder(run)))
        set_state(standin, other, "COMPLETED")
    message = str(standin.runs([run])[0]["state"]["message"])  # type: ignore[index]
    assert message.startswith("run elsewhere has been running since ")
    assert message.endswith("; this run had been marked as crashed")


@pytest.mark.usefixtures("worker")
def test_no_run_is_dead_because_the_server_was_away(standin: Standin) -> None:
    run = standin.begin()
    standin.server.restart(AWAY_S)
    standin.complete(run)
    assert len({process for process, _ in standin.steps(run)}) == 1


@pytest.mark.usefixtures("worker")
def test_a_run_that_is_deleted_saves_and_leaves_no_process(standin: Standin) -> None:
    run = standin.begin()
    standin.server.request("DELETE", f"/flow_runs/{run}")
    wait_until(lambda: not processes_under(standin.folder(run)))
    saved = json.loads((standin.folder(run) / ".work" / "checkpoint.json").read_text())
    assert saved["step"] == standin.steps(run)[-1][1] < STEPS
    (other,) = standin.start()
    standin.complete(other)


@contextmanager
def at_work(standin: Standin) -> Iterator[str]:
    """A run at work that the server does not start again, whatever its state, for the block."""
    with standin.server.acting("perennial: start again", after_s=DAY_S):
        run = standin.begin()
        try:
            yield run
        finally:
            standin.hold.unlink(missing_ok=True)


def set_state(standin: Standin, run: str, state: str) -> None:
    standin.server.post(f"/flow_runs/{run}/set_state", {"state": {"type": state}, "force": True})


@pytest.mark.usefixtures("worker")
def test_a_crashed_run_starts_again_where_the_server_does_not_see_its_crash(standin: Standin) -> None:
    with standin.server.acting("perennial: start again", after_s=DAY_S):
        run = standin.begin()
        os.kill(standin.process(run, "prefect.engine"), signal.SIGKILL)
        wait_until(lambda: standin.state(run) == "CRASHED")
        standin.complete(run)


@pytest.mark.usefixtures("worker")
def test_a_killed_run_by_hand_is_found_where_the_server_misses_its_silence(standin: Standin) -> None:
    with standin.server.acting("perennial: dead runs", after_s=DAY_S):
        standin.hold.touch()
        shell = subprocess.Popen(
            [sys.executable, "flow.py"], cwd=standin.repository, env=standin.environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait_until((standin.repository / ".work" / "steps.log").exists)
        ((run, by_hand),) = [(each["id"], each["deployment_id"]) for each in standin.server.runs("RUNNING")]
        assert by_hand is None
        shell.kill()
        shell.wait()
        wait_until(lambda: standin.state(str(run)) == "CRASHED")
        standin.hold.unlink()
    time.sleep(SETTLED_S)
    assert standin.state(str(run)) == "CRASHED"  # nobody else would have its checkout


@pytest.mark.usefixtures("worker")
def test_a_run_whose_worker_ended_before_it_started_is_found(standin: Standin) -> None:
    with standin.server.acting("perennial: runs that do not start", after_s=DAY_S):
        deployment = standin.server.post("/deployments/filter", {})[0]["id"]
        taken = {"state": {"type": "PENDING"}}  # by a worker that is gone
        run = str(standin.server.request("POST", f"/deployments/{deployment}/create_flow_run", taken)["id"])  # type: ignore[index]
        standin.complete(run)


def test_a_run_that_fell_silent_days_ago_is_ended(standin: Standin) -> None:
    server, old = standin.server, datetime.now(UTC) - timedelta(days=3)
    with server.acting("perennial: dead runs", after_s=DAY_S):
        deployment = server.post("/deployments/filter", {})[0]
        pools = [str(deployment["work_pool_name"])]
        running = {"state": {"type": "RUNNING"}}
        run = str(server.request("POST", f"/deployments/{deployment['id']}/create_flow_run", running)["id"])  # type: ignore[index]
        about = {"resource": {"prefect.resource.id": f"prefect.flow-run.{run}"}, "payload": {}}
        beat = {"id": str(uuid4()), "event": "prefect.flow-run.heartbeat", "occurred": old.isoformat(), **about}
        server.request("POST", "/events", [beat])
        stored = {
            "filter": {"resource": {"id": [f"prefect.flow-run.{run}"]}, "event": {"name": [beat["event"]]}}
        }
        wait_until(lambda: server.request("POST", "/events/filter", stored)["events"])  # type: ignore[index]
        with temporary_settings({PREFECT_API_URL: server.url}), get_client(sync_client=True) as client:
            silent: Silent = {}
            for _ in range(CHECKS[StateType.RUNNING] + 1):
                silent = end_silent(client, pools, silent)
        assert standin.state(run) == "CRASHED"
        server.request("POST", f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLED"}, "force": True})


@pytest.mark.usefixtures("worker")
def test_a_cancelled_run_saves_and_leaves_no_process(standin: Standin) -> None:
    standin.hold.touch()
    (run,) = standin.start()
    at = random.randrange(0, STEPS - 1)
    wait_until(lambda: standin.process(run, "prefect.engine") and len(standin.steps(run)) >= at)
    standin.server.post(f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}})
    started = time.monotonic()
    wait_until(lambda: standin.state(run) == "CANCELLED")
    wait_until(lambda: not processes_under(standin.folder(run)))
    standin.hold.unlink()
    print(f"cancelled after step {at}: gone {time.monotonic() - started:.1f} s later")
    assert not (standin.folder(run) / "dvc.lock").exists()
    states = standin.server.request("GET", "/flow_run_states/", flow_run_id=run)
    assert [state["type"] for state in states][-2:] == ["CANCELLING", "CANCELLED"]


def ended(run: dict[str, str]) -> str:
    """When a run got its last state."""
    return str(run["state"]["timestamp"])  # type: ignore[index]


def kill(standin: Standin, worker: subprocess.Popen[bytes], run: str, target: str) -> None:
    if target == "server":
        standin.server.restart()
        return
    flow = standin.process(run, "prefect.engine")
    workers = [int(pid) for pid in children(worker.pid)]
    for pid in {
        "flow": [flow],
        "stage": [standin.process(run, "train.py")],
        "worker": workers,
        "worker and flow": [*workers, flow],
    }[target]:
        assert pid > 1
        os.kill(pid, signal.SIGKILL)


def children(process: int) -> list[str]:
    return Path(f"/proc/{process}/task/{process}/children").read_text().split()


def unbroken() -> dict[str, object]:
    """What a training makes that nobody kills."""
    weights = ""
    for step in range(1, STEPS + 1):
        weights = hashlib.sha256(f"{weights}{step}".encode()).hexdigest()
    return {"step": STEPS, "weights": weights}
