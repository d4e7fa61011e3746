"""Which worker this process is, and whether the others are there."""

import json
import os
import socket
import threading

import pytest
from support.checkout import free_port

from perennial.base.devices import cluster
from perennial.base.devices.cluster import Worker
from perennial.base.errors import ConfigError, Interrupted

LIMIT_S = 900  # of a busy machine


@pytest.fixture
def this_worker(monkeypatch):
    def ask(value):
        monkeypatch.setenv(cluster.VARIABLE, value if isinstance(value, str) else json.dumps(value))
        return cluster.this_worker()

    return ask


def task(index, kind="worker", **roles):
    return {"cluster": roles, "task": {"type": kind, "index": index}}


@pytest.mark.parametrize("value", ["", task(0, worker=["a:1"])])
def test_without_others_a_process_trains_alone(this_worker, value):
    assert this_worker(value) is None


def test_the_first_worker_is_the_chief(this_worker):
    first, second = (this_worker(task(index, worker=["a:1", "b:2"])) for index in (0, 1))
    assert (first.is_chief, second.is_chief) == (True, False)
    assert (second.index, second.count, second.addresses) == (1, 2, ("a:1", "b:2"))


def test_a_chief_counts_before_the_workers(this_worker):
    assert this_worker(task(0, chief=["a:1"], worker=["b:2", "c:3"])).index == 1
    assert this_worker(task(0, kind="chief", chief=["a:1"], worker=["b:2", "c:3"])).is_chief


@pytest.mark.parametrize(
    "value",
    [
        "{",
        "[]",
        '{"cluster": {}}',
        task(2, worker=["a:1", "b:2"]),
        task(-1, worker=["a:1", "b:2"]),
        task(1, kind="chief", chief=["a:1"], worker=["b:2"]),
        task(1, chief=["a:1"], worker=["b:2"]),
        task(0, worker=["a:1", "b"]),
        task(0, worker=["a:1", "b:65536"]),
        task(0, worker=["a:1", ":2"]),
    ],
)
def test_another_format_is_refused_with_the_expected_one(this_worker, value):
    with pytest.raises(ConfigError, match="expected"):
        this_worker(value)


def test_parameter_servers_and_two_workers_with_one_address_are_refused_by_name(this_worker):
    with pytest.raises(ConfigError, match="names ps"):
        this_worker(task(0, worker=["a:1", "b:2"], ps=["c:3"]))
    with pytest.raises(ConfigError, match="a:1, a:1"):
        this_worker(task(0, worker=["a:1", "a:1"]))


@pytest.fixture
def by_index(monkeypatch):
    """Ask as a pod of an Indexed Job does."""

    def ask(**variables):
        every = (cluster.VARIABLE, cluster.HOSTS, cluster.SIZE, cluster.JOB_INDEX)
        for name in every:
            monkeypatch.setenv(name, "")
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return cluster.this_worker()

    return ask


PODS = {"PERENNIAL_CLUSTER_HOSTS": "training-{index}.training:12345", "PERENNIAL_CLUSTER_SIZE": "3"}
ADDRESSES = tuple(f"training-{index}.training:12345" for index in range(3))


def test_the_index_of_a_pod_and_a_pattern_name_all_workers_as_tensorflow_reads_them(by_index):
    assert by_index(**PODS, JOB_COMPLETION_INDEX="2") == Worker(index=2, addresses=ADDRESSES)
    assert json.loads(os.environ[cluster.VARIABLE]) == task(2, worker=list(ADDRESSES))
    assert cluster.this_worker() == Worker(index=2, addresses=ADDRESSES)  # asked again, and in a child


def test_a_job_of_one_pod_trains_alone(by_index):
    assert by_index(**PODS | {"PERENNIAL_CLUSTER_SIZE": "1"}, JOB_COMPLETION_INDEX="0") is None


