"""Tasks and a training on a Ray cluster of two nodes: the same results and the same bytes as here."""

import contextlib
import gc
import json
import os
import re
import signal
import socket
import sys
import warnings
from itertools import count
from pathlib import Path

import psutil
import pytest
from support import raw, tasks, workers
from support.checkout import wait_until
from support.parameters import change_params

from perennial.base import config, documents, files
from perennial.base.errors import ConfigError, DataError, Interrupted, PerennialError
from perennial.base.runtime import cluster, parallel, process, ray_agent, ray_driver
from perennial.data.validation import integrity
from perennial.data.validation.inspection import Work
from perennial.stages.convert import convert
from perennial.stages.validate import validate

# Ray leaves files and sockets to the garbage collector and uses what Python deprecates.
pytestmark = pytest.mark.filterwarnings("ignore")
PARAMS = Path(__file__).parents[3] / "params.yaml"


@pytest.fixture(scope="module", autouse=True)
def nodes(tmp_path_factory):
    """Two nodes of one core each, started in a folder of their own; RAY_ADDRESS names them."""
    if " " in sys.executable:
        pytest.skip("Ray starts no processes of a Python whose path holds a space")
    elsewhere, here = tmp_path_factory.mktemp("nodes"), Path.cwd()
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # Processes of Ray start late on a busy machine.
        patch.setenv("RAY_raylet_start_wait_time_s", "600")
        patch.setenv("RAY_worker_register_timeout_seconds", "600")
        patch.setenv("PYTHONPATH", str(Path(tasks.__file__).parents[1]))  # the tasks, and not the project
        patch.chdir(elsewhere)
        from ray.cluster_utils import Cluster  # noqa: PLC0415 - its import warns

        started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        started.add_node(num_cpus=1)
        os.chdir(here)
        patch.setenv("RAY_ADDRESS", started.address)
        yield started
        started.shutdown()
        gc.collect()


@pytest.mark.slow
def test_results_come_in_the_order_of_tasks_of_which_few_are_taken_ahead():
    taken = count()
    results = ray_driver.map_on_ray(tasks.slowly, {0: 0.3, 2: 0.1}, taken)
    first = [next(results) for _ in range(12)]
    results.close()
    assert (first, next(taken) <= 12 + 2 * parallel.WAITING) == (list(range(12)), True)


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


def run(engine, monkeypatch):
    """Converts and validates in parts, in the working folder; gives the digests of all that is written."""
    monkeypatch.setattr("perennial.stages.convert.CHUNK_BYTES", 2000)
    change_params(Path("params.yaml"), {"compute.engine": engine, "dataset.shards": 2})
    parameters = config.load(Path("params.yaml"))
    convert(parameters)
    validate(parameters)
    paths = parameters.paths
    work = Work(part_bytes=2000, parallel_bytes=0)
    findings = integrity.check(paths.records, fingerprints=True, where=parameters.compute, work=work)
    hashes = [part.fingerprints.digests.tolist() for part in findings.hashed]
    written = digests(paths.records) | digests(paths.index) | {"problems": findings.problems, "hashes": hashes}
    return written | {path.name: files.sha256(path) for path in (paths.validation, paths.validation_page)}


def test_records_and_report_are_the_same_bytes_as_here(load, monkeypatch):
    raw.write_mnist(
        load(**{"dataset.name": "mnist", "dataset.validation_fraction": 0.25, "compute.processes": 1})
    )
    assert run("ray", monkeypatch) == run("processes", monkeypatch)


@pytest.mark.slow
def test_a_damaged_record_is_found_with_its_place(load):
    parameters = load(**{"dataset.name": "mnist", "dataset.validation_fraction": 0.25})
    raw.write_mnist(parameters)
    convert(parameters)
    shard = parameters.paths.records / "mnist_test_00000-of-00001.tfrecord"
    content = bytearray(shard.read_bytes())
    content[20] ^= 1
    shard.write_bytes(content)
    with pytest.raises(DataError, match=rf"{shard.name} record 0 at byte 0: .* \[data_crc\]"):
        validate(load(**{"compute.engine": "ray"}))


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


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A folder with validated records."""
    return workers.records(tmp_path_factory.mktemp("records"))


def weights(folder):
    """The digest of the weights that a training made."""
    return documents.read_json(folder / "metrics" / "training.json")["weights_sha256"]


def parts(training):
    """The workers of a training on all nodes."""
    found = []
    for number in filter(str.isdecimal, (path.name for path in Path("/proc").iterdir())):
        try:
            environment = Path(f"/proc/{number}/environ").read_bytes()
            here = Path(f"/proc/{number}/cwd").resolve() == training
        except OSError:
            continue
        if here and b"TF_CONFIG=" in environment and process.is_alive(int(number)):
            found.append(int(number))
    return found


def agents():
    """The processes of Ray that start the workers of this user's trainings."""
    return [each.pid for each in psutil.process_iter(["name"]) if each.info["name"].startswith("ray::Agent")]


def groups_left():
    """The placement groups that nodes are still reserved for, if they stay for long."""
    import ray  # noqa: PLC0415 - its import warns

    ray.init(logging_level="ERROR", log_to_driver=False)
    found = []

    def released():
        table = ray.util.placement_group_table()
        found[:] = [each for each in table.values() if each["state"] != "REMOVED"]
        return not found

    try:
        with contextlib.suppress(AssertionError):
            wait_until(released, 60)
        return found
    finally:
        ray.shutdown()


