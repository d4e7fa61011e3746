"""The comparison of an export with the scored model, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import perennial
from perennial.errors import ERRORS, PerennialError, QualityError
from perennial.parity.comparison import Found, Job, Report

PROGRAM = "perennial.parity.comparison"


def compare(job: Job, log: Path) -> tuple[Found, ...]:
    """What `comparison.compare` finds in a new process; what else that says goes to `log`.

    Raises:
        QualityError: the export does not answer as the scored model.
        DataError: there is nothing to compare it with.
        PerennialError: the process was killed.
    """
    source = str(Path(perennial.__file__).parents[1])
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-m", PROGRAM, job.model_dump_json(), str(os.getpid())]
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
            told, _ = child.communicate()
        finally:
            child.kill()
    if child.returncode:
        raise PerennialError(
            f"the process that compares the export with the scored model ended with code {child.returncode}, "
            f"perhaps because memory ran out; what it said is in {log}; the old export was kept"
        )
    report = Report.model_validate_json(told.splitlines()[-1])
    if report.failed is not None:
        code, message = report.failed
        kind = next(each for each in ERRORS if each.exit_code == code)
        raise kind(
            f"the export could not be compared with the scored model: {message}; the old export was kept"
        )
    if report.wrong is not None:
        raise QualityError(
            f"the export is not the model that was scored: {report.wrong}; the old export was kept; where code "
            "or packages were changed since, `dvc repro -f evaluate` scores the model anew"
        )
    return report.found
