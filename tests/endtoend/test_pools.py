"""Runs in pools of containers: the server's rules and the project's worker, with a stand-in for the cluster."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import ROOT
from prefect import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings
from support.checkout import Server, copy_standin, wait_until
from support.cluster import Cluster, cluster

from perennial.orchestration.provisioning import automations, pools
from perennial.orchestration.server import dead_runs

pytestmark = [pytest.mark.timing, pytest.mark.slow]

STEPS = 12
NOT_STARTED, WAITING = "perennial: runs that do not start", dead_runs.WAITING


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose pods share a home."""
    folder = tmp_path_factory.mktemp("cluster")
    with cluster(folder, {"PERENNIAL_HOME": str(folder / "home")}) as made:
        yield made


@pytest.fixture(scope="module")
def repository(server: Server, pods: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of one small stage, with a deployment in the pool kubernetes and one in cpu."""
    folder = tmp_path_factory.mktemp("project") / "standin"
    copy_standin(folder, STEPS)
    (pods.config.parent / "home").mkdir()
    with pytest.MonkeyPatch.context() as patch, client_of(server) as client:
        patch.chdir(ROOT)
        automations.install(client)
        variables = {
            "command": shlex.join([sys.executable, str(folder / "start.py")]),
            "env": {"PERENNIAL_REPOSITORY": str(folder), "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
        }
        for pool in pools.declared(["kubernetes"]).values():
            pools.set_up(client, pool, 1, shared=False)
            client.create_deployment(
                flow_id=client.create_flow_from_name("retrain"),
                name=pool.name,
                tags=["perennial"],
                entrypoint="flow.py:retrain",
                path=".",
                pull_steps=[{"prefect.deployments.steps.set_working_directory": {"directory": "."}}],
                work_pool_name=pool.name,
                job_variables=variables,
            )
    return folder


@contextmanager
def client_of(server: Server) -> Iterator[object]:
    with temporary_settings({PREFECT_API_URL: server.url}), get_client(sync_client=True) as client:
        yield client


def start(server: Server, deployment: str, state: str = "SCHEDULED") -> str:
    """Start a run of a deployment; returns its id."""
    (found,) = server.post("/deployments/filter", {"deployments": {"name": {"any_": [deployment]}}})
    path = f"/deployments/{found['id']}/create_flow_run"
    return str(server.request("POST", path, {"state": {"type": state}})["id"])  # type: ignore[index]


def state(server: Server, run: str) -> dict[str, str]:
    return server.request("GET", f"/flow_runs/{run}")["state"]  # type: ignore[index, no-any-return]


@contextmanager
def within(server: Server, name: str, seconds: int) -> Iterator[None]:
    """An automation that acts after this time, during the block."""
    (found,) = server.post("/automations/filter", {"automations": {"name": {"any_": [name]}}})
    path = f"/automations/{found['id']}"
    for key in ("id", "created", "updated"):
        del found[key]
    server.request("PUT", path, {**found, "trigger": {**found["trigger"], "within": seconds}})  # type: ignore[dict-item]
    try:
        yield
    finally:
        server.request("PUT", path, found)


@contextmanager
def worker(server: Server, pods: Cluster) -> Iterator[None]:
    """The worker of the pool kubernetes; the part of it that watches pods needs a cluster."""
    environment = {
        **os.environ,
        "PREFECT_API_URL": server.url,
        "KUBECONFIG": str(pods.config),
        "PREFECT_INTEGRATIONS_KUBERNETES_OBSERVER_ENABLED": "false",
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",
    }
    command = [sys.executable, "-m", "tasks.worker", "--pool", "kubernetes"]
    with (pods.config.parent / "worker.log").open("a") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(300)


@pytest.mark.usefixtures("repository")
def test_a_run_may_wait_longer_for_a_node_than_for_a_process(server: Server) -> None:
    with within(server, NOT_STARTED, 10), within(server, WAITING, 12):  # at least 10
        runs = {name: start(server, name, "PENDING") for name in ("cpu", "kubernetes")}
        messages = {}
        for name, run in runs.items():
            wait_until(lambda run=run: state(server, run)["type"] != "PENDING")
            states = server.request("GET", "/flow_run_states/", flow_run_id=run)
            messages[name] = next(each["message"] for each in states if each["type"] == "CRASHED")  # type: ignore[index, union-attr]
    assert messages["cpu"] == "A worker took it, and did not start it within 15 minutes."
    assert messages["kubernetes"].startswith("It waited too long for a machine")
    for run in runs.values():
        server.request("POST", f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLED"}, "force": True})


def test_a_pod_that_loses_its_node_saves_and_another_goes_on(
    server: Server, repository: Path, pods: Cluster
) -> None:
    first = len(pods.jobs)
    with worker(server, pods):
        run = start(server, "kubernetes")
        folder = pods.config.parent / "home" / "runs" / run
        steps = folder / ".work" / "steps.log"
        wait_until(lambda: len(pods.jobs) > first)
        pods.start(first)
        wait_until(lambda: steps.exists() and len(steps.read_text().splitlines()) >= 2)
        assert pods.evict(first) not in (0, -signal.SIGKILL)  # it failed within its time
        saved = json.loads((folder / ".work" / "checkpoint.json").read_text())["step"]
        wait_until(lambda: len(pods.jobs) > first + 1)
        pods.start(first + 1)
        wait_until(lambda: state(server, run)["type"] == "COMPLETED")
        wait_until(lambda: pods.pods[pods.name(first + 1)].poll() == 0)
    assert 2 <= saved < STEPS
    numbers = [int(line.split()[1]) for line in steps.read_text().splitlines()]
    assert numbers == list(range(1, STEPS + 1))  # each step once: it resumed
    assert (folder / "model.json").is_file()
    assert (repository / "params.yaml").is_file()
