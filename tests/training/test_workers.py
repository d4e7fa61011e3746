"""Which worker this process is."""

import json

import pytest

from perennial.errors import ConfigError
from perennial.training import workers


@pytest.fixture
def this_worker(monkeypatch):
    def ask(value):
        monkeypatch.setenv(workers.VARIABLE, value if isinstance(value, str) else json.dumps(value))
        return workers.this_worker()

    return ask


def cluster(index, kind="worker", **roles):
    return {"cluster": roles, "task": {"type": kind, "index": index}}


def test_without_the_variable_a_process_trains_alone(monkeypatch):
    monkeypatch.delenv(workers.VARIABLE, raising=False)
    assert workers.this_worker() is None


def test_the_only_worker_trains_alone(this_worker):
    assert this_worker(cluster(0, worker=["a:1"])) is None


def test_the_first_worker_is_the_chief(this_worker):
    first, second = (this_worker(cluster(index, worker=["a:1", "b:2"])) for index in (0, 1))
    assert (first.is_chief, second.is_chief) == (True, False)
    assert (second.index, second.count, second.address) == (1, 2, "b:2")


def test_a_chief_counts_before_the_workers(this_worker):
    assert this_worker(cluster(0, chief=["a:1"], worker=["b:2", "c:3"])).index == 1
    assert this_worker(cluster(0, kind="chief", chief=["a:1"], worker=["b:2", "c:3"])).is_chief


@pytest.mark.parametrize(
    "value",
    ["{", "[]", '{"cluster": {}}', cluster(2, worker=["a:1", "b:2"]), cluster(-1, worker=["a:1", "b:2"])],
)
def test_another_form_is_refused_with_the_right_one(this_worker, value):
    with pytest.raises(ConfigError, match="expected"):
        this_worker(value)


def test_parameter_servers_are_refused_by_name(this_worker):
    with pytest.raises(ConfigError, match="names ps; workers train synchronously"):
        this_worker(cluster(0, worker=["a:1", "b:2"], ps=["c:3"]))
