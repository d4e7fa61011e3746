"""`make deploy` of several projects on one server, and of all kinds of schedules, on a real Prefect server."""

import gc
import json
import shutil
import subprocess
import sys
import warnings
import zoneinfo
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import certifi
import pytest
from conftest import ROOT
from prefect import get_client
from prefect.client.schemas.objects import StateType
from prefect.settings import PREFECT_API_SSL_CERT_FILE, PREFECT_API_URL, temporary_settings
from prefect.states import AwaitingRetry, Crashed, Pending
from ruamel.yaml import YAML
from support.checkout import Server
from support.edits import edit
from support.parameters import change_params

from perennial.base.config import load
from perennial.base.errors import ConfigError
from perennial.orchestration.client import owner
from perennial.orchestration.client import prefect_server as api
from perennial.orchestration.engine import this_run
from perennial.orchestration.provisioning import deploy, infra, worker
from perennial.orchestration.remote_runs import start_run, status
from perennial.orchestration.run_setup import flow_run
from perennial.orchestration.server import dead_runs
from perennial.orchestration.server.server_runs import Ours, in_states, of_flows
from perennial.orchestration.steps import monitor
from perennial.orchestration.work.stage_failures import StageFailed

NAMES = ["approve/person", "monitor/hourly", "rebuild/weekly", "retrain/nightly", "retrain/on-demand"]
COLLECTIONS = ("deployments", "automations", "work_pools", "block_documents")


