"""Faults of a deployment: a Prefect server, a worker and their runs, all in the scratch folder."""

import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import psutil

from perennial.base.errors import PerennialError
from perennial.base.processes.process import is_alive
from perennial.orchestration.client.prefect_server import PrefectServer, connect
from perennial.orchestration.remote_runs.start_run import start
from perennial.project.rehearsal import marked_programs
from perennial.project.rehearsal.fault_trial import CORRECT_STATE, SAME_RESULT, Check, Trial
from perennial.project.rehearsal.marked_programs import Program
from perennial.project.rehearsal.scratch_project import LAST, Project
from perennial.project.rehearsal.services import free_port, wait_for_server

POOL, DEPLOYMENT = "cpu", "on-demand"
HEARTBEATS_S = 90.0  # three of them, as prefect.yaml sets them
LIMIT_S = 900.0
DOWN_S = 15.0  # of the server, at most
ENDED = ("COMPLETED", "FAILED", "CANCELLED")
AT_WORK = ("RUNNING", "PENDING", "CANCELLING")


class Deployment:
    """A Prefect server and a worker with the deployments of the scratch project."""

    def __init__(self, project: Project) -> None:
        self.project, self.folder = project, project.base / "deployment"
        self.folder.mkdir()
        self.port = free_port()
        self.server: Program | None = None
        self.worker: Program | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Environment of the server, the worker and their runs."""
        own = {
            "PREFECT_API_URL": f"http://127.0.0.1:{self.port}/api",
            "PERENNIAL_REPOSITORY": str(self.project.origin),
            "PERENNIAL_HOME": str(self.folder / "home"),
            "PREFECT_HOME": str(self.folder / "prefect"),  # flows without a server share another database
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
        }
        return self.project.environment(self.folder, self.project.reference) | own

    @property
    def api(self) -> PrefectServer:
        """The server's API; a server that restarts answers within the tries."""
        return connect(self.environment, pauses=(1, 2, 4, 8, 16, 32))

    def start(self) -> None:
        """Start server and worker, and deploy."""
        self.start_server()
        deployed = self._start("tasks.deploy").wait()
        if deployed.code:
            raise PerennialError(f"the scratch project cannot be deployed: {deployed.last_lines()}")
        self.worker = self._start("tasks.worker", "--pool", POOL)

    def start_server(self) -> None:
        """Start the server, again with the same database."""
        host = ["--host", "127.0.0.1", "--port", str(self.port)]
        self.server = self._start("prefect", "server", "start", *host)
        wait_for_server(f"http://127.0.0.1:{self.port}/api/health", self.server)

    def kill_server(self) -> None:
        """SIGKILL the server and its services."""
        if self.server:
            marked_programs.kill_group(self.server.pid)
            self.server.process.wait()

    def stop(self) -> None:
        """End everything."""
        if self.worker and not self.worker.ended:
            self.worker.process.terminate()
            with suppress(PerennialError):
                self.worker.wait(60)
        marked_programs.kill_marked(self.folder)

    def _start(self, module: str, *arguments: str) -> Program:
        return Program([sys.executable, "-m", module, *arguments], self.project.reference, self.environment)

    def new_run(self) -> str:
        """Start a run that trains regardless of earlier runs; returns its id."""
        home = self.folder / "home"
        for left in (home / "cache" / "runs", home / "train"):
            shutil.rmtree(left, ignore_errors=True)
        return start(self.api, DEPLOYMENT, {"push": False}).id

    def state(self, run: str) -> str:
        """The type of a run's state."""
        return str(self.api.request("GET", f"flow_runs/{run}")["state_type"])

    def process(self, run: str, *words: str) -> int | None:
        """A process of a run: `prefect.engine` is its flow, `perennial STAGE` a stage."""
        place = self.folder / "home" / "runs" / run
        for number, line in marked_programs.marked(self.folder).items():
            with suppress(psutil.Error):
                if psutil.Process(number).cwd() == str(place) and tuple(line[2 : 2 + len(words)]) == words:
                    return number
        return None


def killed_worker(trial: Trial, deployment: Deployment) -> Iterator[Check]:
    """SIGKILL the Prefect worker during a run, and sometimes the flow, too: the run continues."""
    with_flow = trial.rng.random() < 0.34

    def kill(run: str) -> None:
        worker = marked_programs.find(deployment.folder, "prefect", "worker", "start")
        if worker is None:
            raise marked_programs.TooLate
        trial.signal(worker, signal.SIGKILL, "the worker")
        if with_flow and (flow := deployment.process(run, "prefect.engine")):
            trial.signal(flow, signal.SIGKILL, "the flow")

    yield from _during_a_run(trial, deployment, kill)


def killed_server(trial: Trial, deployment: Deployment) -> Iterator[Check]:
    """SIGKILL the Prefect server during a run, and restart it after some seconds: the run continues."""

    def kill(_: str) -> None:
        deployment.kill_server()
        down = trial.rng.uniform(0, DOWN_S)
        trial.note(f"the server is down for {down:.0f} s")
        time.sleep(down)
        deployment.start_server()

    yield from _during_a_run(trial, deployment, kill)


def _during_a_run(trial: Trial, deployment: Deployment, fault: Callable[[str], None]) -> Iterator[Check]:
    """Inject a fault into a run at a random moment of a random stage, and follow the run to its end."""
    run, stage = deployment.new_run(), trial.stage("convert", "train", "evaluate", "export")
    trial.note(f"run {run}")
    try:
        process = marked_programs.wait_for(lambda: _stage(deployment, run, stage), deployment.worker, LIMIT_S)
        time.sleep(trial.rng.random() * trial.durations.of(stage) / 2)
        if not is_alive(process):
            raise marked_programs.TooLate
        fault(run)
        yield _followed(deployment, run)
        place = deployment.folder / "home" / "runs" / run
        yield Check(SAME_RESULT, "; ".join(deployment.project.differences(place, LAST)))
    finally:
        _end(deployment, run)


def _stage(deployment: Deployment, run: str, stage: str) -> int | None:
    """The process of a stage; TooLate if the run has ended."""
    if found := deployment.process(run, "perennial", stage):
        return found
    if deployment.state(run) in ENDED:
        raise marked_programs.TooLate
    time.sleep(0.5)
    return None


def _followed(deployment: Deployment, run: str) -> Check:
    """Check that the state of a run matched its process until completion, within three heartbeats."""
    deadline, wrong = time.monotonic() + LIMIT_S, None
    while time.monotonic() < deadline:
        state, alive = deployment.state(run), deployment.process(run, "prefect.engine") is not None
        if state in ENDED and not alive:
            return Check(CORRECT_STATE, "" if state == "COMPLETED" else f"the run ended {state}")
        agrees = alive == (state in AT_WORK) or (not alive and state == "PENDING")
        wrong = None if agrees else wrong or time.monotonic()
        if wrong and time.monotonic() - wrong > HEARTBEATS_S:
            seen = "at work" if alive else "gone"
            return Check(CORRECT_STATE, f"its process is {seen}, and on the server it is {state}")
        time.sleep(0.5)
    return Check(CORRECT_STATE, f"{state} after {LIMIT_S:.0f} s")


def _end(deployment: Deployment, run: str) -> None:
    """Cancel a run that has not ended, so that the next one can start."""
    if deployment.state(run) not in ENDED:
        deployment.api.request("POST", f"flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}})
        deadline = time.monotonic() + HEARTBEATS_S
        while deployment.state(run) not in ENDED and time.monotonic() < deadline:
            time.sleep(0.5)
    shutil.rmtree(deployment.folder / "home" / "runs" / run, ignore_errors=True)
