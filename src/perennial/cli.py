"""The command line: every stage by its name, and what a person asks about them."""

import importlib
import json
import logging
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer

from perennial import config, files, process, tensorflow_process
from perennial.errors import ConfigError, PerennialError
from perennial.stages import STAGES
from perennial.training import workers

app = typer.Typer(
    help="Retrain image classifiers: every stage of the pipeline, one at a time.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
ParamsOption = Annotated[Path, typer.Option("--params", help="File with the parameters.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show where in the code it failed.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
PARAMS = Path("params.yaml")


def main() -> None:
    """Runs the command that this process was started with."""
    app()


def _stage_command(stage: str) -> Callable[..., None]:
    def command(params: ParamsOption = PARAMS, *, debug: DebugOption = False) -> None:
        _guarded(stage, lambda: _run_stage(stage, params), debug=debug)

    return command


def _train(
    params: ParamsOption = PARAMS,
    *,
    clean: Annotated[bool, typer.Option("--clean", help="Remove its checkpoints and start anew.")] = False,
    debug: DebugOption = False,
) -> None:
    _guarded("train", lambda: _run_stage("train", params, clean=clean), debug=debug)


for _stage, _help in STAGES.items():
    app.command(_stage, help=_help)(_train if _stage == "train" else _stage_command(_stage))


@app.command("config", help="Check the parameters and print them.")
def _config(params: ParamsOption = PARAMS, *, as_json: JsonOption = False) -> None:
    def show() -> None:
        checked = config.load(params).model_dump(mode="json", by_alias=True)
        _print_json(checked) if as_json else typer.echo(params.read_text(encoding="utf-8"), nl=False)

    _guarded("config", show)


@app.command("models", help="List the architectures with their parameter counts.")
def _models(*, as_json: JsonOption = False) -> None:
    def show() -> None:
        with tempfile.TemporaryDirectory() as work:
            module = tensorflow_process.import_module("perennial.models.listing", Path(work))
        listed = module.listing()
        if as_json:
            _print_json(listed)
            return
        for model in listed:
            size = "{image_size}x{image_size}x{channels}".format(**model)
            weights = f"{model['name']:<24}{model['parameters']:>12,} parameters"
            typer.echo(f"{weights} at {size:<10} {model['preprocessing']}")

    _guarded("models", show)


@app.command("report", help="Tell what the last run gave: data, training, scores, decision.")
def _report(params: ParamsOption = PARAMS, *, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    def show() -> None:
        checked = config.load(params)
        stage = importlib.import_module("perennial.stages.report")
        stage.report(checked)
        if as_json:
            _print_json(stage.summary(checked))
        else:
            typer.echo(checked.paths.report.read_text(encoding="utf-8"), nl=False)

    _guarded("report", show, debug=debug)


@app.command("show", help="Print record N, counted from 0, and draw or save its image.")
def _show(
    number: Annotated[int, typer.Argument(metavar="N", min=0, help="Number of the record.")],
    split: Annotated[
        Literal["train", "validation", "test"] | None,
        typer.Option(help="Count within train, validation or test."),
    ] = None,
    shard: Annotated[
        Path | None, typer.Option(help="Count within this TFRecord file, without parameters and index.")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="File to write the encoded image to.")] = None,
    params: ParamsOption = PARAMS,
    *,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    def show() -> None:
        if shard and split:
            raise ConfigError("--shard and --split both say where to count; leave one out")
        module = importlib.import_module("perennial.show")
        if shard:
            module.show_in_file(shard, number, save=save, as_json=as_json)
        else:
            module.show(config.load(params), number, split=split, save=save, as_json=as_json)

    _guarded("show", show, debug=debug)


def _run_stage(stage: str, params: Path, **options: bool) -> None:
    """Runs a stage alone in its checkout; leaves its failure, if any, for the task to read."""
    checked = config.load(params)
    for folder in (Path.cwd(), params.resolve().parent):
        process.require_own_checkout(folder)
    process.die_with_starter()
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
                getattr(module, stage)(checked, **options)
        except Exception as error:
            code = error.exit_code if isinstance(error, PerennialError) else PerennialError.exit_code
            files.write_json(failure, {"stage": stage, "code": code, "message": _message(error)})
            raise


def _guarded(command: str, run: Callable[[], None], *, debug: bool = False) -> None:
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


def _message(error: Exception) -> str:
    if isinstance(error, PerennialError):
        return str(error)
    if isinstance(error, OSError):
        named = [str(each) for each in (error.filename, error.filename2) if each is not None]
        where = f"{' -> '.join(named)}: " if named else ""
        return (
            f"{where}{error.strerror or error}; outputs that were not finished were left as they are; "
            "make room or grant access, then run this again"
        )
    return f"{type(error).__name__}: {error}"


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2))
