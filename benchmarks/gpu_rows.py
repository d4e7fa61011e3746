"""The rows of `make gpu-check`: `python -m benchmarks.gpu_rows FOLDER NAME`, in the setting of FOLDER.

A row runs the stages as dvc.yaml does, in projects of its own, and prints what it found.
"""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from benchmarks.gpu import BATCH_SIZES
from benchmarks.gpu_projects import (
    DATA_SETS,
    Found,
    Setting,
    accuracy,
    again,
    learned,
    originals,
    perennial,
    prepare,
    printed,
    project,
    started,
    trained,
    weights_apart,
)
from benchmarks.timing import ENVIRONMENT, ROOT
from perennial.base.processes import process

MODES = {"deterministic": (True, False), "not deterministic": (False, False), "XLA": (False, True)}
FIRST = "train mnist float32 deterministic"
# XLA compiles the distortions of photographs for minutes, also on a large GPU; not tried on a CPU.
SLOW = {f"train flowers {precision} XLA" for precision in ("float32", "bfloat16")}
PROBABILITY = 1e-3  # at most between those of a GPU and a CPU
ACCURACY = 0.03  # at most between trainings of MNIST that differ by rounding
NETWORKS_S = 150  # about 25 s for each of them
GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"


class Task(NamedTuple):
    """What a row does, and what it needs."""

    run: Callable[[Setting], Found]
    gpus: int = 0
    after: tuple[str, ...] = ()
    alone: bool = False  # it measures what other rows would change
    limit_s: float = 240


def table(setting: Setting) -> dict[str, Task]:
    """All rows in their order."""
    rows = {"devices": Task(devices, gpus=1)}
    rows |= {f"{name} data": Task(partial(prepare, name)) for name in DATA_SETS}
    trainings = _trainings(setting)
    rows |= {title: task for title, task in trainings.items() if title not in SLOW or setting.gpus}
    rows |= _again(setting)
    of_mnist = tuple(title for title in trainings if title.startswith("train mnist"))
    rows["precisions and modes"] = Task(partial(precisions, of_mnist), after=of_mnist)
    rows["evaluate and export"] = Task(export, after=(FIRST,))
    rows["GPU and CPU"] = Task(gpu_and_cpu, gpus=1, after=("evaluate and export",))
    rows["too many GPUs"] = Task(too_many, after=("mnist data",))
    rows["devices auto"] = Task(auto, gpus=1, after=("mnist data",))
    rows["one GPU, two trainings"] = Task(lease, after=("mnist data",))
    rows["deterministic networks"] = Task(networks, gpus=1, limit_s=NETWORKS_S + 120)
    rows["two GPUs"] = Task(two_gpus, gpus=2, after=(FIRST,))
    rows["predict beside a training"] = Task(memory, gpus=1, after=("evaluate and export",), alone=True)
    for model, batch in BATCH_SIZES.items():
        rows[f"speed {model}"] = Task(partial(speed, model, batch), gpus=1, alone=True)
    for name, model in (("mnist", "mnist_cnn"), ("cifar10", "cifar10_tutorial")):
        rows[f"Keras fit {name}"] = Task(partial(keras_fit, name, model), after=(f"{name} data",), alone=True)
    return rows


def _trainings(setting: Setting) -> dict[str, Task]:
    """Trainings in each precision and mode; of CIFAR-10 and flowers three, if quick or on a CPU."""
    rows = {}
    whole = bool(setting.gpus) and not setting.quick
    for name, precision, mode in product(DATA_SETS, ("float32", "bfloat16"), MODES):
        if whole or name == "mnist" or (precision == "float32") == (mode == "deterministic"):
            title = f"train {name} {precision} {mode}"
            run, limit_s = partial(train, title, name, precision, mode), 480 if title in SLOW else 240
            rows[title] = Task(run, after=(f"{name} data",), limit_s=limit_s)
    return rows


