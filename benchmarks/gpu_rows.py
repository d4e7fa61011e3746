"""What the rows of `make gpu-check` do: `python -m benchmarks.gpu_rows FOLDER NAME`, in the setting of FOLDER.

A row runs the stages as dvc.yaml does, in a project of its own under FOLDER/projects, and prints what it found.
"""

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from benchmarks import data, projects
from benchmarks.timing import ENVIRONMENT, PERENNIAL, ROOT

Found = dict[str, Any]  # `said` or `not_tried`, and numbers
MODES = {"deterministic": (True, False), "not deterministic": (False, False), "XLA": (False, True)}
RATE, WAIT = re.compile(r"([\d,]+) examples/s"), re.compile(r"(\d+)% waiting for input")
KEPT = 4  # checkpoints of a training that is killed
PROBABILITY = 1e-3  # between those of a GPU and a CPU
FIRST = "train mnist float32 deterministic"
# XLA compiles the distortions of photographs for minutes: last, and not on a CPU.
SLOW = {f"train flowers {precision} XLA" for precision in ("float32", "bfloat16")}
BATCH_SIZES = {"mnist_cnn": 4096, "cifar10_tutorial": 4096, "keras_resnet_v1_50": 256}  # to measure speeds


class Setting(NamedTuple):
    """What the rows of a check share."""

    folder: Path
    gpus: int
    quick: bool


class Task(NamedTuple):
    """What a row does, and what it needs."""

    run: Callable[[Setting], Found]
    gpus: int = 0
    after: tuple[str, ...] = ()
    alone: bool = False  # it measures what other rows would change
    limit_s: float = 240


class DataSet(NamedTuple):
    """A data set and how a network is trained on it."""

    preset: str
    archives: str  # a file that the folder DATA has, if it has this data set
    made: Callable[[], Path]
    steps: int  # on a GPU
    few: int  # on a CPU
    values: Mapping[str, Any]


DATA_SETS = {
    "mnist": DataSet(
        "mnist", "train-images-idx3-ubyte.gz", data.mnist, 600, 60, {"train.learning_rate": 0.001}
    ),
    "cifar10": DataSet("cifar10_tutorial", "cifar-10-binary.tar.gz", data.cifar10, 600, 40, {}),
    "flowers": DataSet(
        "inception_v3_flowers", "flower_photos.tgz", data.flowers, 120, 12,
        {
            "model.name": "mobilenet_v1_050", "preprocessing.image_size": 128, "preprocessing.fast": False,
            "train.head.steps": 0, "train.learning_rate": 0.002,
        },
    ),
}  # fmt: skip


def table(setting: Setting) -> dict[str, Task]:
    """All rows in their order."""
    rows = {"devices": Task(devices, gpus=1)}
    rows |= {f"{name} data": Task(partial(prepare, name)) for name in DATA_SETS}
    trainings = _trainings(setting)
    rows |= {title: task for title, task in trainings.items() if title not in SLOW}
    rows |= _again(setting)
    rows["evaluate and export"] = Task(export, after=(FIRST,))
    rows["GPU and CPU"] = Task(gpu_and_cpu, gpus=1, after=("evaluate and export",))
    rows["too many GPUs"] = Task(too_many, after=("mnist data",))
    rows["devices auto"] = Task(auto, gpus=1, after=("mnist data",))
    rows["one GPU, two trainings"] = Task(lease, after=("mnist data",))
    rows["deterministic networks"] = Task(networks, gpus=1)
    rows["predict beside a training"] = Task(memory, gpus=1, after=("evaluate and export",), alone=True)
    rows["two GPUs"] = Task(two_gpus, gpus=2, after=(FIRST,))
    for model, batch in BATCH_SIZES.items():
        rows[f"speed {model}"] = Task(partial(speed, model, batch), gpus=1, alone=True)
    for name, model in (("mnist", "mnist_cnn"), ("cifar10", "cifar10_tutorial")):
        rows[f"Keras fit {name}"] = Task(partial(keras_fit, name, model), after=(f"{name} data",), alone=True)
    rows |= {title: task for title, task in trainings.items() if title in SLOW and setting.gpus}
    return rows


