"""The stages as commands, for DVC, flows and scripts."""

import logging
from collections.abc import Callable
from pathlib import Path

import typer

from perennial.base import config
from perennial.base.errors import ConfigError
from perennial.base.project.stage_table import STAGES
from perennial.cli.command import command, output, wants_json, weights_are_pinned
from perennial.cli.option_types import PARAMS, ParamsOption, SplitName, switch, typed
from perennial.cli.stage_runner import import_with_devices, own_devices, run_stage, tie_to_checkout

log = logging.getLogger(__name__)
app = typer.Typer(rich_markup_mode=None)


def _stage_command(stage: str) -> Callable[..., None]:
    def run(params: ParamsOption = PARAMS) -> None:
        run_stage(stage, params)

    return run


def _train(
    params: ParamsOption = PARAMS,
    *,
    clean: bool = switch("--clean", "First remove its checkpoints here and at checkpoints.remote."),
) -> None:
    run_stage("train", params, clean=clean, pinned=weights_are_pinned(params))


def _evaluate(
    params: ParamsOption = PARAMS,
    *,
    split: SplitName | None = typed("Print the scores on this split; the pipeline's files stay."),
    model: Path | None = typed("With --split: model folder or export. [default: models/weights]"),
    predictions: Path | None = typed("With --split: NumPy archive to write each prediction to."),
    watch: Path | None = typed("Score each new checkpoint of a training run, on --split or validation."),
    once: bool = switch("--once", "With --watch: score existing checkpoints, then exit."),
    every: float | None = typed("With --watch: seconds between checks. [default: 60]", min=0.01, max=86400),
    max_batches: int | None = typed("With --watch: score only this many batches.", min=1),
) -> None:
    if not any((split, model, predictions, watch, every, max_batches, once, wants_json())):
        run_stage("evaluate", params)
        return
    checked = config.load(params)
    if watch is None and (once or every is not None or max_batches is not None):
        raise ConfigError("--once, --every and --max-batches need --watch CHECKPOINTS")
    if watch is None and split is None:
        raise ConfigError("--model, --predictions and --json need --split; --json also goes with --watch")
    if watch is not None and (model or predictions):
        raise ConfigError("--model and --predictions do not go with --watch, which scores checkpoints")
    name = "cli.score_split" if watch is None else "model.training.sidecar"
    tie_to_checkout(params)
    stage = "evaluate" if watch is None else "watch"
    with own_devices(checked, stage) as (own, taken):
        if watch is not None:
            log.info("importing TensorFlow, which takes some seconds")
        module = import_with_devices(f"perennial.{name}", own.paths.work, taken)
        if watch is None:
            output(*module.score(own, split, model=model, predictions=predictions))
            return
        looks = {"once": once, "every_s": every or 60, "max_batches": max_batches}
        module.watch(own, watch, split=split or "validation", **looks, as_json=wants_json())


WITH_OPTIONS: dict[str, Callable[..., None]] = {"train": _train, "evaluate": _evaluate}
for _name, _stage in STAGES.items():
    _epilog = (
        "It reads params.yaml and always runs, while `perennial run` and `dvc repro` run only the stages whose "
        f"inputs have changed. Example: `perennial {_name} --set {_stage.example}`."
    )
    command(app, _name, epilog=_epilog, json=_name == "evaluate")(
        WITH_OPTIONS.get(_name) or _stage_command(_name)
    )
