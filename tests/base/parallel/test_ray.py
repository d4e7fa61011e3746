"""Tasks and a training on a Ray cluster of two nodes: the same results and the same bytes as here."""

import gc
import json
import os
import re
import signal
import socket
from itertools import count
from pathlib import Path

import pytest
from support import raw, ray_nodes, tasks, workers
from support.checkout import wait_until

from perennial.base import documents, files
from perennial.base.distributed import cluster, ray_agent
from perennial.base.errors import ConfigError, DataError, Interrupted, PerennialError
from perennial.base.parallel import parallel_map, process_pool, ray_driver
from perennial.stages.convert import convert
from perennial.stages.validate import validate

# Ray leaves files and sockets to the garbage collector and uses what Python deprecates.
pytestmark = pytest.mark.filterwarnings("ignore")
PARAMS = Path(__file__).parents[3] / "params.yaml"


@pytest.fixture(scope="module", autouse=True)
def nodes(tmp_path_factory):
    """Two nodes of one core each; RAY_ADDRESS names them."""
    with ray_nodes.cluster(tmp_path_factory.mktemp("nodes")) as started:
        yield started
    gc.collect()


@pytest.mark.slow
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
def test_an_error_of_a_task_is_raised_unchanged():
    with pytest.raises(DataError, match="task 0 is refused") as raised:
        list(ray_driver.map_on_ray(tasks.refuse, DataError, range(3)))
    assert raised.type is DataError


@pytest.mark.slow
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
    monkeypatch.delenv("RAY_ADDRESS")
    monkeypatch.setattr("sys.executable", "/home/a user/.venv/bin/python")
    with pytest.raises(ConfigError, match="space"):
        list(ray_driver.map_on_ray(tasks.product, 1, range(3)))


TOGETHER = {"compute.engine": "ray", "compute.workers": 2, "train.devices": "cpu:2"}
LONG = {"train.max_steps": 120, "train.steps_between_evals": 60, "checkpoints.interval_steps": 20}


def weights(folder):
    """The digest of the weights that a training made."""
    return documents.read_json(folder / "metrics" / "training.json")["weights_sha256"]


@pytest.mark.slow
def test_a_training_on_two_nodes_makes_what_workers_by_hand_make(shared_records, tmp_path):
    ours = workers.copy(shared_records, tmp_path / "ours", TOGETHER)
    by_hand = workers.copy(shared_records, tmp_path / "by hand")
    started = [workers.start(ours), *workers.start_together(by_hand, 2)]
    assert workers.ends(started) == [0, 0, 0], workers.said(ours)
    assert weights(ours) == weights(by_hand)
    lines = workers.said(ours).splitlines()
    assert "checkpoint of step" in str([line for line in lines if not line.startswith("worker 1: ")])
    assert any(line.startswith("worker 1: ") for line in lines)
    assert ray_nodes.groups_left() == []


@pytest.mark.slow
def test_no_worker_outlives_a_killed_command_and_a_signal_lets_them_save(shared_records, tmp_path):
    folder = workers.copy(shared_records, tmp_path / "ours", {**TOGETHER, **LONG, "train.max_steps": 3000})
    for step, number, code in ((30, signal.SIGTERM, 75), (70, signal.SIGKILL, -9)):
        training = workers.start(folder)
        workers.wait_for_step(folder, step, [training])
        training.send_signal(number)
        assert workers.ends([training]) == [code], workers.said(folder)
        wait_until(lambda: not ray_nodes.parts(folder))
        if code == 75:
            failure = json.loads((folder / ".work" / "failure.json").read_text())
            assert "saved at step" in failure["message"]
    assert ray_nodes.groups_left() == []


@pytest.fixture
def doomed(tmp_path):
    """A cluster of two nodes whose head a test may kill; RAY_ADDRESS names it."""
    (tmp_path / "doomed").mkdir()
    with ray_nodes.cluster(tmp_path / "doomed") as started:
        yield started


@pytest.mark.slow
def test_a_training_whose_cluster_loses_its_head_saves(doomed, shared_records, tmp_path):
    folder = workers.copy(shared_records, tmp_path / "ours", {**TOGETHER, **LONG, "train.max_steps": 3000})
    training = workers.start(folder)
    workers.wait_for_step(folder, 30, [training])
    ray_nodes.kill(doomed.head_node, "gcs_server")
    assert workers.ends([training], 150) == [75], workers.said(folder)
    failure = json.loads((folder / ".work" / "failure.json").read_text())
    assert "the Ray cluster failed" in failure["message"]
    wait_until(lambda: not ray_nodes.agents() and ray_nodes.parts(folder) == [])
    assert "saved at step" in (folder / ".work" / "failure-0.json").read_text()


@pytest.mark.slow
def test_tasks_whose_cluster_loses_its_head_are_interrupted(doomed):
    results = ray_driver.map_on_ray(tasks.slowly, {2: 600}, range(3))
    assert next(results) == 0
    ray_nodes.kill(doomed.head_node, "gcs_server")
    with pytest.raises(Interrupted, match="the Ray cluster failed"):
        list(results)


@pytest.mark.slow
def test_nothing_stays_of_a_node_whose_process_is_killed(doomed, shared_records, tmp_path):
    folder = workers.copy(shared_records, tmp_path / "ours", {**TOGETHER, **LONG, "train.max_steps": 3000})
    training = workers.start(folder)
    workers.wait_for_step(folder, 30, [training])
    before = ray_nodes.agents()
    ray_nodes.kill(doomed.head_node, "raylet")  # it stays a zombie, which Ray takes for a running process
    wait_until(lambda: len(ray_nodes.agents()) < len(before))
    training.send_signal(signal.SIGTERM)
    assert workers.ends([training]) == [75], workers.said(folder)
    assert ray_nodes.parts(folder) == ray_nodes.agents() == []


@pytest.mark.slow
def test_a_cluster_with_too_few_nodes_is_described_after_a_bounded_wait(shared_records, tmp_path, monkeypatch):
    monkeypatch.setenv(cluster.WAIT, "0")
    values = {**TOGETHER, "compute.workers": 3, "train.devices": "cpu:3"}
    folder = workers.copy(shared_records, tmp_path / "three", values)
    assert workers.ends([workers.start(folder)]) == [2]
    assert "the Ray cluster has 2 of 3 nodes with CPU 1 free on each" in workers.said(folder)


@pytest.mark.slow
def test_busy_nodes_end_a_training_after_one_bounded_wait(shared_records, tmp_path, monkeypatch):
    monkeypatch.setenv(cluster.WAIT, "0")
    folder = workers.copy(shared_records, tmp_path / "second", TOGETHER)
    with ray_nodes.reserved(2):
        assert workers.ends([workers.start(folder)]) == [75]
    assert "the nodes of the Ray cluster are busy" in workers.said(folder)
    assert "start again" not in workers.said(folder)


def test_workers_get_settings_and_credentials_but_nothing_that_names_this_machine():
    given = {"PERENNIAL_RUN": "r", "AWS_PROFILE": "p", "https_proxy": "x", "PYTHONPATH": "src"}
    kept_here = {"PERENNIAL_STARTED_BY": "1", "CUDA_VISIBLE_DEVICES": "3", "HOME": "/root", "PATH": "/bin"}
    assert ray_agent.passed_on(given | kept_here) == given