def test_a_training_on_two_nodes_makes_what_workers_by_hand_make(source, tmp_path):
    ours = workers.copy(source, tmp_path / "ours", TOGETHER)
    by_hand = workers.copy(source, tmp_path / "by hand")
    started = [workers.start(ours), *workers.start_together(by_hand, 2)]
    assert workers.ends(started) == [0, 0, 0], workers.said(ours)
    assert weights(ours) == weights(by_hand)
    lines = workers.said(ours).splitlines()
    assert "checkpoint of step" in str([line for line in lines if not line.startswith("worker 1: ")])
    assert any(line.startswith("worker 1: ") for line in lines)
    assert groups_left() == []


@pytest.mark.slow
def test_all_workers_start_again_after_one_is_killed(source, tmp_path):
    ours, other = (
        workers.copy(source, tmp_path / name, {**TOGETHER, **LONG, "compute.engine": engine})
        for name, engine in (("ours", "ray"), ("other", "processes"))
    )
    training = workers.start(ours)
    workers.wait_for_step(ours, 30, [training])
    os.kill(min(parts(ours)), signal.SIGKILL)
    assert workers.ends([training]) == [0], workers.said(ours)
    assert "all workers start again" in workers.said(ours)
    assert "resumed from step" in workers.said(ours)
    assert workers.ends([workers.start(other)]) == [0]
    assert weights(ours) == weights(other)


@pytest.mark.slow
def test_no_worker_outlives_a_killed_command_and_a_signal_lets_them_save(source, tmp_path):
    folder = workers.copy(source, tmp_path / "ours", {**TOGETHER, **LONG, "train.max_steps": 3000})
    for step, number, code in ((30, signal.SIGTERM, 75), (70, signal.SIGKILL, -9)):
        training = workers.start(folder)
        workers.wait_for_step(folder, step, [training])
        training.send_signal(number)
        assert workers.ends([training]) == [code], workers.said(folder)
        wait_until(lambda: not parts(folder))
        if code == 75:
            failure = json.loads((folder / ".work" / "failure.json").read_text())
            assert "saved at step" in failure["message"]
    assert groups_left() == []


@pytest.fixture
def doomed(monkeypatch, tmp_path):
    """A cluster of two nodes whose head a test may kill; RAY_ADDRESS names it."""
    from ray.cluster_utils import Cluster  # noqa: PLC0415 - its import warns

    with contextlib.chdir(tmp_path):
        started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        started.add_node(num_cpus=1)
    monkeypatch.setenv("RAY_ADDRESS", started.address)
    yield started
    started.shutdown()


def kill(node, name):
    """Kill a process of Ray with SIGKILL."""
    os.kill(node.all_processes[name][0].process.pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_training_whose_cluster_loses_its_head_saves_and_says_so(doomed, source, tmp_path):
    folder = workers.copy(source, tmp_path / "ours", {**TOGETHER, **LONG, "train.max_steps": 3000})
    training = workers.start(folder)
    workers.wait_for_step(folder, 30, [training])
    kill(doomed.head_node, "gcs_server")
    assert workers.ends([training], 50) == [75], workers.said(folder)  # Ray itself would need a minute
    failure = json.loads((folder / ".work" / "failure.json").read_text())
    assert re.search(r"the Ray cluster was lost: its head at .* saved at step", failure["message"])
    assert parts(folder) == []
    wait_until(lambda: not agents())


@pytest.mark.slow
def test_tasks_whose_cluster_loses_its_head_are_interrupted(doomed):
    results = ray_driver.map_on_ray(tasks.slowly, {2: 600}, range(3))
    assert next(results) == 0
    kill(doomed.head_node, "gcs_server")
    with pytest.raises(Interrupted, match="the Ray cluster was lost"):
        list(results)


@pytest.mark.slow
def test_nothing_stays_of_a_node_whose_process_is_killed(doomed, source, tmp_path):
    folder = workers.copy(source, tmp_path / "ours", {**TOGETHER, **LONG, "train.max_steps": 3000})
    training = workers.start(folder)
    workers.wait_for_step(folder, 30, [training])
    before = agents()
    kill(doomed.head_node, "raylet")  # it stays a zombie, which Ray takes for a running process
    wait_until(lambda: len(agents()) < len(before))
    training.send_signal(signal.SIGTERM)
    assert workers.ends([training]) == [75], workers.said(folder)
    assert parts(folder) == agents() == []


@pytest.mark.slow
def test_the_mistake_of_a_worker_is_that_of_the_command(source, tmp_path):
    folder = workers.copy(source, tmp_path / "mistaken", {**TOGETHER, "train.batch_size": 97})
    assert workers.ends([workers.start(folder)]) == [2]
    assert "train.batch_size 97 cannot be split evenly over 2 devices" in workers.said(folder)
    assert "start again" not in workers.said(folder)


@pytest.mark.slow
def test_a_cluster_with_too_few_nodes_is_described_after_a_bounded_wait(source, tmp_path, monkeypatch):
    monkeypatch.setenv(cluster.WAIT, "0")
    values = {**TOGETHER, "compute.workers": 3, "train.devices": "cpu:3"}
    folder = workers.copy(source, tmp_path / "three", values)
    assert workers.ends([workers.start(folder)]) == [2]
    assert "the Ray cluster has 2 of 3 nodes with CPU 1 free on each" in workers.said(folder)


def test_workers_get_settings_and_credentials_but_nothing_that_names_this_machine():
    given = {"PERENNIAL_RUN": "r", "AWS_PROFILE": "p", "https_proxy": "x", "PYTHONPATH": "src"}
    kept_here = {"PERENNIAL_STARTED_BY": "1", "CUDA_VISIBLE_DEVICES": "3", "HOME": "/root", "PATH": "/bin"}
    assert ray_agent.passed_on(given | kept_here) == given
