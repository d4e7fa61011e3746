"""A trial: a training with some settings in folders of its own, in a process that reports each evaluation.

Its messages to the search are tuples: STARTED, EVALUATED, FINISHED, STOPPED or FAILED, and what belongs to it.
After an evaluation it waits for an answer, whether to stop: no work is lost between the two.
"""

import importlib
import logging
import os
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from signal import SIGTERM
from typing import Any

from perennial.base import documents, files, logs
from perennial.base.config import Config
from perennial.base.devices import lease
from perennial.base.errors import InputsChanged, Interrupted, PerennialError, exit_code
from perennial.base.processes import locks, process, tensorflow
from perennial.base.project import source_code

log = logging.getLogger(__name__)
STARTED, EVALUATED, FINISHED, STOPPED, FAILED = "started", "evaluated", "finished", "stopped", "failed"
STAGE = "perennial.stages.train"
RUN_DIRECTORY = "perennial.model.training.run_directory"
LOG = "log.txt"  # in a trial's folder


class Stopped(Exception):
    """The search stopped this trial early."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a trial trains, and where."""

    number: int
    folder: Path
    config: Config
    pinned: bool  # whether it starts from the weights that pins/weights.json names

    @property
    def own(self) -> Config:
        """The parameters with folders of the trial, and without what leaves them."""
        folder = self.folder
        paths = self.config.paths.model_copy(update={name: folder / place for name, place in OWN_PATHS.items()})
        checkpoints = self.config.checkpoints.model_copy(update={"remote": None})
        sinks = self.config.logging.model_copy(update={"sinks": []})
        return self.config.model_copy(update={"paths": paths, "checkpoints": checkpoints, "logging": sinks})


OWN_PATHS = {
    "model": "work/model", "training": "training.json", "curves": "curves", "runs": "work/runs", "work": "work",
}  # fmt: skip


def run(task: Task, search: Connection) -> None:
    """Run a trial in this process, which ends when the search does; what it prints goes to a file."""
    process.started(now=True)
    task.folder.mkdir(parents=True, exist_ok=True)
    _print_to(task.folder / LOG)
    search.send((STARTED, os.getpid()))
    try:
        with process.interruptible():
            search.send((FINISHED, _train(task, search)))
    except Stopped:
        search.send((STOPPED,))
    except (PerennialError, OSError) as error:
        log.error("%s", error)  # noqa: TRY400 - the message says all
        search.send((FAILED, exit_code(error), str(error), isinstance(error, InputsChanged)))
    except Exception as error:  # such as TensorFlow's when memory runs out
        log.exception("the trial failed")
        text = " ".join(str(error).split())
        search.send((FAILED, 1, f"{type(error).__name__}: {text:.300}", False))


def _train(task: Task, search: Connection) -> dict[str, Any]:
    """Train, or go on with a training that was interrupted; returns its record."""
    config = task.own
    work = config.paths.work

    def follow(evaluation: object, stopped_by: str | None) -> None:
        search.send((EVALUATED, asdict(evaluation), stopped_by))  # type: ignore[call-overload]
        try:
            stop = search.recv()
        except EOFError:
            raise Interrupted("the search ended; run `perennial tune` again to go on") from None
        if stop:
            raise Stopped

    with (
        # The process of a search that was killed may still save its last checkpoint.
        locks.held(work / "trial.lock", f"trial {task.number}", busy="an earlier process of this trial works"),
        lease.leased(config.train.devices, config.compute.gpus, key="train.devices", name="tune") as taken,
    ):
        stage = tensorflow.import_with_tensorflow(STAGE, work)
        source_code.require_unchanged()
        own = config.train.model_copy(update={"devices": taken.devices})
        stage.train(config.model_copy(update={"train": own}), pinned=task.pinned, follower=follow)
        source_code.require_unchanged()
    record: dict[str, Any] = documents.read_json(config.paths.training)
    return record


def _print_to(file: Path) -> None:
    """Let this process print to the end of a file, and log there."""
    with file.open("ab") as stream:
        for number in (1, 2):
            os.dup2(stream.fileno(), number)
    logs.to_stderr("%(asctime)s %(message)s", logging.WARNING, force=True)
    logging.getLogger("perennial").setLevel(logging.INFO)


def _serve(search: Connection, folder: Path, owner: int) -> None:
    """Import the code of a training, then run the trial that the search sends, if any."""
    process.die_with(owner, SIGTERM)
    source_code.note_start()
    tensorflow.set_variables(folder)
    with files.stderr_into(folder / tensorflow.LOG):
        tensorflow.load()
        importlib.import_module(STAGE)  # devices are found when the trial has leased its own
    importlib.import_module(RUN_DIRECTORY).code()  # its digests take a while
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the search ended
        run(search.recv(), search)
    sys.stderr.flush()
    os._exit(0)  # what TensorFlow would still tear down takes a second


if __name__ == "__main__":
    _serve(Connection(int(sys.argv[1])), Path(sys.argv[2]), int(sys.argv[3]))
