"""The command line: a command for every stage, and further commands."""

import functools
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from perennial.base import config, logs
from perennial.base.errors import ConfigError, PerennialError
from perennial.base.processes import process
from perennial.base.project import source_code
from perennial.base.project.stages import STAGES
from perennial.cli import (
    commands,
    label_commands,
    lineage_commands,
    model_commands,
    object_commands,
    project_commands,
    reproduce_commands,
    run_commands,
    serve_command,
    version_commands,
)
from perennial.cli.command import (
    PARAMS,
    JsonOption,
    ParamsOption,
    choose_pipeline,
    command,
    guarded,
    weights_are_pinned,
)
from perennial.cli.commands import SplitName
from perennial.cli.stage_runner import import_with_devices, own_devices, run_stage, tie_to_checkout

log = logging.getLogger(__name__)
app = typer.Typer(
    help="Retrain image classifiers. The stages of the pipeline come first, in their order.",
    epilog="Example: `perennial new shop`, `perennial run`, `perennial predict photo.jpg`. README.md and docs/ "
    "of the project describe each command. Exit codes: 0 done, 2 wrong parameters, 3 wrong data, 4 a model "
    "that is not good enough, 75 interrupted, 1 anything else.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata  # a tenth of the time that `--help` takes

        typer.echo(f"perennial {metadata.version(source_code.DISTRIBUTION)}")
        raise typer.Exit


def _choose(pipeline: str | None) -> None:
    if pipeline is not None:
        guarded("--pipeline", functools.partial(choose_pipeline, pipeline))


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    pipeline: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            callback=_choose,
            help="Work on the pipeline pipelines/NAME. [default: that of this folder]",
        ),
    ] = None,
) -> None:
    """Options before the command."""


def main() -> None:
    """Run the command that the process's arguments name."""
    try:
        app(prog_name="perennial")
    except Exception:  # noqa: BLE001 - a bug, whose message may hold an address
        logs.write_traceback()
        sys.exit(PerennialError.exit_code)


def _stage_command(stage: str) -> Callable[..., None]:
    def run(params: ParamsOption = PARAMS) -> None:
        run_stage(stage, params)

    return run


def _train(
    params: ParamsOption = PARAMS,
    *,
    clean: Annotated[
        bool, typer.Option("--clean", help="First remove its checkpoints here and at checkpoints.remote.")
    ] = False,
) -> None:
    run_stage("train", params, clean=clean, pinned=weights_are_pinned(params))


def _evaluate(  # noqa: PLR0913 - each option is one
    params: ParamsOption = PARAMS,
    *,
    split: Annotated[
        SplitName | None, typer.Option(help="Print the scores on this split; the pipeline's files stay.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="With --split: model folder or export. [default: models/weights]")
    ] = None,
    predictions: Annotated[
        Path | None, typer.Option(help="With --split: NumPy archive to write each prediction to.")
    ] = None,
    watch: Annotated[
        Path | None, typer.Option(help="Score each new checkpoint of a training run, on --split or validation.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="With --watch: score existing checkpoints, then exit.")
    ] = False,
    every: Annotated[
        float | None,
        typer.Option(min=0.01, max=86400, help="With --watch: seconds between checks. [default: 60]"),
    ] = None,
    max_batches: Annotated[
        int | None, typer.Option(min=1, help="With --watch: score only this many batches.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    if not any((split, model, predictions, watch, every, max_batches, once, as_json)):
        run_stage("evaluate", params)
        return
    checked = config.load(params)
    if watch is None and (once or every is not None or max_batches is not None):
        raise ConfigError("--once, --every and --max-batches need --watch CHECKPOINTS")
    if watch is None and split is None:
        raise ConfigError("--model, --predictions and --json need --split; --json also goes with --watch")
    if watch is not None and (model or predictions):
        raise ConfigError("--model and --predictions do not go with --watch, which scores checkpoints")
    name = "cli.evaluate" if watch is None else "model.training.sidecar"
    tie_to_checkout(params)
    stage = "evaluate" if watch is None else "watch"
    with process.interruptible(), own_devices(checked, stage) as (own, taken):
        if watch is not None:
            log.info("importing TensorFlow, which takes some seconds")
        module = import_with_devices(f"perennial.{name}", own.paths.work, taken)
        if watch is None:
            module.score(own, split, model=model, predictions=predictions, as_json=as_json)
            return
        looks = {"once": once, "every_s": every or 60, "max_batches": max_batches}
        module.watch(own, watch, split=split or "validation", **looks, as_json=as_json)


WITH_OPTIONS: dict[str, Callable[..., None]] = {"train": _train, "evaluate": _evaluate}
for _name, _stage in STAGES.items():
    _epilog = (
        "It reads params.yaml and always runs, while `perennial run` and `dvc repro` run only the stages whose "
        f"inputs have changed. Example: `perennial {_name} --set {_stage.example}`. "
        f"See docs/how-to/{_stage.page}.md."
    )
    command(app, _name, _stage.about, settable=True, epilog=_epilog)(
        WITH_OPTIONS.get(_name) or _stage_command(_name)
    )
for _module in (
    project_commands,
    model_commands,
    commands,
    object_commands,
    reproduce_commands,
    label_commands,
    lineage_commands,
    serve_command,
    version_commands,
    run_commands,
):
    app.add_typer(_module.app)
