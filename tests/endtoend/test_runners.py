"""The same pipeline under `dvc repro`, as a deployment of Prefect, and as a command."""

import filecmp
import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from support import forks
from support.checkout import Beside, Checkout, Server, wait_until
from support.small_servers import SECRET, Hook, webhook

from perennial.base.project.stage_table import STAGES

pytestmark = pytest.mark.timing

OTHER_TASKS = (
    "start_record", "pin", "find_unchanged", "require_champion", "pin_champion", "record", "publish",
    "summarize",
)  # fmt: skip
OUTPUTS = ("data", "models", "metrics")


@dataclass(frozen=True)
class Asked:
    """A run that `perennial run --watch` started: its exit code, what it printed, and its checkout."""

    code: int
    run: dict[str, str]
    checkout: Path


@dataclass(frozen=True)
class Deployed:
    """A scheduled run of the deployment: its checkout, what it published, its server and the worker's log."""

    checkout: Path
    served: Path
    run: dict[str, object]
    server: Server
    scheduled: int  # runs that the schedule had created when the first started
    log: Path
    project: Checkout
    ask: Callable[..., Asked]  # runs `perennial run on-demand` with some options
    hook: Hook  # receives the alerts
    printed: str  # by `make deploy`

    def alert(self, start: str) -> str:
        """The alert that begins so, which may be on its way."""
        wait_until(lambda: any(text.startswith(start) for text in self.hook.texts()), seconds=300)
        return next(text for text in self.hook.texts() if text.startswith(start))

    def logs(self, **more: object) -> list[dict[str, object]]:
        """Log lines of this run: the schedule may have started another."""
        return self.server.post("/logs/filter", {"logs": {"flow_run_id": {"any_": [self.run["id"]]}, **more}})

    def task_runs(self) -> list[dict[str, object]]:
        """Task runs of this run."""
        return self.server.post("/task_runs/filter", {"flow_runs": {"id": {"any_": [self.run["id"]]}}})


@pytest.fixture(scope="module")
def hook() -> Iterator[Hook]:
    with webhook() as started:
        yield started


@pytest.fixture(scope="module")
def deployed(make_checkout, server, hook, tmp_path_factory) -> Iterator[Deployed]:
    """`make deploy`, a worker, and the first run of an active schedule of `retrain/nightly`."""
    project = replace(make_checkout("deployed"), forked=True)
    home = tmp_path_factory.mktemp("worker")
    extra = {"PREFECT_API_URL": server.url, "PERENNIAL_HOME": str(home)}
    project.set("publish", url=str(home / "served"))
    project.commit("publish")
    named = {"PERENNIAL_NOTIFY_URL": hook.url, "PERENNIAL_REPOSITORY": f"{project.folder}/"}
    printed = project.must("python", "-m", "tasks.deploy", **extra, **named)
    # Scheduled runs are forks, so that their imports take no time; the others start as a worker starts them.
    command = f"{Path(forks.with_tensorflow()).parent}/perennial flow-run"
    nightly: Any = server.request("GET", "/deployments/name/retrain/nightly")
    variables = {**nightly["job_variables"], "command": command}
    server.request("PATCH", f"/deployments/{nightly['id']}", {"job_variables": variables})
    worker = ["python", "-m", "tasks.worker", "--pool", "cpu"]

    def ask(*options: str) -> Asked:
        command = ("perennial", "run", "on-demand", *options, "--watch", "--json")
        done = project.run(*command, **extra)
        run = json.loads(done.stdout[done.stdout.index("{") :])
        return Asked(done.returncode, run, home / "runs" / run["id"])

    # The worker's own code is this checkout's: what runs must come from the clone all the same.
    environment = project.environment(**extra, PREFECT_WORKER_QUERY_SECONDS="2")
    with Beside(worker, project.folder, environment) as started:
        with server.schedule("nightly", seconds=10):
            wait_until(lambda: server.runs("PENDING", "RUNNING"))
            scheduled = len(server.runs("SCHEDULED"))
        wait_until(lambda: not server.runs("PENDING", "RUNNING"), seconds=3600)
        # The scheduler may add a run while the schedule is paused; the first to start is the one looked at.
        run = min((run for run in server.runs() if run["start_time"]), key=lambda run: str(run["start_time"]))
        yield Deployed(
            home / "runs" / str(run["id"]), home / "served", run, server, scheduled, started.log,
            project, ask, hook, printed,
        )  # fmt: skip