@dataclass
class Place:
    """A project as far as `make deploy` reads it."""

    folder: Path
    server: Server
    patch: pytest.MonkeyPatch
    output: pytest.CaptureFixture[str]

    def git(self, *arguments: str) -> None:
        subprocess.run(["git", "-C", str(self.folder), *arguments], check=True, capture_output=True)

    def set(self, key: str, value: object) -> None:
        change_params(self.folder / "params.yaml", {key: value})

    def declare(self, change: Callable[[list[dict[str, Any]]], object]) -> None:
        """Change the deployments of prefect.yaml."""
        file = self.folder / "prefect.yaml"
        declared = YAML(typ="safe").load(file)
        change(declared["deployments"])
        file.write_text(json.dumps(declared, default=str))

    def deploy(self, **environment: str) -> str:
        """What it prints. A refusal is raised."""
        code, printed = self.try_to_deploy(**environment)
        assert code == 0, printed
        return printed

    def refused(self, **environment: str) -> str:
        """What it prints where it refuses; nothing is changed on the server."""
        before = self.everything()
        code, printed = self.try_to_deploy(**environment)
        assert (code, "Traceback" in printed) == (2, False), printed
        assert self.everything() == before
        return printed

    def try_to_deploy(self, **environment: str) -> tuple[int, str]:
        """Deploy in this process; the exit code and what it prints."""
        with (
            self.patch.context() as patch,
            temporary_settings({PREFECT_API_URL: self.server.url}),
            warnings.catch_warnings(action="ignore", category=ResourceWarning),
        ):
            for name in (owner.REPOSITORY, owner.FOLDER, owner.PIPELINE):
                patch.setenv(name, "")
                patch.delenv(name)
            patch.setenv("PREFECT_API_URL", self.server.url)
            for name, value in environment.items():
                patch.setenv(name, value)
            patch.chdir(self.folder)
            patch.setattr(this_run, "has_server", lambda: True)
            for name in [each for each in sys.modules if each.partition(".")[0] in {"flows", "tasks"}]:
                # Another test may have imported those of a run without a server.
                patch.delitem(sys.modules, name)
            self.output.readouterr()
            try:
                deploy.main()
                code = 0
            except SystemExit as refused:
                code = int(str(refused.code))
            gc.collect()  # Prefect's command leaves connections open
        return code, "".join(self.output.readouterr())

    def of(self, name: str) -> dict[str, Any]:
        return self.server.request("GET", f"/deployments/name/{name}")

    def repository(self, name: str) -> str:
        return str(self.of(name)["job_variables"]["env"]["PERENNIAL_REPOSITORY"])

    def everything(self) -> str:
        """All that a deployment could change on the server."""
        return json.dumps([self.server.post(f"/{each}/filter", {}) for each in COLLECTIONS], sort_keys=True)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of those that Prefect reads for each of its clients."""
    file = tmp_path_factory.mktemp("certificate") / "one.pem"
    end = "-----END CERTIFICATE-----\n"
    file.write_text(Path(certifi.where()).read_text(encoding="utf-8").partition(end)[0] + end)
    return file


@pytest.fixture
def make(server, certificate, tmp_path, monkeypatch, capsys) -> Iterator[Callable[..., Place]]:
    """Makes projects with two deployments, or with every one; they are removed afterwards."""
    zoneinfo.reset_tzpath(to=())  # as in the server's process

    def new(name: str, *, every: bool = False) -> Place:
        place = Place(tmp_path / name, server, monkeypatch, capsys)
        (place.folder / "infra").mkdir(parents=True)
        for file in ("params.yaml", "prefect.yaml", "infra/automations.yaml"):
            shutil.copy(ROOT / file, place.folder / file)
        top = place.folder.parent if place.folder.parent != tmp_path else place.folder
        subprocess.run(["git", "init", "-q", "-b", "main", str(top)], check=True)
        if not every:
            place.declare(lambda listed: listed.__delitem__(slice(2, None)))
        return place

    with temporary_settings({PREFECT_API_SSL_CERT_FILE: str(certificate)}):
        yield new
    for each in server.post("/deployments/filter", {}):
        server.request("DELETE", f"/deployments/{each['id']}")
    zoneinfo.reset_tzpath()


def copied(place: Place, name: str, *, command: str = "clone") -> Place:
    """A clone of a project."""
    place.git("add", ".")
    place.git("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "start")
    folder = place.folder.with_name(name)
    subprocess.run(["git", command, "-q", str(place.folder), str(folder)], check=True)
    return Place(folder, place.server, place.patch, place.output)


def test_a_name_of_another_project_is_refused_and_nothing_is_changed(make: Callable[..., Place]) -> None:
    first, second = make("A"), make("B")
    first.deploy(PERENNIAL_REPOSITORY=str(first.folder))
    second.set("record.artifact", "flowers")
    printed = second.refused(PERENNIAL_NOTIFY_URL="http://127.0.0.1:9/hook")
    assert f"belongs to another project: {first.folder}, pipeline classifier" in printed
    assert f"this one is {second.folder}, pipeline flowers" in printed
    second.set("record.artifact", "classifier")  # the same words for another model
    second.refused()
    clone = copied(first, "C")  # which says that it is another
    clone.refused(PERENNIAL_REPOSITORY=str(clone.folder))
    clone.set("record.artifact", "flowers")
    printed = clone.refused()
    assert f"the pipeline classifier of {first.folder}" in printed
    assert "record.artifact here is flowers" in printed
    _run_and_status_leave_it_alone(first, second)


def _run_and_status_leave_it_alone(first: Place, second: Place) -> None:
    environment = {"PREFECT_API_URL": first.server.url}
    mine = owner.owner_of_checkout(second.folder, "classifier", {})
    with api.connect(environment) as client:
        with pytest.raises(ConfigError, match=r"retrain/nightly belongs to .*; nothing was started"):
            start_run.start(client, "nightly", {}, mine)
        with pytest.raises(ConfigError, match="no deployment retrain/mine of this project; it has: none"):
            start_run.start(client, "mine", {}, mine)
    second.git("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "first")
    with second.patch.context() as patch:
        patch.chdir(second.folder)
        seen = status.look(load(Path("params.yaml")), environment, fetch=False)
    assert seen["server"]["deployments"] == []
    assert seen["server"]["others"] == [f"{first.folder}, pipeline classifier"]
    assert f"it has those of {first.folder}" in seen["problems"][-1]
    assert first.server.post("/flow_runs/filter", {}) == []


@pytest.mark.slow
def test_projects_with_other_names_share_a_server_and_leave_pools_and_alerts_alone(make) -> None:
    first, second = make("A", every=True), make("B", every=True)
    first.deploy(PERENNIAL_NOTIFY_URL="http://127.0.0.1:9/first")
    ids = {each["name"]: each["id"] for each in first.server.post("/work_pools/filter", {})}
    first.server.request("PATCH", "/work_pools/cpu", {"concurrency_limit": 3})
    second.declare(lambda listed: [each.update(name=f"b-{each['name']}") for each in listed])
    automations = second.folder / "infra" / "automations.yaml"
    edit(automations, "within: 80", "within: 88")
    before = [json.dumps(first.server.post(f"/{each}/filter", {})) for each in COLLECTIONS[1:]]
    printed = second.deploy(PERENNIAL_NOTIFY_URL="http://127.0.0.1:9/second")
    after = [json.dumps(first.server.post(f"/{each}/filter", {})) for each in COLLECTIONS[1:]]
    assert after == before
    assert f"PERENNIAL_NOTIFY_URL is not used: the server is shared with {first.folder}" in printed
    assert {each["name"]: each["id"] for each in first.server.post("/work_pools/filter", {})} == ids
    names = sorted(str(each["name"]) for each in first.server.post("/deployments/filter", {}))
    own = [each.split("/")[1] for each in NAMES]
    assert names == sorted([*own, *(f"b-{each}" for each in own)])
    second.declare(lambda listed: listed.pop(0))
    assert "Removed the deployment retrain/b-on-demand" in second.deploy()
    assert first.repository("retrain/on-demand") == str(first.folder)


def test_runs_of_another_project_neither_stop_nor_start_those_of_this_one(make, monkeypatch) -> None:
    mine, theirs = make("A"), make("B")
    flow = mine.server.request("POST", "/flows/", {"name": "retrain"})["id"]  # type: ignore[index]
    runs = {}
    for name, place in (("nightly", mine), ("b-nightly", theirs)):
        variables = {"env": {"PERENNIAL_REPOSITORY": str(place.folder)}}
        wanted = {"name": name, "flow_id": flow, "job_variables": variables, "tags": ["perennial"]}
        made = mine.server.request("POST", "/deployments/", wanted)
        path = f"/deployments/{made['id']}/create_flow_run"  # type: ignore[index]
        runs[name] = mine.server.request("POST", path, {"state": {"type": "RUNNING"}})["id"]  # type: ignore[index]
    by_hand = {"flow_id": flow, "state": {"type": "RUNNING"}}
    elsewhere = [f"repository {theirs.folder}"]
    runs["here"] = mine.server.request("POST", "/flow_runs/", by_hand)["id"]  # type: ignore[index]
    mine.server.request("POST", "/flow_runs/", {**by_hand, "tags": elsewhere})
    monkeypatch.chdir(mine.folder)
    monkeypatch.setattr(this_run, "has_server", lambda: True)
    with temporary_settings({PREFECT_API_URL: mine.server.url}), get_client(sync_client=True) as client:
        running = in_states(StateType.RUNNING)
        found = [str(each.id) for each in Ours(client).runs(of_flows("retrain"), running, "classifier")]
        tagged = {str(each.id) for each in dead_runs._ours(client, ["cpu"], StateType.RUNNING)}
        seen = {"key": "1", "pipeline": "classifier", "reason": "r"}
        with pytest.raises(StageFailed, match="retrain/b-nightly belongs to another project") as refused:
            monitor.start_retraining("retrain/b-nightly", seen)
        with pytest.raises(StageFailed, match="the server has no deployment retrain/none; `perennial deploy`"):
            monitor.start_retraining("retrain/none", seen)
    assert sorted(found) == sorted(str(runs[name]) for name in ("nightly", "here"))
    assert runs["here"] not in tagged  # a flow of somebody else may have that name
    assert refused.value.exit_code == 2


def test_a_watched_run_shows_stages_epochs_and_retries(make: Callable[..., Place]) -> None:
    server = make("A").server
    flow = server.request("POST", "/flows/", {"name": "retrain"})["id"]  # type: ignore[index]
    night = {"flow_id": flow, "name": "night", "state": {"type": "RUNNING"}}
    number = server.request("POST", "/flow_runs/", night)["id"]  # type: ignore[index]
    task = {"flow_run_id": number, "task_key": "train", "dynamic_key": "061ab", "name": "train-061"}
    again = {"type": "SCHEDULED", "name": "AwaitingRetry", "message": "ended with exit code 1: no network"}
    server.request("POST", "/task_runs/", {**task, "state": again})
    text = "epoch 3 of 12, accuracy 0.9012, 00:20 left, 5,000 examples/s"
    server.request(
        "POST", "/artifacts/",
        {"key": "training", "type": "progress", "data": 20, "description": text, "flow_run_id": number},
    )  # fmt: skip
    with api.connect({"PREFECT_API_URL": server.url}) as client:
        shown = list(start_run._progress(client, str(number)))
    assert "train: epoch 3 of 12, accuracy 0.9012" in shown
    assert any(line.startswith("train: is tried again") and line.endswith("no network") for line in shown)


@contextmanager
def own_pool(server: Server) -> Iterator[None]:
    """The deployment retrain/mine in a work pool of its own, `own`, for the block."""
    flow = server.request("POST", "/flows/", {"name": "retrain"})["id"]  # type: ignore[index]
    server.request("POST", "/work_pools/", {"name": "own", "type": "process"})
    mine = {"flow_id": flow, "name": "mine", "work_pool_name": "own", "tags": ["perennial"]}
    server.request("POST", "/deployments/", mine)
    try:
        yield
    finally:
        server.request("DELETE", "/work_pools/own")


def test_a_run_whose_process_cannot_be_started_ends_after_some_tries(make: Callable[..., Place]) -> None:
    place = make("A")
    server = place.server
    place.patch.chdir(place.folder)
    again = next(each for each in infra.declared_automations(None) if each.name == dead_runs.RESTART)
    again.trigger.within = timedelta(days=1)  # type: ignore[union-attr]
    with (
        own_pool(server),
        temporary_settings({PREFECT_API_URL: server.url}),
        get_client(sync_client=True) as client,
    ):
        client.create_automation(again)
        with api.connect({"PREFECT_API_URL": server.url}) as connected:
            run = UUID(start_run.start(connected, "mine", {}).id)
        for _ in range(flow_run.RESTARTS + 1):
            client.set_flow_run_state(run, Crashed(message="no folder /gone"), force=True)
            dead_runs.start_again(client, ["own"])
            assert client.read_flow_run(run).state_name == "Crashed"
            client.set_flow_run_state(run, AwaitingRetry(), force=True)
        client.set_flow_run_state(run, Crashed(message="no folder /gone"), force=True)
        dead_runs.start_again(client, ["own"])
        ended = client.read_flow_run(run).state
        assert ended
        assert ended.name == "Failed"
        assert "no folder /gone; look at the worker's log" in str(ended.message)
        client.delete_automation(client.read_automations_by_name(again.name)[0].id)


@pytest.mark.slow
def test_a_run_may_wait_for_a_node_as_long_as_the_server_lets_it(make: Callable[..., Place]) -> None:
    place = make("A")
    server, kinds = place.server, {"here": "process", "cluster": "kubernetes"}
    place.patch.chdir(ROOT)
    with temporary_settings({PREFECT_API_URL: server.url}), get_client(sync_client=True) as client:
        infra.install_automations(client)
        flow, runs = client.create_flow_from_name("retrain"), {}
        for name, kind in kinds.items():
            server.request("POST", "/work_pools/", {"name": name, "type": kind})
            deployment = client.create_deployment(flow, name, tags=["perennial"], work_pool_name=name)
            runs[name] = client.create_flow_run_from_deployment(deployment, state=Pending()).id
        silent: dead_runs.Silent = {}
        ended: dict[str, int] = {}
        with server.acting(dead_runs.WAITING, after_s=120):
            for check in range(dead_runs.SPARE + 10):
                silent = dead_runs.end_silent(client, list(kinds), silent)
                for name, run in runs.items():
                    if client.read_flow_run(run).state_name != "Pending":
                        ended.setdefault(name, check)
        for each in client.read_automations():
            client.delete_automation(each.id)
    for name in kinds:
        server.request("DELETE", f"/work_pools/{name}")
    assert ended == {"here": dead_runs.STARTING, "cluster": dead_runs.SPARE + 4}  # every 30 s


def test_a_deployment_of_somebody_else_with_that_name_is_refused(make: Callable[..., Place]) -> None:
    place = make("A")
    flow = place.server.request("POST", "/flows/", {"name": "retrain"})["id"]  # type: ignore[index]
    theirs = {"name": "nightly", "flow_id": flow, "entrypoint": "their.py:retrain"}
    place.server.request("POST", "/deployments/", theirs)
    assert "retrain/nightly belongs to another project: an unknown repository" in place.refused()


def test_a_pool_of_another_kind_is_refused(make: Callable[..., Place]) -> None:
    place = make("A")
    if any(each["name"] == "gpu" for each in place.server.post("/work_pools/filter", {})):
        place.server.request("DELETE", "/work_pools/gpu")
    place.server.request("POST", "/work_pools/", {"name": "gpu", "type": "docker"})
    place.declare(in_pool("gpu"))
    printed = place.refused()
    assert "the work pool gpu" in printed
    assert "is of type docker, not process" in printed
    place.server.request("DELETE", "/work_pools/gpu")


@pytest.mark.slow
def test_a_project_in_a_subfolder_is_deployed_with_it(make: Callable[..., Place]) -> None:
    place, sibling = make("mono/one"), make("mono/two")
    printed = place.deploy()
    assert f"Runs will check out {place.folder.parent} (PERENNIAL_REPOSITORY), folder one" in printed
    variables = place.of("retrain/nightly")["job_variables"]["env"]
    assert variables["PERENNIAL_REPOSITORY"] == str(place.folder.parent)
    assert variables["PERENNIAL_FOLDER"] == "one"
    printed = sibling.refused()
    assert "(folder one)" in printed
    assert "(folder two)" in printed


SCHEDULES = [
    {"interval": 3600, "slug": "often", "active": False},
    {"interval": "PT2H", "anchor_date": "2026-01-01T00:00:00+00:00", "timezone": "Europe/Oslo", "slug": "two"},
    {"rrule": "FREQ=WEEKLY;BYDAY=MO"},
    {"cron": "0 3 * * *"},
    {"cron": "0 4 * * *", "timezone": "America/New_York", "day_or": True, "parameters": {"reason": "on"}},
    {"cron": "{{ $PERENNIAL_TEST_CRON }}", "slug": "from-environment"},
]


def test_all_kinds_of_schedules_are_deployed_and_a_second_time_changes_nothing(make, monkeypatch) -> None:
    place = make("A")
    monkeypatch.setenv("PERENNIAL_TEST_CRON", "0 5 * * *")
    place.declare(lambda listed: (listed[0].update(schedules=SCHEDULES), listed.pop()))
    place.deploy()
    first = place.of("retrain/on-demand")["schedules"]
    assert [bool(each["active"]) for each in sorted(first, key=str)].count(False) == 1
    assert len(first) == len(SCHEDULES)
    place.server.request("PATCH", _path(place, "often"), {"active": True})  # a person
    added = {"active": True, "schedule": {"cron": "0 9 * * *"}}
    place.server.post(f"/deployments/{place.of('retrain/on-demand')['id']}/schedules", [added])  # type: ignore[arg-type]
    before = _by_id(place)
    place.deploy()
    assert _by_id(place) == before

    def change(listed: list[dict[str, Any]]) -> None:
        listed[0]["schedules"][3]["cron"] = "30 3 * * *"
        del listed[0]["schedules"][4]

    place.declare(change)
    place.deploy()
    crons = sorted(str(each["schedule"].get("cron")) for each in place.of("retrain/on-demand")["schedules"])
    assert crons == ["0 5 * * *", "0 9 * * *", "30 3 * * *", "None", "None", "None"]
    assert len(_by_id(place)) == len(before) - 1


@pytest.mark.slow
def test_what_a_person_changed_on_the_server_is_kept_or_said(make: Callable[..., Place]) -> None:
    place = make("A", every=True)
    place.declare(lambda listed: listed[0].update(schedules=[{"cron": "0 3 * * *", "slug": "often"}]))
    place.deploy()
    found, schedule = place.of("retrain/on-demand"), _path(place, "often")
    path = f"/deployments/{found['id']}"
    variables = {**found["job_variables"]["env"], "TOKEN": "hidden"}
    edits = {
        "paused": True, "tags": ["perennial", "team"], "parameters": {**found["parameters"], "push": False},
        "job_variables": {**found["job_variables"], "env": variables}, "concurrency_limit": 2,
    }  # fmt: skip
    place.server.request("PATCH", path, edits)
    place.server.request("PATCH", schedule, {"schedule": {"cron": "0 5 * * *"}})
    place.server.request("PATCH", _path(place, "nightly"), {"slug": "mine"})
    place.server.request("PATCH", _path(place, "hourly"), {"active": True})
    place.declare(lambda listed: listed[2].update(name="watch"))
    place.server.request("PATCH", "/work_pools/cpu", {"concurrency_limit": 3})
    told = place.deploy()
    again = place.of("retrain/on-demand")
    assert (again["paused"], again["parameters"], again["tags"]) == (True, found["parameters"], found["tags"])
    assert "TOKEN" not in again["job_variables"]["env"]
    assert [each["schedule"]["cron"] for each in again["schedules"]] == ["0 3 * * *"]
    assert "retrain/on-demand: set tags, parameters, job_variables, " in told
    assert "retrain/nightly: set schedules as prefect.yaml has it" in told
    assert "work pool cpu: concurrency_limit is now 1, was 3" in told
    assert "hidden" not in told
    assert len(place.of("retrain/nightly")["schedules"]) == 1  # not a second one at the same times
    assert "Removed the deployment monitor/hourly, which prefect.yaml no longer names; its schedule" in told


@pytest.mark.slow
def test_what_a_person_changed_of_automations_and_the_webhook_is_kept_or_set_back(make) -> None:
    place = make("A")
    place.deploy(PERENNIAL_NOTIFY_URL="http://127.0.0.1:9/hook")
    assert "automation" not in place.deploy(PERENNIAL_NOTIFY_URL="http://127.0.0.1:9/hook")
    found = {str(each["name"]): each for each in place.server.post("/automations/filter", {})}
    dead = found["perennial: dead runs"]
    dead["trigger"]["within"] = 600  # type: ignore[index]
    dead["actions"][0]["message"] = "Ours"  # type: ignore[index]
    edited = {key: dead[key] for key in ("name", "description", "tags", "trigger", "actions")}
    place.server.request("PUT", f"/automations/{dead['id']}", {**edited, "enabled": False})
    (block,) = (
        each for each in place.server.post("/block_documents/filter", {}) if each["name"] == infra.WEBHOOK
    )
    headers = {"Content-Type": "application/json", "X-Team": "hidden"}
    place.server.request("PATCH", f"/block_documents/{block['id']}", {"data": {"headers": headers}})
    told = place.deploy(PERENNIAL_NOTIFY_URL="http://127.0.0.1:9/other?key=hidden")
    assert "block perennial-alerts: its address is now that of PERENNIAL_NOTIFY_URL" in told
    assert "hidden" not in told
    kept: Any = place.server.request("GET", f"/block_documents/{block['id']}", include_secrets="true")
    assert kept["data"]["headers"] == headers
    assert kept["data"]["url"].endswith("key=hidden")
    (again,) = (each for each in place.server.post("/automations/filter", {}) if each["name"] == dead["name"])
    assert (again["enabled"], again["trigger"]["within"]) == (False, 80)


def test_a_worker_without_the_package_of_its_pool_names_the_extra(make: Callable[..., Place]) -> None:
    place = make("A")
    place.server.request("POST", "/work_pools/", {"name": "boats", "type": "kubernetes"})
    place.patch.setattr(worker, "find_spec", lambda _: None)
    with (
        api.connect({"PREFECT_API_URL": place.server.url}) as server,
        pytest.raises(ConfigError, match=r"run `perennial add kubernetes`; nothing was started"),
    ):
        worker.require_usable(server, ["boats"])
    place.server.request("DELETE", "/work_pools/boats")


def _path(place: Place, slug: str) -> str:
    for found in place.server.post("/deployments/filter", {}):
        for each in found["schedules"]:  # type: ignore[attr-defined]
            if each["slug"] == slug:
                return f"/deployments/{found['id']}/schedules/{each['id']}"
    raise LookupError(slug)


def _by_id(place: Place) -> dict[str, str]:
    return {each["id"]: json.dumps(each) for each in place.of("retrain/on-demand")["schedules"]}


@pytest.mark.fast_rows("schedules0-0 2 * *")
@pytest.mark.parametrize(
    ("schedules", "why"),
    [
        ([{"cron": "0 2 * *"}], "0 2 * *"),
        ([{"cron": "0 2 * * *", "timezone": "Mars/Olympus"}], "Mars/Olympus"),
        ([{"every": 3}], "Unknown schedule type"),
        (["daily"], "schedule 1, daily"),
        ([{"interval": -3}], "interval"),
        ([{"cron": "0 2 * * *", "time_zone": "UTC"}], "schedules.0.time_zone: Extra inputs"),
        ([{"cron": "0 2 * * *", "slug": "a"}, {"cron": "0 3 * * *", "slug": "a"}], "the slug a"),
    ],
)
def test_a_schedule_that_is_none_is_refused_before_anything_is_sent(make, schedules, why) -> None:
    place = make("A")
    place.declare(lambda listed: listed[0].update(schedules=schedules))
    printed = place.refused()
    assert "retrain/on-demand: " in printed
    assert why in printed


@pytest.fixture
def fleet(make: Callable[..., Place]) -> Place:
    """A project with a pipeline in its top folder, and two others."""
    place = make("fleet")
    for name in ("ants", "birds"):
        folder = place.folder / "pipelines" / name
        folder.mkdir(parents=True)
        shutil.copy(ROOT / "params.yaml", folder)
    (place.folder / "flows").mkdir()
    for folder in (place.folder, *(place.folder / "pipelines").iterdir()):
        shutil.copy(ROOT / "dvc.yaml", folder)
    return place


def names(place: Place) -> set[str]:
    flows = {each["id"]: each["name"] for each in place.server.post("/flows/filter", {})}
    return {f"{flows[each['flow_id']]}/{each['name']}" for each in place.server.post("/deployments/filter", {})}


@pytest.mark.slow
def test_all_pipelines_of_a_project_are_deployed_at_once(fleet: Place) -> None:
    printed = fleet.deploy()
    assert "folders pipelines/ants, pipelines/birds" in printed
    assert names(fleet) == {
        f"retrain/{start}{name}" for name in ("on-demand", "nightly") for start in ("", "ants-", "birds-")
    }
    birds = fleet.of("retrain/birds-nightly")
    assert birds["job_variables"]["env"]["PERENNIAL_FOLDER"] == "pipelines/birds"
    assert birds["tags"] == ["perennial", f"repository {fleet.folder}", "pipeline birds"]
    assert "PERENNIAL_FOLDER" not in fleet.of("retrain/nightly")["job_variables"]["env"]
    assert "is now" not in fleet.deploy()


@pytest.mark.slow
def test_a_pipeline_may_have_other_schedules_and_keeps_what_a_person_set(fleet: Place) -> None:
    own = {"name": "nightly", "schedules": [{"slug": "nightly", "cron": "0 5 * * *", "active": False}]}
    text = json.dumps({"deployments": [own]})
    (fleet.folder / "pipelines" / "birds" / "prefect.yaml").write_text(text)
    fleet.deploy()
    fleet.server.request("PATCH", _path_of(fleet, "retrain/birds-nightly"), {"active": True})
    fleet.deploy()
    found = {name: fleet.of(f"retrain/{name}")["schedules"][0] for name in ("ants-nightly", "birds-nightly")}
    crons = {name: (each["schedule"]["cron"], each["active"]) for name, each in found.items()}
    assert crons == {"ants-nightly": ("0 2 * * *", False), "birds-nightly": ("0 5 * * *", True)}


def _path_of(place: Place, deployment: str) -> str:
    found = place.of(deployment)
    return f"/deployments/{found['id']}/schedules/{found['schedules'][0]['id']}"


@pytest.mark.slow
def test_deployments_of_a_pipeline_that_is_gone_are_removed_and_nobody_elses(fleet, make) -> None:
    fleet.deploy()
    other = make("other")
    other.declare(lambda listed: [each.update(name=f"other-{each['name']}") for each in listed])
    other.deploy()
    shutil.rmtree(fleet.folder / "pipelines" / "ants")
    assert "Removed the deployment retrain/ants-nightly" in fleet.deploy()
    assert {"retrain/birds-nightly", "retrain/nightly", "retrain/other-nightly"} <= names(fleet)
    assert not any("/ants-" in name for name in names(fleet))


def test_two_deployments_of_one_name_are_refused(fleet: Place) -> None:
    fleet.declare(lambda listed: listed[0].update(name="birds-nightly"))
    assert "two deployments are called retrain/birds-nightly" in fleet.refused()


def in_pool(name: str) -> Callable[[list[dict[str, Any]]], object]:
    def change(deployments: list[dict[str, Any]]) -> None:
        for each in deployments:
            each["work_pool"] = {**each["work_pool"], "name": name}

    return change


@pytest.mark.slow
def test_a_pool_of_containers_is_made_from_its_template_and_brought_up_to_date(make) -> None:
    place = make("A")
    file = place.folder / "infra" / "pools" / "kubernetes.json"
    file.parent.mkdir()
    shutil.copy(ROOT / "infra" / "pools" / "kubernetes.json", file)
    place.declare(in_pool("kubernetes"))
    assert "start a worker: perennial worker --pool kubernetes\n" in place.deploy()
    read = partial(place.server.request, "GET", "/work_pools/kubernetes")
    assert read()["type"] == "kubernetes"  # type: ignore[index]
    assert read()["base_job_template"] == json.loads(file.read_text())  # type: ignore[index]
    assert "template" not in place.deploy()
    edit(file, '"default": 1,', '"default": 2,')
    assert f"its template is now that of {Path('infra/pools/kubernetes.json')}" in place.deploy()
    assert read()["base_job_template"] == json.loads(file.read_text())  # type: ignore[index]
    file.write_text("{}")
    assert "is no template of a work pool" in place.refused()


def test_a_pool_that_nothing_makes_is_refused(make: Callable[..., Place]) -> None:
    place = make("A")
    place.declare(in_pool("nowhere"))
    told = "has no work pool nowhere, and there is no infra/pools/nowhere.json to make it from"
    assert told in place.refused()