def _again(setting: Setting) -> dict[str, Task]:
    """Trainings that run twice, or are killed and resumed."""
    rows = {}
    for mode in MODES:
        first = f"train mnist float32 {mode}"
        rows[f"repeat mnist {mode}"] = Task(partial(repeat, mode), after=(first,))
    rows["resume mnist XLA"] = Task(partial(resume, "mnist", "XLA"), after=("train mnist float32 XLA",))
    for name in DATA_SETS if setting.gpus and not setting.quick else ("mnist",):
        first = f"train {name} float32 deterministic"
        rows[f"resume {name} deterministic"] = Task(partial(resume, name, "deterministic"), after=(first,))
    return rows


def environment(setting: Setting, name: str) -> dict[str, str]:
    """Variables of a row's process. It takes the memory that it needs, since others run at the same time."""
    home = setting.folder / "homes" / name  # where GPUs are reserved: those of the check are shared
    return {
        "SCALE": "0.2" if setting.gpus else "0.02", "RUNS": "3", GROWTH: "true", "PERENNIAL_HOME": str(home),
        **({} if setting.gpus else {"PERENNIAL_GPUS": ""}),
    }  # fmt: skip


def write(setting: Setting) -> None:
    """Keeps the setting for the rows."""
    values = {**setting._asdict(), "folder": str(setting.folder)}
    (setting.folder / "setting.json").write_text(json.dumps(values), encoding="utf-8")


def devices(setting: Setting) -> Found:
    """TensorFlow sees the GPUs that the driver lists, and computes on each."""
    import tensorflow as tf  # noqa: PLC0415 - most rows do without, and it takes seconds

    found = tf.config.list_physical_devices("GPU")
    names = [tf.config.experimental.get_device_details(each).get("device_name") for each in found]
    assert len(found) == setting.gpus, f"the driver lists {setting.gpus} GPUs, TensorFlow sees {len(found)}"
    for number in range(len(found)):
        with tf.device(f"GPU:{number}"):
            ones = tf.ones((256, 256))
            assert float(tf.reduce_sum(tf.matmul(ones, ones))) == 256.0**3, "a product is wrong"
    build = tf.sysconfig.get_build_info()
    versions = ", ".join(f"{key} {build[key]}" for key in ("cuda_version", "cudnn_version") if key in build)
    return {"said": f"{', '.join(map(str, names))}; TensorFlow was built for {versions}", "names": names}


def train(title: str, name: str, precision: str, mode: str, setting: Setting) -> Found:
    """A short training that learns."""
    deterministic, xla = MODES[mode]
    values = {"train.precision": precision, "train.deterministic": deterministic, "train.xla": xla}
    folder = project(setting, title, name, values)
    return learned(folder, perennial(folder, "train"))


def repeat(mode: str, setting: Setting) -> Found:
    """The same training again."""
    first = f"train mnist float32 {mode}"
    folder = again(setting, first, f"repeat {first}")
    perennial(folder, "train")
    return _compared(setting.project(first), folder, equal=mode == "deterministic")


def resume(name: str, mode: str, setting: Setting) -> Found:
    """The same training, killed after a checkpoint and resumed."""
    first = f"train {name} float32 {mode}"
    folder = again(setting, first, f"resume {first}")
    with started(folder) as training:
        while training.poll() is None and not list(folder.glob(".work/train/*/step-*/checkpoint.json")):
            time.sleep(0.005)
        training.kill()
        code = training.wait()
    assert code == -signal.SIGKILL, f"it ended with {code} before it could be killed"
    resumed = re.search(r"resumed from step (\d+)", perennial(folder, "train"))
    assert resumed, "the second training did not resume"
    found = _compared(setting.project(first), folder, equal=mode == "deterministic")
    return {**found, "said": f"killed, resumed from step {resumed[1]}: {found['said']}"}


def _compared(one: Path, other: Path, *, equal: bool) -> Found:
    apart = weights_apart(one, other)
    assert not equal or apart == 0, f"not equal: weights differ by up to {apart:.2g}"
    said = f"weights differ by up to {apart:.2g}, which is no fault" if apart else "equal byte for byte"
    return {"said": said, "difference": apart}


