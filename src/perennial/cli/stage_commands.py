"""The stages as commands: each runs as the only one in its checkout, and leaves its failure for the task."""

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import typer

from perennial.base import config, failures, files, layout
from perennial.base.config import Config
from perennial.base.devices import cluster, lease
from perennial.base.devices.lease import Lease
from perennial.base.errors import ConfigError, InputsChanged, listed
from perennial.base.layout import Project
from perennial.base.processes import locks, process
from perennial.base.processes.tensorflow import LOG, import_with_tensorflow
from perennial.base.project import code_digests, own_components, source_code
from perennial.base.project.stage_table import SAYING_INPUTS, STAGES, WITH_TENSORFLOW
from perennial.base.stage_state import environment, outputs, recorded, stage_inputs
from perennial.base.stage_state.stage_inputs import Inputs
from perennial.cli.command import command, error_message, output, wants_json, weights_are_pinned
from perennial.cli.option_types import PARAMS, ParamsOption, SplitName, switch, typed
from perennial.release.registry import run_records

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


def tie_to_checkout(params: Path) -> None:
    """Refuse to run another checkout's code, and end when the parent process ends."""
    for folder in (Path.cwd(), params.resolve().parent):
        layout.require_own_checkout(folder)
    process.die_with_starter()


def run_stage(stage: str, params: Path, module: str | None = None, **options: object) -> Any:
    """Run a stage as the only one in its checkout; return its result, or write the failure for the task."""
    checked, values = config.load_with_values(params)
    tie_to_checkout(params)
    outputs.require_outputs(checked.paths, STAGES.keys() & {stage})
    environment.require(stage)
    work = checked.paths.work
    code_digests.require(stage, Project.find().shared("."), work)
    among = cluster.this_worker()
    number = among.index if among else 0
    with (
        process.interruptible(),
        locks.stage(work, stage, number, by_dvc=stage in STAGES),
        _failure_written(work, stage, number),
        process.interruptible(),  # once more, so that a signal is written as a failure
        own_devices(checked, stage) as (own, taken),
    ):
        noted = stage_inputs.note(stage, params, values)
        if not number and _prepared(noted, checked):
            recorded.require_unchanged(noted, checked.paths, own_outputs=True)
            return None
        with nullcontext() if number else run_records.stage(checked, stage):
            result, took = _run(own, taken, noted, module, number, options)
            recorded.require_unchanged(noted, checked.paths, own_outputs=not number)
        if not number:  # workers may share the folder, and the report shows one time
            files.write_json(work / "timings" / f"{stage}.json", {"stage": stage, "seconds": took})
        return result


def _prepared(noted: Inputs, checked: Config) -> bool:
    """Whether an earlier run of a stage has its result for these inputs already, which is then in place."""
    run, work = os.environ.get(run_records.RUN, ""), checked.paths.work
    by_dvc = recorded.BY_DVC in os.environ
    recorded.require_others_as_noted(noted, work, by_dvc=by_dvc)
    if run or by_dvc:
        stage_inputs.require_as_first_noted(noted, work, run)
    if not by_dvc:
        return False
    recorded.require_as_recorded(noted)
    if recorded.take(checked.paths, noted):
        log.info("its inputs are those of a finished result that was kept, which is in place again")
        return True
    return False


def _run(
    own: Config, taken: Lease, noted: Inputs, module: str | None, number: int, options: dict[str, object]
) -> tuple[Any, float]:
    """Import a stage and call it; returns its result and its seconds."""
    stage = noted.stage
    if stage in WITH_TENSORFLOW and not number:
        log.info("importing TensorFlow, which takes some seconds")
    if stage == "train" and own.logging.device_placement:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "0")  # TensorFlow reads it when it is imported
    module = module or f"perennial.stages.{stage}"
    imported = import_with_devices(module, own.paths.work, taken, needed=stage in WITH_TENSORFLOW)
    source_code.require_unchanged()
    if changed := noted.changes():
        raise InputsChanged(
            f"{listed(changed, stage_inputs.SHOWN)} changed while {stage} started; nothing was run: set it "
            "back, or run again to use what is there now"
        )
    environment.require(stage)  # once more: other versions may have been installed meanwhile
    if stage in SAYING_INPUTS and noted.params:
        options = {**options, "inputs": noted.document()}
    began = time.monotonic()
    with own_components.checked(stage, noted.code if noted.listed else None):
        result = getattr(imported, stage)(own, **options)
        took = time.monotonic() - began
    # Python imports some modules late, perhaps of other versions. An edit of requirements/ is named as an edit.
    if not noted.changes():
        environment.require(stage, outcome=f"this changed while {stage} ran, so its result is not recorded")
    return result, took


@contextmanager
def _failure_written(work: Path, stage: str, number: int) -> Iterator[None]:
    """Write an error of the block to a file for the task; workers below the chief have their own."""
    failure = work / (f"failure-{number}.json" if number else "failure.json")
    failure.unlink(missing_ok=True)
    try:
        yield
    except Exception as error:
        files.write_json(failure, {"stage": stage, **failures.document(error, error_message(error))})
        raise


@contextmanager
def own_devices(checked: Config, stage: str) -> Iterator[tuple[Config, Lease]]:
    """Reserve GPUs for a stage whose section of the parameters has `devices`.

    In the parameters of the block, device numbers count among the reserved GPUs.
    """
    name, one = ("evaluate", True) if stage == "watch" else (stage, False)
    section = getattr(checked, name, None)
    devices = getattr(section, "devices", None)
    if section is None or devices is None or (stage == "watch" and devices == "auto"):  # which is one CPU
        yield checked, Lease(devices="cpu:1")
        return
    with lease.leased(devices, checked.compute.gpus, key=f"{name}.devices", name=stage, one=one) as taken:
        own = section.model_copy(update={"devices": taken.devices})
        yield checked.model_copy(update={name: own}), taken


def import_with_devices(module: str, work: Path, taken: Lease, *, needed: bool = True) -> ModuleType:
    """Import a module that needs TensorFlow, or may need it; log GPUs that TensorFlow cannot use."""
    imported = import_with_tensorflow(module, work, needed=needed)
    # Importing TensorFlow was seen to swallow the exception of a signal.
    process.raise_if_signalled()
    tensorflow = sys.modules.get("tensorflow")
    if taken.gpus and tensorflow and not tensorflow.config.list_physical_devices("GPU"):
        log.warning("TensorFlow cannot use GPU %s; see %s", ", ".join(taken.gpus), work / LOG)
    return imported


WITH_OPTIONS: dict[str, Callable[..., None]] = {"train": _train, "evaluate": _evaluate}
for _name, _stage in STAGES.items():
    _epilog = (
        "It reads params.yaml and always runs, while `perennial run` and `dvc repro` run only the stages whose "
        f"inputs have changed. Example: `perennial {_name} --set {_stage.example}`."
    )
    command(app, _name, epilog=_epilog, json=_name == "evaluate")(
        WITH_OPTIONS.get(_name) or _stage_command(_name)
    )
