"""How long the rules of a server let runs wait in pools of processes and of containers."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from conftest import ROOT
from prefect import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings
from support.checkout import Server, wait_until

from perennial.orchestration.provisioning import infra
from perennial.orchestration.server import dead_runs

pytestmark = [pytest.mark.timing, pytest.mark.slow]

NOT_STARTED, WAITING = "perennial: runs that do not start", dead_runs.WAITING


@pytest.fixture(scope="module")
def deployments(server: Server) -> None:
    """The automations, and a deployment in the pool kubernetes and one in cpu."""
    with pytest.MonkeyPatch.context() as patch, client_of(server) as client:
        patch.chdir(ROOT)
        infra.install_automations(client)
        for pool in infra.pools(["kubernetes"]).values():
            infra.set_up_pool(client, pool, 1, shared=False)
            flow = client.create_flow_from_name("retrain")
            client.create_deployment(flow, pool.name, tags=["perennial"], work_pool_name=pool.name)


@contextmanager
def client_of(server: Server) -> Iterator[object]:
    with temporary_settings({PREFECT_API_URL: server.url}), get_client(sync_client=True) as client:
        yield client


def taken(server: Server, deployment: str) -> str:
    """Make a run of a deployment that a worker has taken; returns its id."""
    (found,) = server.post("/deployments/filter", {"deployments": {"name": {"any_": [deployment]}}})
    path = f"/deployments/{found['id']}/create_flow_run"
    return str(server.request("POST", path, {"state": {"type": "PENDING"}})["id"])  # type: ignore[index]


def state(server: Server, run: str) -> dict[str, str]:
    return server.request("GET", f"/flow_runs/{run}")["state"]  # type: ignore[index, no-any-return]


@pytest.mark.usefixtures("deployments")
def test_a_run_may_wait_longer_for_a_node_than_for_a_process(server: Server) -> None:
    with server.acting(NOT_STARTED, after_s=10), server.acting(WAITING, after_s=12):  # at least 10
        runs = {name: taken(server, name) for name in ("cpu", "kubernetes")}
        messages = {}
        for name, run in runs.items():
            wait_until(lambda run=run: state(server, run)["type"] != "PENDING")
            states = server.request("GET", "/flow_run_states/", flow_run_id=run)
            messages[name] = next(each["message"] for each in states if each["type"] == "CRASHED")  # type: ignore[index, union-attr]
    assert messages["cpu"] == "A worker took it, and did not start it within 15 minutes."
    assert messages["kubernetes"].startswith("It waited too long for a machine")
    for run in runs.values():
        server.request("POST", f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLED"}, "force": True})
