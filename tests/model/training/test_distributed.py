"""Which devices train, and that the number of them changes no result."""

import json
import os
import re
import subprocess
import sys

import pytest
import tensorflow as tf
from support import workers as processes
from support.parameters import change_params
from support.training import ROOT, rewind

from perennial.base import documents
from perennial.base.devices import cluster
from perennial.base.errors import ConfigError
from perennial.model.training import distributed


@pytest.fixture
def strategy(load, monkeypatch):
    """What a config with some parameters of section train gets, as one of so many workers."""

    def ask(among=1, **values):
        addresses = [f"a:{number}" for number in range(1, among + 1)]
        task = {"type": "worker", "index": 0}
        monkeypatch.setenv(cluster.VARIABLE, json.dumps({"cluster": {"worker": addresses}, "task": task}))
        config = load(**{f"train.{name}": value for name, value in values.items()})
        return distributed.strategy(config.train, cluster.this_worker())

    return ask


def test_one_cpu_needs_no_other_device(strategy):
    assert isinstance(strategy(devices="cpu:1"), tf.distribute.OneDeviceStrategy)


@pytest.mark.parametrize(
    ("among", "wanted", "size", "nearest"),
    [(1, "cpu:3", 64, "63 or 66"), (1, "cpu:8", 4, "8"), (3, "cpu:1", 64, "63 or 66")],
)
def test_a_batch_that_cannot_be_split_is_refused_with_the_nearest(strategy, among, wanted, size, nearest):
    with pytest.raises(ConfigError, match=f"batch_size {size} cannot be split .* nearest: {nearest}$"):
        strategy(among, devices=wanted, batch_size=size)


@pytest.mark.parametrize("wanted", ["gpu:64", "gpu:0,63"])
def test_a_gpu_that_is_not_there_is_named(strategy, wanted):
    with pytest.raises(ConfigError, match=r"sees [0-9]+ GPUs on this machine and no GPU [0-9]+"):
        strategy(devices=wanted)


@pytest.mark.parametrize(
    ("among", "values", "rule"),
    [
        (1, {"all_reduce": "ring"}, "ring, which is for several machines"),
        (1, {"all_reduce": "hierarchical_copy", "devices": "cpu:3", "batch_size": 63}, "even number .* got 3"),
        (2, {"all_reduce": "reduce_to_one"}, "several machines support auto, nccl, ring"),
        (2, {"devices": "cpu:2"}, "has one CPU; use cpu:1"),
    ],
)
def test_what_does_not_go_with_the_number_of_machines_is_refused(strategy, among, values, rule):
    with pytest.raises(ConfigError, match=rule):
        strategy(among, **values)


@pytest.mark.slow
def test_the_device_of_every_operation_is_printed_where_it_is_asked_for(here):
    values = {"logging.device_placement": "true", "train.epochs": "null", "train.max_steps": "1"}
    changes = [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)  # of TensorFlow in this process
    command = [sys.executable, "-m", "perennial", "train", *changes]
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=True)
    assert re.search(r"gradient_tape/.*Conv2DBackpropFilter.*device:CPU:0", done.stderr)


@pytest.mark.slow
def test_a_training_goes_on_with_another_number_of_devices(tmp_path_factory):
    source = processes.records(tmp_path_factory.mktemp("records"))
    stops = {"train.patience": 1, "train.stop_metric": "loss", "train.steps_between_evals": 2}
    alone, several = (
        processes.copy(source, tmp_path_factory.mktemp("cpus"), {"train.devices": f"cpu:{count}", **stops})
        for count in (1, 2)
    )
    assert processes.ends([processes.start(folder) for folder in (alone, several)]) == [0, 0]
    rewind(10, several)
    change_params(several / "params.yaml", {"train.devices": "cpu:3"})
    assert processes.ends([processes.start(several)]) == [0], processes.said(several)
    assert "resumed from step" in processes.said(several)
    assert processes.difference(alone, several) < 1e-4
    ends = [documents.read_json(folder / "metrics" / "training.json") for folder in (alone, several)]
    one, other = ([end[key] for key in ("stopped_by", "step", "kept")] for end in ends)
    assert one == other
    assert ends[1]["resumed"] == [{"step": 10, "changed": ['train.devices ("cpu:2", now "cpu:3")']}]
    assert "resumed" not in ends[0]
