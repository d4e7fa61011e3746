"""The frame of every command: common options, log, output, exit codes and the locks of stages."""

import functools
import importlib
import inspect
import io
import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from perennial.base import config, failures, files, layout, logs
from perennial.base.config import Config
from perennial.base.devices import gpus, lease
from perennial.base.devices.lease import Lease
from perennial.base.distributed import cluster, workers
from perennial.base.errors import ConfigError, InputsChanged, PerennialError, exit_code, listed, redacted
from perennial.base.layout import PIPELINES, Project
from perennial.base.processes import locks, process
from perennial.base.processes.tensorflow import LOG, import_with_tensorflow
from perennial.base.project import code_digests, own_components, source_code
from perennial.base.project.stages import SAYING_INPUTS, STAGES, WITH_TENSORFLOW
from perennial.base.stage_state import environment, kept_results, outputs, recorded, stage_inputs
from perennial.base.stage_state.stage_inputs import Inputs
from perennial.cli.arguments import Command, assignment
from perennial.release.registry import run_records

ParamsOption = Annotated[Path, typer.Option("--params", help="Parameters file.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Use another value for this command only; repeatable."),
]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
PushOption = Annotated[
    bool | None,
    typer.Option("--push/--no-push", help="Push to record.remote. [default: ask in a terminal, else do not]"),
]
FetchOption = Annotated[bool, typer.Option("--fetch/--no-fetch", help="Ask the git remote first.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
PARAMS = Path("params.yaml")
TRIAL = "try"  # folder in paths.work for the parameters of one command
_chosen: list[Path] = []  # folder of the pipeline that `perennial --pipeline` names
log = logging.getLogger(__name__)


def choose(pipeline: str) -> None:
    """Let the command work in the folder of a pipeline; paths stay relative to the working directory."""
    project = Project.find()
    known = {each.name: each for each in project.pipelines()}
    if pipeline not in known:
        names = ", ".join(filter(None, known)) or "none"
        raise ConfigError(
            f"{project.root} has no pipeline {pipeline!r} in {project.root / PIPELINES}; it has: {names}"
        )
    _chosen.append(known[pipeline].folder)


def guarded(command: str, run: Callable[[], None], *, debug: bool = False) -> None:
    """Run a command; an error ends the process with its exit code and a message instead of a traceback."""
    _set_up_output(command)
    file = os.environ.pop(failures.VARIABLE, None)  # not of the programs that this one starts
    try:
        run()
    except (PerennialError, OSError) as error:
        if debug:
            traceback.print_exc()
        failures.tell_starter(file, error, _message(error))
        with suppress(OSError):  # its terminal was closed
            typer.echo(f"perennial {command}: {_message(error)}", err=True)
        raise SystemExit(exit_code(error)) from None
    except Exception as error:
        failures.tell_starter(file, error, _message(error))
        raise


def command(
    app: typer.Typer,
    name: str,
    about: str,
    *,
    hidden: bool = False,
    settable: bool = False,
    epilog: str | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a function as a command: add `--debug` to its options, and report its errors with `guarded`.

    The name of a subcommand, such as `runs show`, has both words. `settable` adds `--set`, which leaves
    params.yaml unchanged. Started in a subfolder of a project, a command works in the project's folder.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(*arguments: Any, debug: bool, changes: list[str] | None = None, **values: Any) -> None:
            def call() -> None:
                given = _at_root(values) if _chosen or values.get("params") == PARAMS else values
                if changes:
                    given["params"] = _with_values(given["params"], dict(map(assignment, changes)))
                function(*arguments, **given)

            guarded(name, call, debug=debug)

        added = {"debug": (False, DebugOption), **({"changes": (None, SetOption)} if settable else {})}
        parameters = [
            inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for option, (default, annotation) in added.items()
        ]
        signature = inspect.signature(function)
        run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *parameters])  # type: ignore[attr-defined]
        run.__annotations__ |= {option: annotation for option, (_, annotation) in added.items()}
        app.command(name.rpartition(" ")[2], cls=Command, help=about, epilog=epilog, hidden=hidden)(run)
        return function

    return register


def _at_root(values: dict[str, Any]) -> dict[str, Any]:
    """Change from a subfolder to the project's folder; adjust the given paths to it."""
    here = Path.cwd()
    folder = _chosen[-1] if _chosen else Project.find(here).folder
    if folder == here:
        return values

    def placed(value: Any) -> Any:
        if isinstance(value, list):
            return [placed(each) for each in value]
        # A text may be a branch or a reason; it is a path only if something has that name.
        is_path = isinstance(value, Path) or (
            isinstance(value, str) and os.sep in value and (here / value).exists()
        )
        return type(value)(here / value) if is_path and value != PARAMS else value

    os.chdir(folder)
    return {name: placed(value) for name, value in values.items()}


def _with_values(params: Path, values: Mapping[str, object]) -> Path:
    """Write a params.yaml for one command: the project's, with other values."""
    file = config.load(params).paths.work / TRIAL / params.name
    text = params.read_text(encoding="utf-8")
    try:
        changed = importlib.import_module("perennial.base.config.edit_params").set_values(text, values)
    except ConfigError as error:
        raise ConfigError("\n".join(f"--set: {line}" for line in str(error).splitlines())) from error
    files.write_bytes(file, changed.text.encode())
    return file


def weights_are_pinned(params: Path) -> bool:
    """Whether a training starts from the weights that pins/weights.json pins, which `--set` can replace.

    Weights that are published by name are fetched for it.
    """
    checked = config.load(params)
    if params.resolve().parent != (checked.paths.work / TRIAL).resolve():
        return True
    weights = importlib.import_module("perennial.data.sources.weights")
    if weights.is_pinned(checked):
        return True
    if weights.by_name(checked):
        importlib.import_module("perennial.data.sources.published_weights").fetch(checked)
    return False


def _set_up_output(command: str) -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # None where closed
            stream.reconfigure(errors="backslashreplace")
    # Lines of a stage carry the time, unless a flow adds its own.
    timed = command in STAGES and process.STARTED_BY not in os.environ
    form = f"{'%(asctime)s ' if timed else ''}{command}: %(message)s"
    logs.to_stderr(form, logging.WARNING, dates="%Y-%m-%d %H:%M:%S")
    logging.getLogger("perennial").setLevel(logging.INFO)


def run_stage(stage: str, params: Path, module: str | None = None, **options: object) -> Any:
    """Run a stage as the only one in its checkout; return its result, or write the failure for the task."""
    checked, values = config.load_with_values(params)
    tie_to_checkout(params)
    outputs.require_outputs(checked.paths, STAGES.keys() & {stage})
    environment.require(stage)
    work = checked.paths.work
    code_digests.require(stage, Project.find().shared("."), work)
    listed = cluster.this_worker()
    number = listed.index if listed else 0
    # The process that started this worker holds the locks of the stage and reports its failure.
    started = process.WORKER_OF in os.environ
    worker = number if number or started else None
    together = stage == "train" and checked.compute.workers > 1 and not started
    with (
        process.interruptible(),
        locks.stage(work, stage, worker, by_dvc=stage in STAGES),
        _failure_written(work, stage, worker),
        process.interruptible(),  # once more, so that a signal is written as a failure
        own_devices(checked, stage, elsewhere=together and checked.compute.engine == "ray") as (own, taken),
    ):
        noted = stage_inputs.note(stage, params, values)
        if worker is None and _prepared(noted, checked):
            kept_results.require_unchanged(noted, checked.paths, own_outputs=True)
            return None
        with nullcontext() if number else run_records.stage(checked, stage):
            if together:
                _train_together(checked, params, taken, clean=bool(options["clean"]))
                result, took = None, None
            else:
                result, took = _run(own, taken, noted, module, number, options)
            kept_results.require_unchanged(noted, checked.paths, own_outputs=worker is None)
        if not number and took is not None:  # workers may share the folder, and the report shows one time
            files.write_json(work / "timings" / f"{stage}.json", {"stage": stage, "seconds": took})
        return result


def _prepared(noted: Inputs, checked: Config) -> bool:
    """Whether an earlier run of a stage has its result for these inputs already, which is then in place."""
    run, by_dvc, work = (
        os.environ.get(run_records.RUN, ""),
        kept_results.BY_DVC in os.environ,
        checked.paths.work,
    )
    recorded.require_others_as_noted(noted, work, by_dvc=by_dvc)
    if run or by_dvc:
        stage_inputs.require_as_first_noted(noted, work, run)
    if not by_dvc:
        return False
    recorded.require_as_recorded(noted)
    if kept_results.take(checked.paths, noted):
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
    with (
        own_components.checked(stage, noted.code if noted.listed else None),
        _followed(own, noted) if stage == "train" and not number else nullcontext(),
    ):
        result = getattr(imported, stage)(own, **options)
        took = time.monotonic() - began
    # Python imports some modules late, perhaps of other versions. An edit of environment/ is named as an edit.
    if not noted.changes():
        environment.require(stage, outcome=f"this changed while {stage} ran, so its result is not recorded")
    return result, took


def _followed(own: Config, noted: Inputs) -> AbstractContextManager[None]:
    """Send the curves of a training to `logging.sinks` while it runs."""
    if not own.logging.sinks:
        return nullcontext()
    sender = importlib.import_module("perennial.reports.sinks.sender")
    return sender.following(noted.file)  # type: ignore[no-any-return]


@contextmanager
def _failure_written(work: Path, stage: str, worker: int | None) -> Iterator[None]:
    """Write an error of the block to a file for the parent process: the task, or the chief worker."""
    failure = work / "failure.json" if worker is None else workers.failure_file(work, worker)
    failure.unlink(missing_ok=True)
    try:
        yield
    except Exception as error:
        files.write_json(failure, {"stage": stage, **failures.document(error, _message(error))})
        raise


def _train_together(checked: Config, params: Path, taken: Lease, *, clean: bool) -> None:
    """Run the training in several processes of this machine, or on the nodes of a Ray cluster."""
    count = checked.compute.workers
    if cluster.VARIABLE in os.environ:
        raise ConfigError(
            f"compute.workers is {count}, but {cluster.named_by()} names the workers already; "
            f"nothing was started; set compute.workers to 1, or unset {cluster.named_by()}"
        )
    arguments = ["train", "--params", str(params), *(["--clean"] if clean else [])]
    if checked.compute.engine == "ray":
        importlib.import_module("perennial.base.distributed.ray_workers").run(arguments, checked)
    else:
        workers.run(arguments, count, taken, checked.paths.work)


@contextmanager
def own_devices(checked: Config, stage: str, *, elsewhere: bool = False) -> Iterator[tuple[Config, Lease]]:
    """Reserve GPUs for a stage whose section of the parameters has `devices`.

    In the parameters of the block, device numbers count among the reserved GPUs. None are reserved for a
    stage that computes on other machines (`elsewhere`).
    """
    name, one = ("evaluate", True) if stage == "watch" else (stage, False)
    section = getattr(checked, name, None)
    devices = getattr(section, "devices", None)
    if (
        elsewhere or section is None or devices is None or (stage == "watch" and devices == "auto")
    ):  # which is one CPU
        yield checked, Lease(devices="cpu:1")
        return
    with lease.leased(devices, checked.compute.gpus, key=f"{name}.devices", name=stage, one=one) as taken:
        own = section.model_copy(update={"devices": taken.devices})
        yield checked.model_copy(update={name: own}), taken


def import_with_devices(module: str, work: Path, taken: Lease, *, needed: bool = True) -> ModuleType:
    """Import a module that needs TensorFlow, or may need it; return GPUs that TensorFlow cannot use."""
    imported = import_with_tensorflow(module, work, needed=needed)
    # Importing TensorFlow was seen to swallow the exception of a signal.
    process.raise_if_signalled()
    tensorflow = sys.modules.get("tensorflow")
    if taken.gpus and tensorflow and not tensorflow.config.list_physical_devices("GPU"):
        log.warning("TensorFlow cannot use GPU %s; see %s", ", ".join(taken.gpus), work / LOG)
        if gpus.LISTED not in os.environ:  # else they are not real
            taken.release()
    return imported


def tie_to_checkout(params: Path) -> None:
    """Refuse to run another checkout's code, and end when the parent process ends."""
    for folder in (Path.cwd(), params.resolve().parent):
        layout.require_own_checkout(folder)
    process.die_with_starter()


def may_push(checked: Config, what: str, *, push: bool | None) -> bool:
    """Whether a command may push: by `--push`, or if a person at a terminal says so.

    The remote is where the project was cloned from, which may be somebody else's.
    """
    access = importlib.import_module("perennial.release.registry.access")
    if push and (wrong := access.misnamed(checked)):
        raise ConfigError(f"--push: {wrong}; nothing was changed")
    if push is not None or (remote := access.remote(checked)) is None:
        return push is not False
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    return typer.confirm(f"Push {what} to {remote}?", err=True)


def output(document: object, text: str | Iterable[str], *, as_json: bool) -> None:
    """Print one JSON document, or text or lines for people."""
    if as_json:
        typer.echo(json.dumps(document, indent=2, allow_nan=False))
    else:
        typer.echo(text if isinstance(text, str) else "\n".join(text))


def _message(error: Exception) -> str:
    """What is wrong, without secrets."""
    if isinstance(error, PerennialError):
        return redacted(str(error))
    if isinstance(error, OSError):
        named = [str(each) for each in (error.filename, error.filename2) if each is not None]
        where = f"{' -> '.join(named)}: " if named else ""
        return redacted(
            f"{where}{error.strerror or error}; the file or folder that it would replace is unchanged; "
            "free space or grant access, then run this again"
        )
    return redacted(f"{type(error).__name__}: {error}")