@pytest.mark.parametrize(
    ("variables", "rule"),
    [
        ({"JOB_COMPLETION_INDEX": ""}, "JOB_COMPLETION_INDEX .* got nothing; .* completionMode: Indexed"),
        ({"JOB_COMPLETION_INDEX": "3"}, "JOB_COMPLETION_INDEX must be a number from 0 to 2, got 3"),
        ({"PERENNIAL_CLUSTER_SIZE": ""}, "PERENNIAL_CLUSTER_SIZE must be a number .* got nothing"),
        ({"PERENNIAL_CLUSTER_SIZE": "two"}, "PERENNIAL_CLUSTER_SIZE must be a number .* got two"),
        ({"PERENNIAL_CLUSTER_HOSTS": "training-0:12345"}, r"must be an address with \{index\}"),
        ({"PERENNIAL_CLUSTER_HOSTS": "training-{index}"}, "not host:port"),
        ({"TF_CONFIG": '{"cluster": {}}'}, "PERENNIAL_CLUSTER_HOSTS and TF_CONFIG are both set"),
    ],
)
def test_what_a_pod_lacks_is_named(by_index, variables, rule):
    with pytest.raises(ConfigError, match=rule):
        by_index(**PODS | {"JOB_COMPLETION_INDEX": "1"} | variables)


@pytest.fixture
def pair():
    """Two workers on this machine."""
    addresses = tuple(f"127.0.0.1:{free_port()}" for _ in range(2))
    return [Worker(index=index, addresses=addresses) for index in range(2)]


def port(worker):
    return int(worker.addresses[worker.index].rpartition(":")[2])


@pytest.mark.parametrize("late_s", [[0, 0.3], [0, 0, 0, 1.5]], ids=["two", "many"])
def test_workers_meet_whichever_comes_last(late_s):
    # While one is late each asks the others more often than a listener keeps callers waiting.
    addresses = tuple(f"127.0.0.1:{free_port()}" for _ in late_s)
    every = [Worker(index=index, addresses=addresses) for index in range(len(late_s))]
    met = threading.Barrier(len(late_s) + 1, timeout=LIMIT_S)

    def meet(worker):
        cluster.rendezvous(worker)
        with socket.create_server(("127.0.0.1", port(worker))):  # as TensorFlow does
            met.wait()

    threads = [threading.Timer(late, meet, [worker]) for late, worker in zip(late_s, every, strict=True)]
    for thread in threads:
        thread.start()
    met.wait()
    for thread in threads:
        thread.join()


def test_how_long_to_wait_can_be_set(pair, monkeypatch):
    monkeypatch.setenv(cluster.WAIT, "0")
    with pytest.raises(Interrupted, match="worker 0 of 2 waited 0 s for worker 1 at"):
        cluster.rendezvous(pair[0])
    monkeypatch.setenv(cluster.WAIT, "soon")
    with pytest.raises(
        ConfigError, match="PERENNIAL_CLUSTER_WAIT_S must be a number from 0 to 86400, got soon"
    ):
        cluster.rendezvous(pair[0])


@pytest.fixture
def at_once(monkeypatch):
    """Let nobody wait for others, or for a port."""
    monkeypatch.setenv(cluster.WAIT, "0")
    monkeypatch.setattr(cluster, "PORT_WAIT_S", 0)


def test_an_unknown_host_is_named(at_once):
    worker = Worker(index=0, addresses=(f"127.0.0.1:{free_port()}", "no-such-host.invalid:2222"))
    with pytest.raises(Interrupted, match=r"worker 1 at no-such-host\.invalid:2222"):
        cluster.rendezvous(worker)


def test_a_port_that_is_taken_is_named(pair, at_once):
    rule = f"port {port(pair[0])}"
    with socket.create_server(("127.0.0.1", port(pair[0]))), pytest.raises(ConfigError, match=rule):
        cluster.rendezvous(pair[0])


def test_a_port_that_is_still_taken_is_waited_for(pair, monkeypatch):
    monkeypatch.setenv(cluster.WAIT, "0")
    other = socket.create_server(("127.0.0.1", port(pair[0])))
    threading.Timer(0.2, other.close).start()
    with pytest.raises(Interrupted, match="worker 1"):
        cluster.rendezvous(pair[0])


def test_unreachable_names_only_workers_that_do_not_answer(pair):
    assert pair[1].addresses[1] not in cluster.unreachable(pair[1])
    assert cluster.unreachable(pair[1]).startswith(f"worker 0 at {pair[0].addresses[0]}")
    with socket.create_server(("127.0.0.1", port(pair[0]))):
        assert cluster.unreachable(pair[1]).startswith("another worker")