def test_an_active_schedule_creates_runs_and_the_worker_completes_one(deployed: Deployed) -> None:
    assert {"state_type": "COMPLETED", "auto_scheduled": True}.items() <= deployed.run.items()
    assert deployed.scheduled > 1
    message = str(deployed.run["state"]["message"])  # type: ignore[index]
    assert message.startswith("passed the gate: test accuracy ")
    assert message.endswith("; record: promoted")


@pytest.mark.slow
def test_a_run_on_demand_runs_a_revision_with_its_overrides_and_packages(deployed: Deployed) -> None:
    first = deployed.project.must("git", "rev-parse", "--short", "HEAD").strip()
    asked = deployed.ask("--set", "gate.min_accuracy=0.2", "--rev", first, "--reason", 'a "lower" bar')
    assert asked.code == 0
    assert asked.run["state"] == "Completed"
    result = "passed the gate: test accuracy 0.7688 reaches gate.min_accuracy 0.2; compared with no champion"
    assert asked.run["message"] == f"{result}; record: not promoted"  # it is the champion's model
    record = json.loads((asked.checkout / "runs" / asked.run["id"] / "run.json").read_text())
    assert record["request"]["overrides"] == {"gate.min_accuracy": 0.2}
    assert record["params"]["gate"]["min_accuracy"] == 0.2
    assert record["request"]["reason"] == 'a "lower" bar'
    assert record["revision"].startswith(record["request"]["rev"])
    assert record["environment"]["prefix"] == sys.prefix  # installed from the same lock
    pushed = f"refs/remotes/origin/run/{asked.run['id']}"
    git = ["git", "-C", str(asked.checkout)]
    committed = subprocess.check_output([*git, "show", f"{pushed}:params.yaml"], text=True)
    message = subprocess.check_output([*git, "log", "-2", "--format=%B", pushed], text=True)
    assert YAML(typ="safe").load(committed)["gate"]["min_accuracy"] == 0.2
    assert 'Reason of the run: a "lower" bar' in message
    decision = json.loads((asked.checkout / "metrics" / "decision.json").read_text())
    assert any("gate.min_accuracy 0.2" in reason for reason in decision["reasons"])
    alerted = f"{asked.run['name']}: rejected\nthis is the model of the champion v0.0.1\n"
    assert deployed.alert(alerted)


def test_a_run_of_a_revision_that_is_not_there_fails_and_says_so(deployed: Deployed) -> None:
    refused = deployed.ask("--rev", "nowhere")
    assert refused.code == 1
    assert refused.run["state"] == "Failed"
    assert not refused.checkout.exists()
    why = "has no branch, tag or commit nowhere; branches: main"
    named = {"flow_run_id": {"any_": [refused.run["id"]]}, "level": {"ge_": logging.ERROR}}
    wait_until(lambda: deployed.server.post("/logs/filter", {"logs": named}))  # Prefect sends logs in batches
    (error,) = deployed.server.post("/logs/filter", {"logs": named})
    assert [why in text for text in (refused.run["message"], str(error["message"]))] == [True, True]
    alerted = f"{refused.run['name']}: failed\nthe run could not be prepared: "
    assert why in deployed.alert(alerted)


def test_an_alert_about_a_run_of_a_new_schedule_is_not_kept_back(deployed: Deployed, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "--bare", tmp_path], check=True)
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat(timespec="seconds")  # not for the worker

    def created() -> list[dict[str, object]]:
        runs = [run for run in deployed.server.runs("SCHEDULED") if run["auto_scheduled"]]
        return [run for run in runs if str(run["expected_start_time"]) >= tomorrow]

    with deployed.server.schedule("hourly", seconds=86_400, anchor_date=tomorrow):
        wait_until(created)
        run = created()[0]
        here = {"PREFECT_API_URL": deployed.server.url, "PERENNIAL_REPOSITORY": str(tmp_path)}
        deployed.project.must("perennial", "flow-run", PREFECT__FLOW_RUN_ID=str(run["id"]), **here)
        assert "no default branch" in deployed.alert(f"{run['name']}: failed\n")


