"""A training in folders and a process of its own, whose data DVC brought up to date before.

Run as a program, it is a trial of a search. The command alone has the study: it would take this process a
second to import what that needs.
"""

import json
import logging
import math
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from perennial.base import layout, limits, logs
from perennial.base.config import Config
from perennial.base.devices import cluster, lease
from perennial.base.dvc import dvc_program, repro
from perennial.base.errors import ERRORS, ConfigError, PerennialError, exit_code
from perennial.base.processes import locks, process, programs, tensorflow
from perennial.base.processes.programs import Finished, TimedOut
from perennial.base.project import source_code

log = logging.getLogger(__name__)
TRIAL = "perennial.project.tune.training_process"
LOG = "log.txt"  # in a training's folder
SHOWN = 500  # characters of an error
OWN_PATHS = {
    "model": "work/model", "training": "training.json", "curves": "curves", "runs": "work/runs", "work": "work",
}  # fmt: skip


def require_trainable(config: Config) -> None:
    """Check what needs no data, before anything starts."""
    if config.train.max_steps == 0:
        raise ConfigError(
            "train.max_steps is 0, so nothing would be trained; nothing was started: set it above 0"
        )
    if cluster.this_worker():
        raise ConfigError(
            f"{cluster.named_by()} names several workers, but a training is one process here; nothing was "
            f"started: unset {cluster.named_by()}"
        )


def prepare_data(config: Config) -> None:
    """Bring the data and initial weights up to date with DVC, as all trainings read them."""
    python, here = Path(sys.executable), Path.cwd()
    arguments = ("repro", "validate", "initialize")
    ended = repro.run(
        python, *arguments, folder=here, work=config.paths.work, to=lambda line: log.info("%s", line),
        variables=repro.environment(python, here),
    )  # fmt: skip
    if ended.failure:
        raise error_of(ended.failure["code"], f"{ended.failure['stage']}: {ended.failure['message']}")
    if ended.code:
        lines = [line for line in ended.lines if dvc_program.NOISE not in line][-dvc_program.LINES :]
        raise PerennialError(f"`dvc {' '.join(arguments)}` failed: {' '.join(lines)}")


def error_of(code: int, message: str) -> PerennialError:
    """The error with which another program ended."""
    return next((each for each in ERRORS if each.exit_code == code), PerennialError)(message)


def own(config: Config, folder: Path) -> Config:
    """The parameters with folders of a training of its own, and without what leaves them."""
    paths = {name: folder / place for name, place in OWN_PATHS.items()}
    checkpoints = config.checkpoints.model_copy(update={"remote": None})
    return config.model_copy(update={"paths": replace(config.paths, **paths), "checkpoints": checkpoints})


def run(
    module: str,
    task: object,
    folder: Path,
    *,
    limit_s: float = math.inf,
    goes_on: Callable[[str], bool] = lambda line: True,  # noqa: ARG005 - whatever it prints
) -> Finished | None:
    """Run a module's `main(...)` with a task, to its end; None if it took too long, and was interrupted.

    `goes_on` takes each line that it prints, and says whether it goes on; otherwise it is killed.
    """

    def take(line: str) -> None:
        if not goes_on(line):
            program.signal(signal.SIGKILL)

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOG).open("a", encoding="utf-8") as stream:
        program = programs.Program(
            [sys.executable, "-m", module],
            env={**os.environ, "PYTHONPATH": layout.python_path()},
            feed=True,
            to=take,
            log=lambda line: print(line, file=stream, flush=True),
            grace_s=limits.SAVE_GRACE_S,
        )
        try:
            return program.finish(pickle.dumps(task), limit_s=limit_s / limits.scaled(1))  # a person chose it
        except TimedOut:
            return None


def failure(done: Finished) -> tuple[int, str]:
    """The exit code and the message of a training that failed."""
    if done.code < 0:
        return 1, f"a signal ({-done.code}) ended its process, perhaps because memory ran out; see {LOG}"
    return done.code, done.last_lines(1)


@contextmanager
def stage(module: str, config: Config, name: str) -> Iterator[tuple[ModuleType, Config]]:
    """The module of a training with TensorFlow, and its parameters with the devices that it holds."""
    with (
        # The process of a command that was killed may still save its last checkpoint.
        locks.held(config.paths.work / f"{name}.lock", name, busy="an earlier process of this training works"),
        lease.leased(config.train.devices, config.compute.gpus, key="train.devices", name=name) as taken,
    ):
        found = tensorflow.import_with_tensorflow(module, config.paths.work)
        source_code.require_unchanged()
        train = config.train.model_copy(update={"devices": taken.devices})
        yield found, config.model_copy(update={"train": train})


def main(work: Callable[[Any], None]) -> NoReturn:
    """Work on the task of the standard input, then end; a failure prints one last line."""
    source_code.note_start()
    task = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the command
    logs.to_stderr("%(asctime)s %(message)s", logging.WARNING, force=True)
    logging.getLogger("perennial").setLevel(logging.INFO)
    code, text = 0, ""
    try:
        with process.interruptible():
            work(task)
    except (PerennialError, OSError) as error:
        code, text = exit_code(error), str(error)
    except Exception as error:  # such as TensorFlow's when memory runs out
        log.exception("the training failed")
        code, text = 1, f"{type(error).__name__}: {error}"
    sys.stderr.write(" ".join(text.split())[:SHOWN] + "\n" if code else "")
    sys.stderr.flush()
    os._exit(code)  # what TensorFlow would still tear down takes a second


def _train(task: tuple[Config, bool]) -> None:
    """Train, or go on with a training that was interrupted, and print each evaluation as a line of JSON."""
    output = os.dup(1)
    os.dup2(2, 1)  # whatever else is printed goes to the log

    def tell(evaluation: object, stopped_by: str | None) -> None:
        line = json.dumps({**asdict(evaluation), "stopped_by": stopped_by})  # type: ignore[call-overload]
        with suppress(BrokenPipeError):  # the command was killed; a signal will end this process, too
            os.write(output, f"{line}\n".encode())

    with stage("perennial.stages.train", task[0], "trial") as (train, config):
        train.train(config, pinned=task[1], follower=tell)
        source_code.require_unchanged()


if __name__ == "__main__":
    main(_train)