def precisions(titles: tuple[str, ...], setting: Setting) -> Found:
    """Each precision and mode learns MNIST as well as the others."""
    found = {title.removeprefix("train mnist "): accuracy(setting.project(title)) for title in titles}
    apart = max(found.values()) - min(found.values())
    said = f"validation accuracies of MNIST are {apart:.4f} apart"
    assert apart <= ACCURACY, f"{said}: {found}"
    return {"said": said, "accuracies": found}


def export(setting: Setting) -> Found:
    """Every format of an export predicts what the evaluated model does; `export` itself compares them."""
    formats = ["tflite_float32", "tflite_int8", "frozen_graph", *(["onnx"] if find_spec("tf2onnx") else [])]
    folder = trained(setting, FIRST, "evaluate and export", {"export.formats": formats})
    perennial(folder, "evaluate")
    perennial(folder, "export")
    return {"said": f"SavedModel, {', '.join(formats)} predict what the model does"}


def gpu_and_cpu(setting: Setting) -> Found:
    """The test split scored on the GPU and on the CPU."""
    folder = trained(setting, FIRST, "GPU and CPU", {"evaluate.devices": "cpu:1"})
    perennial(folder, "evaluate")
    folders = (setting.project("evaluate and export"), folder)
    ours, theirs = (np.load(each / "metrics" / "predictions.npz") for each in folders)
    names = [name for name in ours.files if ours[name].dtype.kind == "f"]
    assert names, f"no probabilities in {ours.files}"
    apart = max(float(np.abs(ours[name] - theirs[name]).max()) for name in names)
    assert apart <= PROBABILITY, f"probabilities of test examples are up to {apart:.2g} apart"
    return {"said": f"probabilities of test examples are up to {apart:.2g} apart", "difference": apart}


def too_many(setting: Setting) -> Found:
    """More GPUs than there are: an error of configuration."""
    count = setting.gpus + 1
    values = {"train.devices": f"gpu:{count}", "train.batch_size": 128 * count}
    output = perennial(project(setting, "too many GPUs", "mnist", values), "train", code=2)
    return {"said": output.strip().splitlines()[-1]}


def auto(setting: Setting) -> Found:
    """`auto` takes all GPUs."""
    values = {"train.devices": "auto", "train.batch_size": 64 * setting.gpus}
    folder = project(setting, "devices auto", "mnist", values)
    output = perennial(folder, "train")
    assert "cannot use GPU" not in output, "TensorFlow cannot use the GPU"
    return learned(folder, output)


def lease(setting: Setting) -> Found:
    """Two trainings that want the same GPU take turns."""
    values = {"train.devices": "auto", "compute.gpus": 1}
    # Without a GPU, a name stands for one.
    own = {**ENVIRONMENT, **({"CUDA_VISIBLE_DEVICES": "0"} if setting.gpus else {"PERENNIAL_GPUS": "check"})}
    one, two = (project(setting, f"training {number}", "mnist", values) for number in (1, 2))
    with started(one, own) as first, started(two, own) as second:
        codes = [first.wait(), second.wait()]
    assert codes == [0, 0], f"they ended with {codes}"
    logs = "".join((folder / "log").read_text(encoding="utf-8") for folder in (one, two))
    waits = re.findall(r"got GPU .* after (\d+) s", logs)
    assert len(waits) == 1, f"one of the two must wait, {len(waits)} did"
    name = "" if setting.gpus else "; a name stood for a GPU"
    return {"said": f"one waited {waits[0]} s for the other{name}"}


def two_gpus(setting: Setting) -> Found:
    """Two GPUs learn what one learns, within rounding."""
    folder = project(setting, "two GPUs", "mnist", {"train.devices": "gpu:2"})
    found, one = learned(folder, perennial(folder, "train")), setting.project(FIRST)
    apart, weights = abs(found["accuracy"] - accuracy(one)), weights_apart(one, folder)
    assert apart <= ACCURACY, f"validation accuracy is {apart:.3f} apart from that of one GPU"
    return {**found, "said": f"{found['said']}; {weights:.2g} between weights of one and two", "apart": weights}


