"""What tests give other processes to do: they import it from here."""

import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


def product(shared: int, task: int) -> int:
    """The two multiplied."""
    return shared * task


def slowly(seconds: Mapping[int, float], task: int) -> int:
    """The task, after as many seconds as it has."""
    time.sleep(seconds.get(task, 0))
    return task


def process(_shared: object, _task: object) -> int:
    """The number of the process that does it."""
    return os.getpid()


def refuse(error: type[Exception], task: int) -> None:
    """An error of that class."""
    raise error(f"task {task} is refused")


def be_killed(victim: int, task: int) -> int:
    """The task; the process that has the victim is killed."""
    if task == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def wait(folder: Path, task: int) -> int:
    """The first task at once; others take a minute. Each notes its process in a folder."""
    (folder / str(os.getpid())).touch()
    time.sleep(60 if task else 0)
    return task


def write_pipeline(folder: Path, code: str, **more: Sequence[str]) -> Path:
    """The folder, in which DVC has the stage `train`, a Python program; with its outputs and so on."""
    (folder / ".dvc").mkdir()
    (folder / ".dvc" / "config").write_text("[core]\n    no_scm = true\n    analytics = false\n")
    (folder / "stage.py").write_text(code)
    (folder / "params.yaml").write_text("paths: {work: .work}\n")
    (folder / "dvc.yaml").write_text(json.dumps({"stages": {"train": {"cmd": "python stage.py", **more}}}))
    return folder
