"""The command line: every stage by its name, and the commands beside them."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from perennial import commands, config, process, tensorflow_process
from perennial.commands import SplitName
from perennial.errors import ConfigError
from perennial.running import PARAMS, DebugOption, JsonOption, ParamsOption, guarded, run_stage, tie_to_checkout
from perennial.stages import STAGES

app = typer.Typer(
    help="Retrain image classifiers. The first seven commands are the stages of the pipeline, in their order.",
    epilog="Exit codes: 0 done, 2 wrong parameters, 3 wrong data, 4 a model that is not good enough, "
    "75 interrupted, 1 anything else.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Runs the command that this process was started with."""
    app(prog_name="perennial")


def _stage_command(stage: str) -> Callable[..., None]:
    def command(params: ParamsOption = PARAMS, *, debug: DebugOption = False) -> None:
        guarded(stage, lambda: run_stage(stage, params), debug=debug)

    return command


def _train(
    params: ParamsOption = PARAMS,
    *,
    clean: Annotated[bool, typer.Option("--clean", help="Remove its checkpoints and start anew.")] = False,
    debug: DebugOption = False,
) -> None:
    guarded("train", lambda: run_stage("train", params, clean=clean), debug=debug)


def _evaluate(  # noqa: PLR0913 - each option is one
    params: ParamsOption = PARAMS,
    *,
    split: Annotated[
        SplitName | None, typer.Option(help="Print the scores on this split; the pipeline's files stay.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="With --split: model folder or export in place of the run's own.")
    ] = None,
    predictions: Annotated[
        Path | None, typer.Option(help="With --split: NumPy archive for the answer to each example.")
    ] = None,
    watch: Annotated[
        Path | None, typer.Option(help="Score each checkpoint of a training, on --split or validation.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="With --watch: score what is there, then end.")] = False,
    every: Annotated[
        float | None,
        typer.Option(min=0.01, max=86400, help="With --watch: seconds between looks. [default: 60]"),
    ] = None,
    max_batches: Annotated[
        int | None, typer.Option(min=1, help="With --watch: score the first batches alone.")
    ] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    def score() -> None:
        checked = config.load(params)
        if watch is None and (once or every is not None or max_batches is not None):
            raise ConfigError("--once, --every and --max-batches go with --watch CHECKPOINTS")
        if watch is None and split is None:
            told = "--model, --predictions and --json go with --split train, validation or test"
            raise ConfigError(f"{told}; --json with --watch, too")
        if watch is not None and (model or predictions):
            raise ConfigError("--model and --predictions do not go with --watch, which scores checkpoints")
        name = "score" if watch is None else "watching.watch"
        tie_to_checkout(params)
        with process.interruptible():
            module = tensorflow_process.import_module(f"perennial.{name}", checked.paths.work)
            process.raise_if_signalled()
            if watch is None:
                module.score(checked, split, model=model, predictions=predictions, as_json=as_json)
                return
            looks = {"once": once, "every_s": every or 60, "max_batches": max_batches}
            module.watch(checked, watch, split=split or "validation", **looks, as_json=as_json)

    asked = (split, model, predictions, watch, every, max_batches)
    alone = all(option is None for option in asked) and not (once or as_json)
    guarded("evaluate", (lambda: run_stage("evaluate", params)) if alone else score, debug=debug)


OWN: dict[str, Callable[..., None]] = {
    "train": _train,
    "evaluate": _evaluate,
}  # stages with options of their own
for _stage, _help in STAGES.items():
    app.command(_stage, help=_help)(OWN.get(_stage) or _stage_command(_stage))
app.add_typer(commands.app)
