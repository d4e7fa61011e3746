"""The parity comparison in a process of its own, which has nothing but the export.

Run as a program, it takes a job and prints a result, both as JSON.
"""

import os
import subprocess
import sys
from pathlib import Path

import tensorflow as tf
from pydantic import BaseModel

import perennial
from perennial.errors import ERRORS, PerennialError, QualityError
from perennial.export import parity
from perennial.export.parity import FormatReport, Job
from perennial.runtime import process

PROGRAM = "perennial.export.parity_process"


class Result(BaseModel):
    """Reports on all formats, or what differs, or why the comparison failed."""

    reports: tuple[FormatReport, ...] = ()
    difference: str | None = None
    failure: tuple[int, str] | None = None  # exit code and message


def compare(job: Job, log: Path, program: str = PROGRAM) -> tuple[FormatReport, ...]:
    """Run `parity.compare` in a new process, whose stderr goes to `log`.

    Raises:
        QualityError: the export differs from the scored model.
        DataError: the data to compare with are missing or damaged.
        PerennialError: the process was killed.
    """
    source = str(Path(perennial.__file__).parents[1])
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-m", program, job.model_dump_json(), str(os.getpid())]
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("wb") as stream,
        subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stream,
        ) as child,
    ):
        try:
            output, _ = child.communicate()
        finally:
            child.kill()
    if child.returncode:
        raise PerennialError(
            f"the process that compares the export with the scored model ended with code {child.returncode}, "
            f"perhaps because memory ran out; its messages are in {log}; the old export was kept"
        )
    result = Result.model_validate_json(output.splitlines()[-1])
    if result.failure is not None:
        code, message = result.failure
        kind = next(each for each in ERRORS if each.exit_code == code)
        raise kind(
            f"the export could not be compared with the scored model: {message}; the old export was kept"
        )
    if result.difference is not None:
        raise QualityError(
            f"the export differs from the scored model: {result.difference}; the old export was kept; if code "
            "or packages have changed since, `dvc repro -f evaluate` scores the model again"
        )
    return result.reports


def main(job: str, owner: str) -> None:
    """Print the result of a job, and end when the process `owner` ends."""
    process.die_with(int(owner))
    try:
        result = Result(reports=parity.compare(Job.model_validate_json(job)))
    except QualityError as error:
        result = Result(difference=str(error))
    except (PerennialError, OSError, tf.errors.OpError) as error:
        code = error.exit_code if isinstance(error, PerennialError) else PerennialError.exit_code
        result = Result(failure=(code, str(error)))
    sys.stdout.write(f"\n{result.model_dump_json()}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