def test_a_promoted_model_is_an_alert_with_its_reasons_and_a_link(deployed: Deployed) -> None:
    text = deployed.alert(f"{deployed.run['name']}: promoted\nclassifier v0.0.1 is champion")
    assert "\ntest accuracy " in text
    assert text.endswith(f"{deployed.server.url[:-4]}/runs/flow-run/{deployed.run['id']}")


WORDS = 'class "5\' 猫" \\ a\nand <!channel> & {{ x }} {% if %}'
SHOWN = 'class "5\' 猫" \\ a\nand &lt;!channel&gt; &amp; {{ x }} {% if %}'  # as Slack wants it
FAILURES = {
    "failed": ("on-demand", f"StageFailed: train ended with exit code 75: {WORDS}"),
    "crashed too often": (
        "on-demand",
        f"StageFailed: crashed 4 times, and is not started again by itself; at last: {WORDS}",
    ),
    "rebuild differs": ("weekly", f"StageFailed: rebuild ended with exit code 4: v0.0.2 different: {WORDS}"),
}
NEWS = ("promoted", "rejected", "retraining-started", "drift", "approval-expired")
ALERTS = """
import os
from perennial.orchestration.steps.artifacts import alert
for kind, run in {ids!r}.items():
    os.environ["PREFECT__RUNTIME__FLOW_RUN__ID"] = run
    alert(kind, {words!r})
"""
LATER = {"type": "SCHEDULED", "state_details": {"scheduled_time": "2099-01-01T00:00:00Z"}}
NEEDED = {"person": {"run": "none"}}  # parameters without a default, by deployment


@pytest.mark.slow
def test_alerts_of_all_kinds_arrive_as_json_whatever_their_words_hold(deployed: Deployed) -> None:
    runs = {kind: failed(deployed.server, *how) for kind, how in FAILURES.items()}
    news = {kind: scheduled(deployed.server, "on-demand") for kind in NEWS}
    ids = {kind: run["id"] for kind, run in news.items()}
    ours = {"PREFECT__RUNTIME__DEPLOYMENT__ID": "x", "PREFECT_API_URL": deployed.server.url}
    deployed.project.must("python", "-m", "-c", ALERTS.format(ids=ids, words=WORDS), **ours)
    runs |= {kind.replace("-", " "): run for kind, run in news.items()}
    for kind, run in runs.items():
        text = deployed.alert(f"{run['name']}: {kind}\n")
        assert text.endswith(f"{SHOWN}\n{deployed.server.url[:-4]}/runs/flow-run/{run['id']}")
        assert "StageFailed" not in text


def scheduled(server: Server, deployment: str) -> dict[str, str]:
    """A run of a deployment that does not start during the tests."""
    (found,) = server.post("/deployments/filter", {"deployments": {"name": {"any_": [deployment]}}})
    path = f"/deployments/{found['id']}/create_flow_run"
    return server.request("POST", path, {"state": LATER, "parameters": NEEDED.get(deployment, {})})  # type: ignore[return-value]


def set_state(server: Server, run: dict[str, str], state: str, message: str | None = None) -> None:
    body = LATER if state == "SCHEDULED" else {"type": state, "message": message}
    server.request("POST", f"/flow_runs/{run['id']}/set_state", {"state": body, "force": True})


def failed(server: Server, deployment: str, message: str) -> dict[str, str]:
    run = scheduled(server, deployment)
    set_state(server, run, "FAILED", f"Flow run encountered an exception: {message}")
    return run


@pytest.mark.slow
def test_a_test_alert_says_what_the_webhook_answers(deployed: Deployed) -> None:
    url = {"PREFECT_API_URL": deployed.server.url}
    assert json.loads(deployed.project.must("perennial", "monitor", "--alert", "Ünï 猫", "--json", **url)) == {
        "status": 200
    }
    assert "perennial: test alert\nÜnï 猫" in deployed.hook.texts()
    received, deployed.hook.status = len(deployed.hook.texts()), 404
    refused = deployed.project.run("perennial", "monitor", "--alert", "again", **url)
    deployed.hook.status = 200
    assert refused.returncode == 1
    assert "the webhook answered 404: no_service" in refused.stdout
    assert len(deployed.hook.texts()) == received + 1
    blocks = json.dumps(deployed.server.post("/block_documents/filter", {}))
    logs = deployed.server.program.log.read_text() + deployed.log.read_text()
    for shown in (deployed.printed, refused.stdout, blocks, logs):
        assert SECRET not in shown