def networks(_: Setting) -> Found:
    """Networks of each family train deterministically: two runs of two steps are equal byte for byte."""
    output = printed((sys.executable, "-m", "benchmarks.gpu_networks", str(NETWORKS_S)), ROOT)
    found = json.loads(output.splitlines()[-1])
    wrong = {name: what for name, what in found.items() if what != "equal" and not what.startswith("not tried")}
    assert not wrong, json.dumps(wrong)
    return {"said": ", ".join(f"{name} {what}" for name, what in found.items()), "networks": found}


def memory(setting: Setting) -> Found:
    """A training leaves memory to `predict`, which reserves no GPU."""
    values = {"train.max_steps": 10**6, "train.steps_between_evals": 10**6, "logging.every_steps": 100}
    folder, image = project(setting, "memory", "mnist", values), setting.folder / "black.png"
    Image.new("L", (28, 28)).save(image)
    model = setting.project("evaluate and export") / "models" / "export"
    own = {name: value for name, value in ENVIRONMENT.items() if name != GROWTH}
    before = _used_mb()
    with started(folder, own) as training:
        while training.poll() is None and not (folder / ".work" / "progress.json").exists():
            time.sleep(0.1)
        taken = _used_mb() - before
        perennial(folder, "predict", str(image), "--model", str(model), environment=own)
        assert training.poll() is None, "the training ended"
    said = f", which takes {taken:,.0f} MB" if taken else ""
    return {"said": f"predict works beside a training{said}", "taken_mb": taken or None}


def _used_mb() -> float:
    """Memory of the first GPU in use; 0 if nothing tells it."""
    if not shutil.which("nvidia-smi"):
        return 0.0
    query = ("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0")
    return float(subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0])


def speed(model: str, batch_size: int, _: Setting) -> Found:
    """The speed of a network with images in memory, in bfloat16 with XLA, and its share of the peak."""
    output = printed((sys.executable, "-m", "benchmarks.gpu_speed", model, str(batch_size)), ROOT)
    found = json.loads(output.splitlines()[-1])
    assert found, "TensorFlow sees no GPU"
    mfu = "" if found["mfu"] is None else f", MFU {found['mfu']:.1%}"
    rate = f"{found['examples_per_second']:,.0f} examples/s, {found['tflops']:.1f} TFLOP/s{mfu}"
    said = f"batches of {batch_size}: {rate}, {found['of_matmul']:.1%} of large products"
    return {"said": said, **found}


def keras_fit(name: str, model: str, setting: Setting) -> Found:
    """Our training and Keras' fit of the same network, one after the other, in batches that learn."""
    values = {
        "train.max_steps": 10**7, "train.steps_between_evals": 10**6, "checkpoints.interval_steps": None,
        "train.devices": "auto",
    }  # fmt: skip
    folder = project(setting, f"Keras fit {name}", name, values)
    program = str(ROOT / "benchmarks" / "peers" / "keras_fit.py")
    fit = (sys.executable, program, model, str(originals(name, setting)), "4")
    ours = (sys.executable, "-m", "benchmarks.training", "speed")
    programs = {
        "perennial": (*ours, "true"), "Keras fit": (*fit, "auto", "1"),
        "perennial, not deterministic": (*ours, "false"), "Keras fit, 20 steps a call": (*fit, "auto", "20"),
    }  # fmt: skip
    tried = programs if setting.gpus and not setting.quick else dict(list(programs.items())[:2])
    found = {each: json.loads(printed(command, folder).splitlines()[-1]) for each, command in tried.items()}
    batch = {"mnist": 100, "cifar10": 128}[name]
    rates = {each: batch / one["seconds_per_step"] for each, one in found.items()}
    wait = found["perennial"]["input_wait"]
    said = ", ".join(f"{each} {rate:,.0f}" for each, rate in rates.items())
    return {"said": f"batches of {batch}, examples/s: {said}; {wait:.1%} waiting for input", "rates": rates}


def main(folder: str, name: str) -> None:
    """Runs a row and prints what it found."""
    values = json.loads((Path(folder) / "setting.json").read_text(encoding="utf-8"))
    setting = Setting(**{**values, "folder": Path(folder)})
    process.die_with_starter()
    try:
        found = table(setting)[name].run(setting)
    except AssertionError as error:
        sys.exit(str(error))
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
