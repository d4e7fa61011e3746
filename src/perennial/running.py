"""How a command runs: the options that most have, its exit code, and a stage alone in its checkout."""

import json
import logging
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from perennial import config, files, outputs, process, tensorflow_process
from perennial.errors import PerennialError
from perennial.training import workers

ParamsOption = Annotated[Path, typer.Option("--params", help="File with the parameters.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show where in the code it failed.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
PARAMS = Path("params.yaml")


def guarded(command: str, run: Callable[[], None], *, debug: bool = False) -> None:
    """Runs a command; ends the process with the code of its error, told in lines instead of a traceback."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format=f"{command}: %(message)s")
    logging.getLogger("perennial").setLevel(logging.INFO)
    try:
        run()
    except PerennialError as error:
        if debug:
            traceback.print_exc()
        typer.echo(f"perennial {command}: {_message(error)}", err=True)
        raise SystemExit(error.exit_code) from None
    except OSError as error:
        # What the system refuses, such as a full disk, is no fault of the program.
        if debug:
            traceback.print_exc()
        typer.echo(f"perennial {command}: {_message(error)}", err=True)
        raise SystemExit(PerennialError.exit_code) from None


def run_stage(stage: str, params: Path, **options: object) -> Any:
    """What a stage gives that runs alone in its checkout; its failure, if any, is left for the task to read."""
    checked = config.load(params)
    tie_to_checkout(params)
    outputs.require_outputs(checked.paths, outputs.OUTPUTS.keys() & {stage})
    work = checked.paths.work
    worker = workers.this_worker()
    number = worker.index if worker else 0
    with process.interruptible(), process.alone(work, stage, number):
        # The task that started the chief reads it.
        failure = work / (f"failure-{number}.json" if number else "failure.json")
        failure.unlink(missing_ok=True)
        try:
            with process.interruptible():
                module = tensorflow_process.import_module(f"perennial.stages.{stage}", work)
                # Importing TensorFlow was seen to swallow the exception of a signal.
                process.raise_if_signalled()
                started = time.monotonic()
                result = getattr(module, stage)(checked, **options)
                if not number:  # workers may share the folder, and the report shows one time
                    took = {"stage": stage, "seconds": time.monotonic() - started}
                    files.write_json(work / "timings" / f"{stage}.json", took)
                return result
        except Exception as error:
            code = error.exit_code if isinstance(error, PerennialError) else PerennialError.exit_code
            files.write_json(failure, {"stage": stage, "code": code, "message": _message(error)})
            raise


def tie_to_checkout(params: Path) -> None:
    """Refuses to go on with the code of another checkout, or without the process that started this one."""
    for folder in (Path.cwd(), params.resolve().parent):
        process.require_own_checkout(folder)
    process.die_with_starter()


def print_json(value: object) -> None:
    """Prints one JSON document."""
    typer.echo(json.dumps(value, indent=2))


def _message(error: Exception) -> str:
    if isinstance(error, PerennialError):
        return str(error)
    if isinstance(error, OSError):
        named = [str(each) for each in (error.filename, error.filename2) if each is not None]
        where = f"{' -> '.join(named)}: " if named else ""
        return (
            f"{where}{error.strerror or error}; what was to be replaced is as it was; "
            "make room or grant access, then run this again"
        )
    return f"{type(error).__name__}: {error}"
