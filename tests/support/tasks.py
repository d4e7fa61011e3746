"""Functions that tests run in other processes, which import them from here."""

import json
import os
import signal
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path


def product(shared: int, task: int) -> int:
    return shared * task


def slowly(seconds: Mapping[int, float], task: int) -> int:
    """The task, after its number of seconds."""
    time.sleep(seconds.get(task, 0))
    return task


def process(_shared: object, _task: object) -> int:
    """Id of the process that runs it."""
    return os.getpid()


def parent(_shared: object, _task: object) -> int:
    """Id of the process that started the one that runs it."""
    return os.getppid()


def refuse(error: type[Exception], task: int) -> None:
    raise error(f"task {task} is refused")


def warn(text: str, _task: object) -> None:
    """Warn where warnings are ignored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        time.sleep(0.001)
        warnings.warn(text, stacklevel=1)


def be_killed(victim: int, task: int) -> int:
    """The task; kills its own process where it is the victim."""
    if task == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def wait(folder: Path, task: int) -> int:
    """Return at once from the first task, else after ten minutes; note processes and ends in a folder."""
    (folder / str(os.getpid())).touch()
    time.sleep(600 if task else 0)
    (folder / f"done-{task}").touch()
    return task


def write_pipeline(folder: Path, code: str, *, stage: str = "train", **more: Sequence[str]) -> Path:
    """Make a DVC project of a folder with one stage, a Python program; `more` are its outs, deps..."""
    (folder / ".dvc").mkdir()
    (folder / ".dvc" / "config").write_text("[core]\n    no_scm = true\n    analytics = false\n")
    (folder / "stage.py").write_text(code)
    (folder / "params.yaml").write_text("paths: {work: .work}\n")
    (folder / "dvc.yaml").write_text(json.dumps({"stages": {stage: {"cmd": "python stage.py", **more}}}))
    return folder
