"""Tasks on a Ray cluster of two nodes: the same results and the same bytes as here."""

import contextlib
import gc
import os
import re
import signal
import socket
import sys
import warnings
from itertools import count
from pathlib import Path

import pytest
from support import raw, tasks

from perennial.base import files
from perennial.base.errors import ConfigError, DataError, Interrupted, PerennialError
from perennial.base.parallel import parallel_map, process_pool, ray_driver
from perennial.stages.convert import convert
from perennial.stages.validate import validate

# Ray leaves files and sockets to the garbage collector and uses what Python deprecates.
pytestmark = pytest.mark.filterwarnings("ignore")
on_nodes = pytest.mark.usefixtures("nodes")


@contextlib.contextmanager
def cluster(folder):
    """Two nodes of one core each, started in a folder of their own; RAY_ADDRESS names them in the block."""
    if " " in sys.executable:
        pytest.skip("Ray starts no processes of a Python whose path holds a space")
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # Processes of Ray start late on a busy machine.
        patch.setenv("RAY_raylet_start_wait_time_s", "600")
        patch.setenv("RAY_worker_register_timeout_seconds", "600")
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))  # the tests' tasks, and not the project
        from ray.cluster_utils import Cluster  # noqa: PLC0415 - its import warns

        with contextlib.chdir(folder):
            head = {"num_cpus": 1, "include_dashboard": False}
            started = Cluster(initialize_head=True, head_node_args=head)
            started.add_node(num_cpus=1)
        patch.setenv("RAY_ADDRESS", started.address)
        yield started
        started.shutdown()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("nodes")) as started:
        yield started
    gc.collect()


@pytest.mark.slow
@on_nodes
def test_results_come_in_the_order_of_tasks_of_which_few_are_taken_ahead():
    taken = count()
    results = ray_driver.map_on_ray(tasks.slowly, {0: 0.3, 2: 0.1}, taken)
    first = [next(results) for _ in range(12)]
    results.close()
    assert (first, next(taken) <= 12 + 2 * process_pool.WAITING) == (list(range(12)), True)


@pytest.mark.slow
def test_without_an_address_ray_starts_here_though_a_cluster_runs_on_this_machine(nodes, tmp_path, monkeypatch):
    raylets = {each.all_processes["raylet"][0].process.pid for each in nodes.list_all_nodes()}
    assert set(ray_driver.map_on_ray(tasks.parent, None, range(4))) <= raylets
    monkeypatch.delenv("RAY_ADDRESS")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not set(ray_driver.map_on_ray(tasks.parent, None, range(4))) & raylets
    assert list(tmp_path.rglob("auth_token")) == []


@pytest.mark.slow
@on_nodes
def test_an_error_of_a_task_is_raised_unchanged():
    with pytest.raises(DataError, match="task 0 is refused") as raised:
        list(ray_driver.map_on_ray(tasks.refuse, DataError, range(3)))
    assert raised.type is DataError


@pytest.mark.slow
@on_nodes
def test_a_process_that_is_killed_at_every_try_is_an_error():
    with pytest.raises(PerennialError):
        list(ray_driver.map_on_ray(tasks.be_killed, 1, range(3)))


def digests(folder):
    return {path.name: files.sha256(path) for path in folder.iterdir()}


@pytest.fixture
def written(load, monkeypatch):
    """Converts and validates in parts with an engine, and gives the digests of all that is written."""
    monkeypatch.setattr("perennial.stages.convert.CHUNK_BYTES", 2000)
    map_ordered = parallel_map.map_ordered
    monkeypatch.setattr(parallel_map, "map_ordered", lambda *given, **_: map_ordered(*given))  # none is small

    def run(engine):
        parameters = load(**{"compute.engine": engine, "dataset.shards": 2})
        convert(parameters)
        validate(parameters)
        paths = parameters.paths
        outputs = digests(paths.records) | digests(paths.index)
        return outputs | {path.name: files.sha256(path) for path in (paths.validation, paths.validation_page)}

    raw.write_mnist(
        load(**{"dataset.name": "mnist", "dataset.validation_fraction": 0.25, "compute.processes": 1})
    )
    return run


@pytest.mark.slow
@on_nodes
def test_records_and_report_are_the_same_bytes_as_here(written):
    assert written("ray") == written("processes")


def test_small_work_does_not_start_a_process_for_ray(load, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "nowhere")
    compute = load(**{"compute.engine": "ray"}).compute
    assert (
        list(parallel_map.map_ordered(compute, tasks.process, None, range(2), small=True)) == [os.getpid()] * 2
    )


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:x", "[::1", "ray://", "127.0.0.1:70000", ":6379"])
def test_an_invalid_address_is_a_configuration_error(monkeypatch, address):
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ConfigError, match=rf"RAY_ADDRESS must be .* got {re.escape(address)}$"):
        list(ray_driver.map_on_ray(tasks.product, 1, range(3)))


@pytest.mark.parametrize("address", ["127.0.0.1:{}", "ray://127.0.0.1:{}", "[::1]:{}"])
def test_an_address_without_a_listener_is_refused_at_once(monkeypatch, address):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = address.format(server.getsockname()[1])
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(
        ConfigError, match=rf"RAY_ADDRESS={re.escape(address)} cannot be reached: .*nothing was"
    ) as refused:
        list(ray_driver.map_on_ray(tasks.product, 1, range(3)))
    assert "timed out" not in str(refused.value)


def test_a_host_that_does_not_answer_is_refused_soon(monkeypatch):
    monkeypatch.setattr(ray_driver, "CONNECT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):  # takes the one place in its queue
            monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
            with pytest.raises(ConfigError, match="cannot be reached: timed out"):
                list(ray_driver.map_on_ray(tasks.product, 1, range(3)))


def test_a_path_that_ray_cannot_start_from_is_refused(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("sys.executable", "/home/a user/.venv/bin/python")
    with pytest.raises(ConfigError, match="space"):
        list(ray_driver.map_on_ray(tasks.product, 1, range(3)))


@pytest.fixture
def doomed(tmp_path):
    """A cluster of two nodes whose head a test may kill; RAY_ADDRESS names it."""
    (tmp_path / "doomed").mkdir()
    with cluster(tmp_path / "doomed") as started:
        yield started


@pytest.mark.slow
def test_tasks_whose_cluster_loses_its_head_are_interrupted(doomed):
    results = ray_driver.map_on_ray(tasks.slowly, {2: 600}, range(3))
    assert next(results) == 0
    os.kill(doomed.head_node.all_processes["gcs_server"][0].process.pid, signal.SIGKILL)  # stays a zombie
    with pytest.raises(Interrupted, match="the Ray cluster failed"):
        list(results)
