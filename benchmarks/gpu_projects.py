"""The projects that the rows of `make gpu-check` work in, their data, and the commands that run there."""

import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import data, projects
from benchmarks.timing import ENVIRONMENT, PERENNIAL, ROOT

DOWNLOADED = ROOT / ".work" / "benchmarks" / "data" / "downloaded"
DOWNLOAD_S = 120
HOST = "storage.googleapis.com", 443  # has two of the three data sets
RATE, WAIT = re.compile(r"([\d,]+) examples/s"), re.compile(r"(\d+)% waiting for input")
SAVED = 4  # checkpoints of a training
Found = dict[str, Any]  # `said`, a sentence, and numbers


class Setting(NamedTuple):
    """What the rows of a check share."""

    folder: Path
    gpus: int
    quick: bool

    def project(self, title: str) -> Path:
        """The folder of a row's project."""
        return self.folder / "projects" / title


class DataSet(NamedTuple):
    """A data set and how a network is trained on it."""

    preset: str
    archive: str  # a file of its folder
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
            "train.head.steps": 0, "train.learning_rate": 0.002, "model.batch_norm_decay": 0.9,
        },
    ),
}  # fmt: skip


def prepare(name: str, setting: Setting) -> Found:
    """Downloads, converts and validates a data set: of DATA, from the network, or a generated one."""
    folder, values = setting.project(f"{name} data"), {"validate.severity.near_duplicate": "ignore"}
    if (source := _given(name)) or (
        not setting.quick and _download(name, setting) and (source := _given(name))
    ):
        where = str(source)
    else:
        source, where = DATA_SETS[name].made(), "generated"
    projects.downloaded(folder, name, source, values)
    perennial(folder, "convert")
    perennial(folder, "validate")
    count = projects.count_validated(folder)
    return {"said": f"{count} images ({where}) downloaded, converted and validated", "data": where}


def _given(name: str) -> Path | None:
    """The folder of DATA, or of an earlier download, that holds this data set."""
    folders = (Path(os.environ.get("DATA", "/nonexistent")).resolve(), DOWNLOADED / name)
    return next((each for each in folders if (each / DATA_SETS[name].archive).is_file()), None)


def _download(name: str, setting: Setting) -> bool:
    """Whether a project can download the data set within a time, from where the data set says; keeps it."""
    folder = projects.with_values(setting.project(f"{name} download"), {"dataset.name": name})
    command = (*PERENNIAL, "download")
    with suppress(OSError, subprocess.SubprocessError):
        socket.create_connection(HOST, timeout=5).close()
        subprocess.run(command, cwd=folder, env=ENVIRONMENT, check=True, timeout=DOWNLOAD_S)
        shutil.copytree(folder / "data" / "raw", DOWNLOADED / name, dirs_exist_ok=True)
        return True
    return False


def originals(name: str, setting: Setting) -> Path:
    """The folder of the files that `prepare` took."""
    return setting.project(f"{name} data") / "data" / "raw"


def project(setting: Setting, title: str, name: str, values: Mapping[str, Any]) -> Path:
    """A new project with the records of a data set, ready to train."""
    how = DATA_SETS[name]
    steps, device = (how.steps, "gpu:1") if setting.gpus else (how.few, "cpu:1")
    sections = ("preprocessing.", "model.", "train.")
    preset = {key: value for key, value in projects.preset(how.preset).items() if key.startswith(sections)}
    short = {
        "dataset.name": name, "train.devices": device, "evaluate.devices": device,
        "train.epochs": None, "train.max_steps": steps, "train.steps_between_evals": steps // 2,
        "train.epochs_between_evals": 1, "train.stop_threshold": None,
        "checkpoints.interval_s": None, "checkpoints.interval_steps": steps // SAVED,
    }  # fmt: skip
    folder = projects.with_values(setting.project(title), {**preset, **how.values, **short, **values})
    _link(setting.project(f"{name} data"), folder)
    return folder


def again(setting: Setting, first: str, title: str) -> Path:
    """A new project with the parameters and records of another one, without its training."""
    folder = setting.project(title)
    folder.mkdir()
    shutil.copy(setting.project(first) / "params.yaml", folder)
    _link(setting.project(first), folder)
    return folder