def _trainings(setting: Setting) -> dict[str, Task]:
    rows = {}
    for name, precision, mode in product(DATA_SETS, ("float32", "bfloat16"), MODES):
        if name == "mnist" or _kept(setting, precision, mode):
            title = f"train {name} {precision} {mode}"
            rows[title] = Task(partial(train, title, name, precision, mode), after=(f"{name} data",))
    return rows


def _again(setting: Setting) -> dict[str, Task]:
    """Trainings that run twice, or are killed and resumed."""
    rows = {}
    for mode in MODES:
        first = f"train mnist float32 {mode}"
        rows[f"repeat mnist {mode}"] = Task(partial(repeat, first), after=(first,))
    rows["resume mnist XLA"] = Task(partial(resume, "mnist", "XLA"), after=("train mnist float32 XLA",))
    for name in DATA_SETS if setting.gpus and not setting.quick else ("mnist",):
        first = f"train {name} float32 deterministic"
        rows[f"resume {name} deterministic"] = Task(partial(resume, name, "deterministic"), after=(first,))
    return rows


def _kept(setting: Setting, precision: str, mode: str) -> bool:
    """Whether a quick check, or one on a CPU, has this training."""
    return (bool(setting.gpus) and not setting.quick) or (precision == "float32") == (mode == "deterministic")


def environment(setting: Setting, name: str) -> dict[str, str]:
    """Variables of a row's process. It takes the memory that it needs, since others run at the same time."""
    return {
        "SCALE": "0.2" if setting.gpus else "0.02", "RUNS": "3", "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "PERENNIAL_HOME": str(setting.folder / "homes" / name),
    }  # fmt: skip


def write(setting: Setting) -> None:
    """Keeps the setting for the rows."""
    values = {**setting._asdict(), "folder": str(setting.folder)}
    (setting.folder / "setting.json").write_text(json.dumps(values), encoding="utf-8")


def origins() -> dict[str, str]:
    """Where the data sets come from."""
    return {name: "DATA" if _named(name) else "generated" for name in DATA_SETS}


def _named(name: str) -> Path | None:
    folder = Path(os.environ.get("DATA", "/nonexistent")).resolve()
    return folder if (folder / DATA_SETS[name].archives).is_file() else None


def _originals(name: str) -> Path:
    return _named(name) or DATA_SETS[name].made()


def devices(setting: Setting) -> Found:
    """TensorFlow sees the GPUs that the driver lists, and computes on each."""
    import tensorflow as tf  # noqa: PLC0415 - only some rows need it, which takes seconds

    found = tf.config.list_physical_devices("GPU")
    names = [tf.config.experimental.get_device_details(each).get("device_name") for each in found]
    assert len(found) == setting.gpus, f"the driver lists {setting.gpus} GPUs, TensorFlow sees {len(found)}"
    for number in range(len(found)):
        with tf.device(f"GPU:{number}"):
            assert float(tf.reduce_sum(tf.matmul(tf.ones((256, 256)), tf.ones((256, 256))))) == 256.0**3
    build = tf.sysconfig.get_build_info()
    kept = {key: build[key] for key in ("cuda_version", "cudnn_version") if key in build}
    return {"said": f"{', '.join(map(str, names))}; built for {kept}", "names": names, **kept}


def memory(setting: Setting) -> Found:
    """A training leaves memory to `predict`, which reserves no GPU."""
    values = {"train.max_steps": 10**6, "train.steps_between_evals": 10**6, "logging.every_steps": 100}
    folder, image = project(setting, "memory", "mnist", values), setting.folder / "projects" / "black.png"
    Image.new("L", (28, 28)).save(image)
    export = setting.folder / "projects" / "evaluate and export" / "models" / "export"
    own = {name: value for name, value in ENVIRONMENT.items() if name != "TF_FORCE_GPU_ALLOW_GROWTH"}
    before = _used_mb()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen((*PERENNIAL, "train"), cwd=folder, env=own, stdout=log, stderr=log)
    try:
        while process.poll() is None and not (folder / ".work" / "progress.json").exists():
            time.sleep(0.1)
        taken = _used_mb() - before
        perennial(folder, "predict", str(image), "--model", str(export), environment=own)
        assert process.poll() is None, f"the training ended: {(folder / 'log').read_text()[-500:]}"
    finally:
        process.kill()
        process.wait()
    said = f", which takes {taken:,.0f} MB" if taken else ""
    return {"said": f"predict works beside a training{said}", "taken_mb": taken or None}


