"""A trial: a training with some settings in folders of its own, in a process that tells each evaluation.

The command alone has the study: it would take this process a second to import what that needs.
"""

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from perennial.base.config import Config
from perennial.base.project import source_code
from perennial.project.tune import training_process

STAGE = "perennial.stages.train"


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a trial trains, and where."""

    folder: Path
    config: Config
    pinned: bool  # whether it starts from the weights that pins/weights.json names


def _train(task: Task) -> None:
    """Train, or go on with a training that was interrupted, and print each evaluation as a line of JSON."""
    output = os.dup(1)
    os.dup2(2, 1)  # whatever else is printed goes to the log

    def tell(evaluation: object, stopped_by: str | None) -> None:
        line = json.dumps({**asdict(evaluation), "stopped_by": stopped_by})  # type: ignore[call-overload]
        with suppress(BrokenPipeError):  # the command was killed; a signal will end this process, too
            os.write(output, f"{line}\n".encode())

    own = training_process.own(task.config, task.folder)
    with training_process.stage(STAGE, own, "trial") as (stage, config):
        stage.train(config, pinned=task.pinned, follower=tell)
        source_code.require_unchanged()


if __name__ == "__main__":
    training_process.main(_train)
