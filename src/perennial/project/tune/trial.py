"""A trial: a training with some settings in folders of its own, in a process that stores each evaluation."""

from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from perennial.base import documents
from perennial.base.config import Config
from perennial.base.project import source_code
from perennial.project.tune import training_process
from perennial.project.tune.study import Study

STAGE = "perennial.stages.train"


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


def _train(task: Task) -> None:
    """Train, or go on with a training that was interrupted, and store how it ended."""
    study = Study(task.search, (), metric=task.config.train.stop_metric, evaluations=task.evaluations)
    metric = task.config.train.stop_metric
    # Before that, scores say little about the settings.
    begins_step = max(task.config.train.head.steps, task.config.train.schedule.warmup_steps)
    count = 0

    def follow(evaluation: object, stopped_by: str | None) -> None:
        nonlocal count
        count += 1
        found = asdict(evaluation)  # type: ignore[call-overload]
        worse = study.evaluated(task.number, count, score=found[metric], loss=found["loss"])
        if worse and stopped_by is None and found["step"] > begins_step:
            study.stop(task.number)
            raise Stopped

    own = training_process.own(task.config, task.folder)
    with training_process.stage(STAGE, own, "trial") as (stage, config), suppress(Stopped):
        stage.train(config, pinned=task.pinned, follower=follow)
        source_code.require_unchanged()
        record = documents.read_json(config.paths.training)
        kept = next(each for each in record["evaluations"] if each["step"] == record["kept"])
        study.finish(task.number, score=kept[metric], loss=kept["loss"], stopped_by=record["stopped_by"])


if __name__ == "__main__":
    training_process.main(_train)