def trained(setting: Setting, first: str, title: str, values: Mapping[str, Any]) -> Path:
    """A new project with other values and the model of the MNIST project `first`."""
    folder = project(setting, title, "mnist", values)
    for part in ("models", "metrics"):
        shutil.copytree(setting.project(first) / part, folder / part)
    return folder


def _link(source: Path, folder: Path) -> None:
    shutil.copytree(source / "data", folder / "data", copy_function=os.link)


def perennial(
    folder: Path, *arguments: str, code: int = 0, environment: Mapping[str, str] = ENVIRONMENT
) -> str:
    """What a command of perennial prints; it must end with this code."""
    command = (*PERENNIAL, *arguments)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    print(f"$ perennial {' '.join(arguments)} # in {folder.name}, code {done.returncode}")
    print(done.stdout + done.stderr, flush=True)
    log = folder / ".work" / "tensorflow.log"
    if done.returncode != code and log.is_file():
        print(f"tensorflow.log:\n{log.read_text(encoding='utf-8', errors='replace')[-3000:]}")
    last = done.stderr.strip()[-200:]
    assert done.returncode == code, f"{arguments[0]} ended with {done.returncode}, expected {code}: {last}"
    return done.stdout + done.stderr


@contextmanager
def started(folder: Path, environment: Mapping[str, str] = ENVIRONMENT) -> Iterator["subprocess.Popen[bytes]"]:
    """A training that goes on during the block; its output is in the project's file `log`."""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen((*PERENNIAL, "train"), cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        print((folder / "log").read_text(encoding="utf-8", errors="replace"), flush=True)


def printed(command: tuple[str, ...], folder: Path) -> str:
    """What a program prints, which must succeed."""
    done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    print(f"$ {' '.join(command)}\n{done.stdout}{done.stderr[-3000:]}", flush=True)
    assert not done.returncode, f"{' '.join(command[1:])} ended with {done.returncode}"
    return done.stdout


def accuracy(folder: Path) -> float:
    """The last validation accuracy of a training."""
    record = json.loads((folder / "metrics" / "training.json").read_text(encoding="utf-8"))
    return float(record["evaluations"][-1]["accuracy"])


def learned(folder: Path, output: str) -> Found:
    """What a training found; its loss must be finite and have fallen."""
    (steps,) = (folder / ".work" / "train").glob("*/steps.csv")
    losses = np.genfromtxt(steps, delimiter=",", names=True)["total_loss"]
    tenth = max(len(losses) // 10, 1)
    first, last = float(losses[:tenth].mean()), float(losses[-tenth:].mean())
    found: Found = {"loss": last, "accuracy": accuracy(folder)}
    said = f"loss {first:.3f} to {last:.3f}, validation accuracy {found['accuracy']:.3f}"
    if rates := [float(rate.replace(",", "")) for rate in RATE.findall(output)]:
        found["examples_per_second"] = max(rates)  # the others include compiling
        said += f", up to {max(rates):,.0f} examples/s"
    if waits := WAIT.findall(output):
        found["input_wait"] = int(waits[-1]) / 100
        said += f", {waits[-1]}% waiting for input"
    assert np.isfinite(losses).all(), "a loss is not finite"
    assert last < first, f"it did not learn: {said}"
    return {"said": said, **found}


def weights_apart(one: Path, other: Path) -> float:
    """The largest difference of a weight between two trainings; 0 if their files are equal byte for byte."""
    folders = [each / "models" / "weights" for each in (one, other)]
    names = sorted(file.name for file in folders[0].iterdir() if file.name != ".perennial")
    if all((folders[0] / name).read_bytes() == (folders[1] / name).read_bytes() for name in names):
        return 0.0
    import tensorflow as tf  # noqa: PLC0415 - most rows do without, and it takes seconds

    tf.config.set_visible_devices([], "GPU")
    mine, theirs = (tf.train.load_checkpoint(str(each / "weights")) for each in folders)
    kinds = mine.get_variable_to_dtype_map()
    return max(
        float(np.abs(mine.get_tensor(name) - theirs.get_tensor(name)).max())
        for name, kind in kinds.items()
        if kind.is_floating
    )