def _used_mb() -> float:
    if not shutil.which("nvidia-smi"):
        return 0.0
    query = ("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0")
    return float(subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0])


def prepare(name: str, setting: Setting) -> Found:
    """Download, convert and validate."""
    started = time.monotonic()
    values = {"validate.severity.near_duplicate": "ignore", "train.devices": "cpu:1"}
    folder = projects.converted(setting.folder / "projects" / f"{name} data", name, _originals(name), values)
    perennial(folder, "validate")
    count = projects.count_validated(folder)
    seconds = time.monotonic() - started
    where = "DATA" if _named(name) else "generated"
    return {"said": f"{count} images ({where}) downloaded, converted, validated", "seconds": seconds}


def train(title: str, name: str, precision: str, mode: str, setting: Setting) -> Found:
    """A short training that learns."""
    deterministic, xla = MODES[mode]
    values = {"train.precision": precision, "train.deterministic": deterministic, "train.xla": xla}
    folder = project(setting, title, name, values)
    return learned(folder, perennial(folder, "train"))


def learned(folder: Path, printed: str) -> Found:
    """What a training found; its loss must be finite and have fallen."""
    record = json.loads((folder / "metrics" / "training.json").read_text(encoding="utf-8"))
    (steps,) = (folder / ".work" / "train").glob("*/steps.csv")
    losses = np.genfromtxt(steps, delimiter=",", names=True)["total_loss"]
    tenth = max(len(losses) // 10, 1)
    first, last = float(losses[:tenth].mean()), float(losses[-tenth:].mean())
    accuracy = record["evaluations"][-1]["accuracy"]
    found = {"loss": last, "accuracy": accuracy}
    said = f"loss {first:.3f} to {last:.3f}, validation accuracy {accuracy:.3f}"
    if rates := [float(rate.replace(",", "")) for rate in RATE.findall(printed)]:
        found["examples_per_second"] = max(rates)  # the others include compiling
        said += f", up to {max(rates):,.0f} examples/s"
    if waits := WAIT.findall(printed):
        found["input_wait"] = int(waits[-1]) / 100
        said += f", {waits[-1]}% waiting for input"
    assert np.isfinite(losses).all(), "a loss is not finite"
    assert last < first, f"it did not learn: {said}"
    return {"said": said, **found}


def project(setting: Setting, title: str, name: str, values: Mapping[str, Any]) -> Path:
    """A new project with the records of a data set, ready to train."""
    how, steps = DATA_SETS[name], _steps(setting, name)
    sections = ("preprocessing.", "model.", "train.")
    preset = {key: value for key, value in projects.preset(how.preset).items() if key.startswith(sections)}
    ends = {
        "train.epochs": None, "train.max_steps": steps, "train.steps_between_evals": steps // 2,
        "train.epochs_between_evals": 1, "train.stop_threshold": None, "checkpoints.interval_s": None,
        "checkpoints.interval_steps": steps // KEPT, "train.devices": "gpu:1" if setting.gpus else "cpu:1",
        "evaluate.devices": "gpu:1" if setting.gpus else "cpu:1", "dataset.name": name,
        "logging.every_steps": 10,
    }  # fmt: skip
    folder = setting.folder / "projects" / title
    projects.with_values(folder, {**projects.VALUES, **preset, **how.values, **ends, **values})
    prepared = setting.folder / "projects" / f"{name} data" / "data"
    shutil.copytree(prepared, folder / "data", copy_function=os.link)
    return folder


def _steps(setting: Setting, name: str) -> int:
    return DATA_SETS[name].steps if setting.gpus else DATA_SETS[name].few


def perennial(
    folder: Path, *arguments: str, code: int = 0, environment: Mapping[str, str] = ENVIRONMENT
) -> str:
    """What a command of perennial prints; it must end with this code."""
    done = subprocess.run(
        (*PERENNIAL, *arguments), cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    print(
        f"$ perennial {' '.join(arguments)} # in {folder.name}, code {done.returncode}\n"
        f"{done.stdout}{done.stderr}",
        flush=True,
    )
    log = folder / ".work" / "tensorflow.log"
    if done.returncode != code and log.is_file():
        print(f"tensorflow.log:\n{log.read_text(encoding='utf-8', errors='replace')[-3000:]}")
    assert done.returncode == code, (
        f"perennial {arguments[0]} ended with {done.returncode}, expected {code}: {done.stderr.strip()[-200:]}"
    )
    return done.stdout + done.stderr


def again(setting: Setting, first: str, title: str) -> Path:
    """A new project with the parameters and records of the row `first`, without its training."""
    folder, source = setting.folder / "projects" / title, setting.folder / "projects" / first
    folder.mkdir()
    shutil.copy(source / "params.yaml", folder)
    shutil.copytree(source / "data", folder / "data", copy_function=os.link)
    return folder


def repeat(first: str, setting: Setting) -> Found:
    """The same training again; a deterministic one must give the same bytes."""
    folder = again(setting, first, f"repeat {first}")
    perennial(folder, "train")
    return compared(setting, first, folder)


def resume(name: str, mode: str, setting: Setting) -> Found:
    """The same training, killed after a checkpoint and resumed."""
    first = f"train {name} float32 {mode}"
    folder = again(setting, first, f"resume {first}")
    log = folder / "killed.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            (*PERENNIAL, "train"), cwd=folder, env=ENVIRONMENT, stdout=stream, stderr=stream
        )
    while process.poll() is None and not list((folder / ".work").glob("train/*/step-*/checkpoint.json")):
        time.sleep(0.005)
    process.kill()
    code = process.wait()
    assert code == -signal.SIGKILL, f"it ended with {code} before the kill: {log.read_text()[-500:]}"
    resumed = re.search(r"resumed from step (\d+)", perennial(folder, "train"))
    assert resumed, "the second training did not resume"
    found = compared(setting, first, folder)
    return {**found, "said": f"killed, resumed from step {resumed[1]}: {found['said']}"}


def compared(setting: Setting, first: str, folder: Path, *, devices: int = 1) -> Found:
    """How far the weights of two trainings are apart: deterministic ones on as many devices, not at all."""
    weights = [each / "models" / "weights" for each in (setting.folder / "projects" / first, folder)]
    names = sorted(file.name for file in weights[0].iterdir() if file.name != ".perennial")
    if all((weights[0] / name).read_bytes() == (weights[1] / name).read_bytes() for name in names):
        return {"said": "equal byte for byte", "difference": 0.0}
    difference = _difference(*weights)
    assert "float32 deterministic" not in first or devices > 1, (
        f"not equal: weights differ by up to {difference:.2g}"
    )
    return {"said": f"weights differ by up to {difference:.2g}, as may be", "difference": difference}


def _difference(one: Path, other: Path) -> float:
    import tensorflow as tf  # noqa: PLC0415

    tf.config.set_visible_devices([], "GPU")
    readers = [tf.train.load_checkpoint(str(each / "weights")) for each in (one, other)]
    names = [name for name, kind in readers[0].get_variable_to_dtype_map().items() if kind.is_floating]
    return max(float(np.abs(readers[0].get_tensor(n) - readers[1].get_tensor(n)).max()) for n in names)


def export(setting: Setting) -> Found:
    """Every format of an export predicts what the evaluated model does; `export` itself compares them."""
    formats = ["tflite_float32", "tflite_int8", "frozen_graph", *(["onnx"] if find_spec("tf2onnx") else [])]
    folder = _trained(setting, "evaluate and export", {"export.formats": formats})
    perennial(folder, "evaluate")
    perennial(folder, "export")
    return {"said": f"SavedModel, {', '.join(formats)} predict what the model does"}


def _trained(setting: Setting, title: str, values: Mapping[str, Any]) -> Path:
    folder = project(setting, title, "mnist", values)
    source = setting.folder / "projects" / "train mnist float32 deterministic"
    for part in ("models", "metrics"):
        shutil.copytree(source / part, folder / part)
    return folder


def gpu_and_cpu(setting: Setting) -> Found:
    """The test split scored on the GPU and on the CPU."""
    folder = _trained(setting, "GPU and CPU", {"evaluate.devices": "cpu:1"})
    perennial(folder, "evaluate")
    files = [
        setting.folder / "projects" / each / "metrics" / "predictions.npz"
        for each in ("evaluate and export", folder.name)
    ]
    ours, theirs = (np.load(file) for file in files)
    differences = {
        key: float(np.abs(ours[key].astype(float) - theirs[key]).max())
        for key in ours.files
        if ours[key].dtype.kind == "f"
    }
    assert differences, f"no probabilities in {ours.files}"
    largest = max(differences.values())
    assert largest <= PROBABILITY, f"differences up to {largest:.2g}"
    return {"said": f"differ by up to {largest:.2g} of a test example's probability", "difference": largest}


def too_many(setting: Setting) -> Found:
    """More GPUs than there are: an error of configuration."""
    folder = project(
        setting,
        "too many GPUs",
        "mnist",
        {"train.devices": f"gpu:{setting.gpus + 1}", "train.batch_size": 128 * (setting.gpus + 1)},
    )
    printed = perennial(folder, "train", code=2)
    return {"said": printed.strip().splitlines()[-1][-200:]}


def auto(setting: Setting) -> Found:
    """`auto` takes the GPUs."""
    folder = project(
        setting,
        "devices auto",
        "mnist",
        {
            "train.devices": "auto",
            "train.batch_size": 64 * setting.gpus,
            "train.max_steps": 40,
            "train.steps_between_evals": 40,
            "logging.device_placement": False,
        },
    )
    printed = perennial(folder, "train")
    assert "cannot use GPU" not in printed, "TensorFlow cannot use the GPU"
    return learned(folder, printed)


def lease(setting: Setting) -> Found:
    """Two trainings that want the same GPU take turns."""
    values = {
        "train.devices": "auto",
        "compute.gpus": 1,
        "train.max_steps": 20,
        "train.steps_between_evals": 20,
    }
    # Without a GPU, a name stands for one.
    names = {"CUDA_VISIBLE_DEVICES": "0"} if setting.gpus else {"PERENNIAL_GPUS": "check"}
    folders = [project(setting, f"training {number}", "mnist", values) for number in (1, 2)]
    started = []
    for folder in folders:
        with (folder / "log").open("wb") as log:
            started.append(
                subprocess.Popen(
                    (*PERENNIAL, "train"), cwd=folder, env={**ENVIRONMENT, **names}, stdout=log, stderr=log
                )
            )
    codes = [process.wait() for process in started]
    printed = [(folder / "log").read_text(encoding="utf-8") for folder in folders]
    print("\n".join(printed))
    assert codes == [0, 0], f"they ended with {codes}"
    waits = re.findall(r"got GPU .* after (\d+) s", "".join(printed))
    assert len(waits) == 1, f"one of the two must wait, {len(waits)} did"
    return {
        "said": f"one waited for the other, {waits[0]} s" + ("" if setting.gpus else "; a name stood for a GPU")
    }


def two_gpus(setting: Setting) -> Found:
    """Two GPUs learn what one learns, within rounding."""
    one = "train mnist float32 deterministic"
    values = {"train.devices": "gpu:2", "train.batch_size": 100, "train.deterministic": True}
    folder = project(setting, "two GPUs", "mnist", values)
    found = learned(folder, perennial(folder, "train"))
    alone = json.loads(
        (setting.folder / "projects" / one / "metrics" / "training.json").read_text(encoding="utf-8")
    )
    apart = abs(found["accuracy"] - alone["evaluations"][-1]["accuracy"])
    difference = compared(setting, one, folder, devices=2)
    assert apart <= 0.03, f"validation accuracy is {apart:.3f} apart from that of one GPU"
    return {**found, "said": f"{found['said']}; {apart:.3f} of accuracy from one GPU; {difference['said']}"}


def keras_fit(name: str, model: str, setting: Setting) -> Found:
    """Our training beside Keras' fit of the same network, in turns."""
    endless = {"train.max_steps": 10**7, "train.steps_between_evals": 10**6, "checkpoints.interval_steps": None}
    folder = project(
        setting,
        f"Keras fit {name}",
        name,
        {**endless, "train.learning_rate": 0.0001 if name == "mnist" else 0.1, "train.devices": "auto"},
    )
    fit = (
        sys.executable,
        str(ROOT / "benchmarks" / "peers" / "keras_fit.py"),
        model,
        str(_originals(name)),
        "4",
    )
    ours = (sys.executable, "-m", "benchmarks.training", "speed")
    programs: dict[str, Sequence[str]] = {
        "perennial": (*ours, "true"), "Keras fit": (*fit, "auto", "1"),
        "perennial, not deterministic": (*ours, "false"), "Keras fit, 20 steps a call": (*fit, "auto", "20"),
    }  # fmt: skip
    names = list(programs)
    order = names if setting.gpus and not setting.quick else names[:2]
    seconds: dict[str, list[float]] = {each: [] for each in programs}
    wait = 0.0
    for each in order:
        found = json.loads(_printed(programs[each], folder).splitlines()[-1])
        seconds[each].append(found["seconds_per_step"])
        wait = found.get("input_wait", wait)
    batch = {"mnist": 100, "cifar10": 128}[name]
    rates = {each: batch / statistics.median(some) for each, some in seconds.items() if some}
    said = ", ".join(f"{each} {rate:,.0f}" for each, rate in rates.items())
    return {"said": f"batches of {batch}, examples/s: {said}; {wait:.1%} waiting for input", "rates": rates}


def _printed(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    print(f"$ {' '.join(command)}\n{done.stdout}{done.stderr[-3000:]}", flush=True)
    assert not done.returncode, f"{command[-3:]} ended with {done.returncode}"
    return done.stdout


def speed(model: str, batch_size: int, _: Setting) -> Found:
    """The speed of a network with images in memory, in bfloat16 with XLA, and its share of the peak."""
    printed = _printed((sys.executable, "-m", "benchmarks.gpu_speed", model, str(batch_size)), ROOT)
    found = json.loads(printed.splitlines()[-1])
    assert found, "TensorFlow sees no GPU"
    mfu = "" if found["mfu"] is None else f", MFU {found['mfu']:.1%}"
    rate = f"{found['examples_per_second']:,.0f} examples/s, {found['tflops']:.1f} TFLOP/s{mfu}"
    said = f"batches of {batch_size}: {rate}, {found['of_matmul']:.1%} of large products"
    return {"said": said, **found}


def networks(_: Setting) -> Found:
    """Networks of each family train deterministically: two runs of two steps are equal byte for byte."""
    printed = _printed((sys.executable, "-m", "benchmarks.gpu_networks", "80"), ROOT)
    found = json.loads(printed.splitlines()[-1])
    wrong = {name: what for name, what in found.items() if what != "equal" and not what.startswith("not tried")}
    assert not wrong, json.dumps(wrong)
    return {"said": ", ".join(f"{name} {what}" for name, what in found.items()), "networks": found}


def main(folder: str, name: str) -> None:
    """Runs a row and prints what it found."""
    values = json.loads((Path(folder) / "setting.json").read_text(encoding="utf-8"))
    setting = Setting(**{**values, "folder": Path(folder)})
    try:
        found = table(setting)[name].run(setting)
    except AssertionError as error:
        sys.exit(str(error))
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
