"""A trial: a training with some settings in folders of its own, in a process that stores each evaluation."""

import logging
import os
import pickle
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from perennial.base import documents, layout, limits, logs
from perennial.base.config import Config
from perennial.base.devices import lease
from perennial.base.errors import PerennialError, exit_code
from perennial.base.processes import locks, process, programs, tensorflow
from perennial.base.processes.programs import Finished, TimedOut
from perennial.base.project import source_code
from perennial.project.tune.study import Study

log = logging.getLogger(__name__)
STAGE = "perennial.stages.train"
LOG = "log.txt"  # in a trial's folder
SHOWN = 500  # characters of an error
OWN_PATHS = {
    "model": "work/model", "training": "training.json", "curves": "curves", "runs": "work/runs", "work": "work",
}  # fmt: skip


class Stopped(Exception):
    """Others were better at this point."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a trial trains, and where."""

    number: int
    search: Path  # folder of the search
    evaluations: int  # of a training with the present settings
    config: Config
    pinned: bool  # whether it starts from the weights that pins/weights.json names

    @property
    def folder(self) -> Path:
        """The folder of the trial."""
        return self.search / "trials" / f"{self.number:04}"

    @property
    def own(self) -> Config:
        """The parameters with folders of the trial, and without what leaves them."""
        paths = {name: self.folder / place for name, place in OWN_PATHS.items()}
        checkpoints = self.config.checkpoints.model_copy(update={"remote": None})
        own = {"paths": replace(self.config.paths, **paths), "checkpoints": checkpoints}
        return self.config.model_copy(update=own)


def run(task: Task, limit_s: float) -> Finished | None:
    """Run a trial in a process of its own, to its end; None if it took too long, and was interrupted."""
    task.folder.mkdir(parents=True, exist_ok=True)
    with (task.folder / LOG).open("a", encoding="utf-8") as stream:
        try:
            return programs.run(
                [sys.executable, "-m", __name__],
                limit_s=limit_s / limits.scaled(1),  # a person chose it
                env={**os.environ, "PYTHONPATH": layout.python_path()},
                stdin=pickle.dumps(task),
                to=lambda line: print(line, file=stream, flush=True),
                merged=True,
                grace_s=limits.SAVE_GRACE_S,
            )
        except TimedOut:
            return None


def _train(task: Task) -> None:
    """Train, or go on with a training that was interrupted, and store how it ended."""
    study = Study(task.search, (), metric=task.config.train.stop_metric, evaluations=task.evaluations)
    config, metric = task.own, task.config.train.stop_metric
    # Before that, scores say little about the settings.
    begins_step = max(config.train.head.steps, config.train.schedule.warmup_steps)
    count = 0

    def follow(evaluation: object, stopped_by: str | None) -> None:
        nonlocal count
        count += 1
        found = asdict(evaluation)  # type: ignore[call-overload]
        worse = study.evaluated(task.number, count, score=found[metric], loss=found["loss"])
        if worse and stopped_by is None and found["step"] > begins_step:
            study.stop(task.number)
            raise Stopped

    with (
        # The process of a search that was killed may still save its last checkpoint.
        locks.held(config.paths.work / "trial.lock", "trial", busy="an earlier process of this trial works"),
        lease.leased(config.train.devices, config.compute.gpus, key="train.devices", name="tune") as taken,
    ):
        stage = tensorflow.import_with_tensorflow(STAGE, config.paths.work)
        source_code.require_unchanged()
        own = config.train.model_copy(update={"devices": taken.devices})
        with suppress(Stopped):
            stage.train(config.model_copy(update={"train": own}), pinned=task.pinned, follower=follow)
            source_code.require_unchanged()
            record = documents.read_json(config.paths.training)
            kept = next(each for each in record["evaluations"] if each["step"] == record["kept"])
            study.finish(task.number, score=kept[metric], loss=kept["loss"], stopped_by=record["stopped_by"])


def _main() -> int:
    """Run the trial of the standard input; returns the exit code, and a failure prints one last line."""
    source_code.note_start()
    task = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the search
    logs.to_stderr("%(asctime)s %(message)s", logging.WARNING, force=True)
    logging.getLogger("perennial").setLevel(logging.INFO)
    try:
        with process.interruptible():
            _train(task)
    except (PerennialError, OSError) as error:
        code, text = exit_code(error), str(error)
    except Exception as error:  # such as TensorFlow's when memory runs out
        log.exception("the trial failed")
        code, text = 1, f"{type(error).__name__}: {error}"
    else:
        return 0
    sys.stderr.write(" ".join(text.split())[:SHOWN] + "\n")
    return code


if __name__ == "__main__":
    code = _main()
    sys.stderr.flush()
    os._exit(code)  # what TensorFlow would still tear down takes a second