def test_status_shows_the_run_that_ended(deployed: Deployed) -> None:
    url = {"PREFECT_API_URL": deployed.server.url}
    status = json.loads(deployed.project.must("perennial", "status", "--json", **url))
    by_name = {each["name"]: each for each in status["server"]["deployments"]}
    assert by_name["retrain/nightly"]["last_run"]["state"] == "Completed"
    assert status["server"]["workers"][0]["status"] == "ONLINE"
    assert not any("no worker" in each for each in status["problems"])


def test_server_worker_and_run_log_no_errors(deployed: Deployed) -> None:
    assert deployed.logs(level={"ge_": logging.ERROR}) == []
    entries = entries_of(deployed.server.program.log) + entries_of(deployed.log)
    errors = [entry for entry in entries if re.search(r"ERROR|CRITICAL|Traceback|\w(Error|Exception):", entry)]
    # The server says so on a busy machine, and tries again.
    assert [entry for entry in errors if "database is locked" not in entry] == []


def entries_of(log: Path) -> list[str]:
    """The entries of a log: each begins with a time, and may go on over lines such as a traceback's."""
    return re.split(r"^(?=\d\d:\d\d:\d\d\.\d+ \| )", log.read_text(), flags=re.MULTILINE)


def test_the_deployment_leaves_the_same_files_as_dvc_repro(reproduced, deployed) -> None:
    assert (deployed.checkout / "dvc.lock").read_text() == (reproduced.folder / "dvc.lock").read_text()
    found = {each: differences(reproduced.folder / each, deployed.checkout / each) for each in OUTPUTS}
    assert found == {each: [] for each in OUTPUTS}


def test_every_stage_is_a_task_run_in_the_server(deployed: Deployed) -> None:
    names = {str(run["name"]).split("-")[0]: run["state_type"] for run in deployed.task_runs()}
    assert names == dict.fromkeys((*STAGES, *OTHER_TASKS), "COMPLETED")


def test_the_promoted_export_is_published(deployed: Deployed) -> None:
    current = deployed.served / "current"
    assert current.readlink() == Path("1")
    assert set(differences(deployed.checkout / "models" / "export", current)) == {
        ".perennial",
        "assets.extra/provenance.json",
        "assets.extra/published.json",
    }


def test_the_lines_of_a_stage_summary_and_pictures_are_in_the_server(deployed: Deployed) -> None:
    assert any("validation accuracy" in str(line["message"]) for line in deployed.logs())
    artifacts = {str(each["key"]): str(each["data"]) for each in deployed.server.post("/artifacts/filter", {})}
    assert "| data set | digits |" in artifacts.pop("retrain")
    artifacts.pop("training")  # the progress
    assert artifacts.keys() == {"retrain-curves", "retrain-confusion", "retrain-reliability"}
    assert {picture.split(",")[0] for picture in artifacts.values()} == {"data:image/png;base64"}


def test_the_flow_leaves_a_report_of_its_run(deployed: Deployed) -> None:
    page = (deployed.checkout / "report.html").read_text(encoding="utf-8")
    assert "<h1>Passed the gate</h1>" in page
    assert "Not there" not in page
    assert "No time is known" not in page
    assert "Every tracked file that a run reads is as in this revision" in page


def test_all_deployments_are_paused_and_each_work_pool_runs_one_at_a_time(deployed: Deployed) -> None:
    found = deployed.server.post("/deployments/filter", {})
    active = {each["name"]: [schedule["active"] for schedule in each["schedules"]] for each in found}
    assert active == {"on-demand": [], "nightly": [False], "hourly": [False], "weekly": [False], "person": []}

    pools = deployed.server.post("/work_pools/filter", {})
    assert {pool["name"]: pool["concurrency_limit"] for pool in pools} == {"cpu": 1, "gpu": 1}


def differences(one: Path, other: Path) -> list[str]:
    """The files in which two folders differ, or that only one of them has."""
    names = sorted(
        {str(path.relative_to(base)) for base in (one, other) for path in base.rglob("*") if path.is_file()}
    )
    _, mismatch, errors = filecmp.cmpfiles(one, other, names, shallow=False)
    return mismatch + errors
