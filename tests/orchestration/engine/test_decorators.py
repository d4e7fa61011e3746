"""Flows and tasks without a server."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest
from prefect.settings import PREFECT_FLOWS_DEFAULT_RETRIES, temporary_settings
from prefect.task_engine import TaskRunTimeoutError
from support.checkout import wait_until
from support.tasks import write_pipeline

from perennial.base.errors import PerennialError
from perennial.base.processes.process import is_alive
from perennial.orchestration.engine import decorators, this_run
from perennial.orchestration.engine.decorators import Policy, TookTooLong, flow, task
from perennial.orchestration.engine.this_run import Stopped

pytestmark = pytest.mark.timing

ROOT = Path(__file__).parents[3]


def test_a_task_that_reaches_its_time_limit_is_stopped_and_not_tried_again() -> None:
    seen = []

    @task(Policy(limit_s=1, pauses_s=(0, 0), is_worth_retrying=lambda _: True, name="work on {what}"))
    def work(what: str) -> None:
        seen.append(what)
        time.sleep(60)

    with pytest.raises(TookTooLong, match="work on data did not end within its time limit of 1 s"):
        work("data")
    assert (seen, signal.getitimer(signal.ITIMER_REAL)) == (["data"], (0, 0))
    thread = threading.Thread(target=task(Policy(limit_s=1))(lambda: seen.append("in a thread")))
    thread.start()
    thread.join()
    assert seen[-1] == "in a thread"


def test_a_run_has_an_id_a_name_and_all_parameters_and_its_lines_name_the_task(caplog) -> None:
    @task(Policy())
    def work() -> None:
        this_run.log().info("done", extra={"result": "ran"})

    @flow(run_name=lambda: f"{this_run.parameters()['reason']} {this_run.start():%Y}")
    def example(*, reason: str = "by hand", push: bool = False) -> str | None:
        work()
        return f"{this_run.run_name()}, {push}" if this_run.run_id() else None

    caplog.set_level(logging.INFO)
    assert example(push=True) == f"by hand {time.gmtime().tm_year}, True"
    named = [(record.task_name, record.getMessage().split()[0]) for record in caplog.records]  # type: ignore[attr-defined]
    assert named == [("example", "begins:"), ("work", "done"), ("example", "completed:")]
    assert this_run.run_id() is None


@pytest.mark.parametrize(
    ("error", "ended"),
    [
        (PerennialError("no disk"), ("Failed", "no disk")),
        (KeyboardInterrupt(), ("Stopped", "it was interrupted")),
        (Stopped("another run is active"), None),
    ],
)
def test_how_a_run_ended_is_recorded(error: BaseException, ended: tuple[str, str] | None) -> None:
    seen = []

    @flow(run_name=lambda: "a run", at_failure=lambda _, how, why: seen.append((how, why)))
    def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        fail()
    assert seen == ([ended] if ended else [])


def test_with_a_server_the_same_policy_is_that_of_prefect_s_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_run, "has_server", lambda: True)
    policy = Policy(limit_s=7, pauses_s=(10, 60), is_worth_retrying=lambda _: True, name="work on {what}")
    made = task(policy)(lambda what: what)
    assert (made.retries, made.retry_delay_seconds, made.timeout_seconds) == (2, [10, 60], 7)
    assert made.task_run_name == "work on {what}"
    for error, again in ((OSError(), True), (TaskRunTimeoutError(), False), (None, False)):
        state = Mock(aresult=AsyncMock(side_effect=error))
        assert asyncio.run(made.retry_condition_fn(None, None, state)) is again


def test_flows_are_not_retried_whatever_the_default_of_a_site_is() -> None:
    with temporary_settings({PREFECT_FLOWS_DEFAULT_RETRIES: 2}):
        made = decorators._of_prefect(lambda: None, str)
    assert made.retries == 0


FLOW = """
import sys
from tasks.stages import train
from perennial.orchestration.engine.decorators import flow
from perennial.orchestration.terminal import flow_command

@flow(run_name=lambda: "a run")
def example():
    train({})

sys.argv = ["example"]
flow_command.require_commit = lambda folder: None
flow_command.run_plain(example)
"""
STAGE = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path("saved").touch(), sys.exit(75)))
pathlib.Path("stage").write_text(str(os.getpid()))
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_with_75_after_the_stage_has_saved(tmp_path: Path, number: signal.Signals) -> None:
    folder = write_pipeline(tmp_path, STAGE)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    command = [sys.executable, "-c", FLOW]
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as run:
        wait_until(lambda: (folder / "stage").exists() and (folder / "stage").read_text())
        run.send_signal(number)
        _, errors = run.communicate()
    assert run.returncode == 75, errors
    assert "interrupted; no half-written output was left; run it again to resume" in errors
    assert "Traceback" not in errors
    assert (folder / "saved").exists()
    assert not is_alive(int((folder / "stage").read_text()))


def test_a_run_imports_neither_prefect_nor_the_clients_of_a_server() -> None:
    program = "import flows.retrain, flows.rebuild, sys; print({'prefect', 'httpx'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
