"""What every command has: common options, its log, its output, its exit code, and the folder it works in."""

import gc
import io
import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from perennial.base import config, documents, failures, files, layout, logs
from perennial.base.config import Config
from perennial.base.config.fields import shown
from perennial.base.errors import ConfigError, PerennialError, exit_code, redacted
from perennial.base.layout import PIPELINES, Project
from perennial.base.processes import process
from perennial.base.project.stage_table import STAGES
from perennial.base.stage_state import environment, recorded
from perennial.cli import LISTED
from perennial.cli.option_types import PARAMS, DebugOption, JsonOption, PathOrUrl, typed

_chosen: list[Path] = []  # folder of the pipeline that `perennial --pipeline` names
_as_json: ContextVar[bool] = ContextVar("as_json", default=False)  # whether the command prints JSON
FOLDER = "try"  # in paths.work
# They end in their own way, or become another program, which inherits what the shell ignores.
OWN_SIGNALS = ("serve", "label", "run", "deploy", "worker", "flow-run")
# They are about the perennial that is installed, not about a project's, or stand before a command.
OUTSIDE = ("new", "docs", "upgrade", "--pipeline")


def key_and_value(text: str) -> tuple[str, object]:
    """The key and the value of `KEY=VALUE`; the value is YAML 1.2, as in params.yaml."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise ConfigError(f"--set takes KEY=VALUE, such as train.epochs=2, got {shown(text)}")
    try:
        return key.strip(), documents.parse_yaml(value)
    except ValueError as error:
        raise ConfigError(f"--set {key.strip()}: the value is not valid YAML, got {shown(value)}") from error


def option_object(option: str, text: str) -> dict[str, Any]:
    """Parse the value of an option that takes a JSON object."""
    try:
        return dict(documents.parse_json(text))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{option} must be a JSON object: {error}") from error


def exclusive(**options: object) -> None:
    """Refuse two options of which only one would count; they are named as in Python."""
    given = [f"--{name}" for name, value in options.items() if value not in ([], None) and value is not False]
    if len(given) > 1:
        raise ConfigError(f"{given[0]} and {given[1]} exclude each other; leave one out")


class Command(TyperCommand):
    """A command with `--debug`, and `--set` for a stage; in a subfolder it works in the project's folder."""

    prints_json = False

    def __init__(self, *arguments: Any, **values: Any) -> None:
        """Add the common options to those of the command's function."""
        super().__init__(*arguments, **values)
        as_json, debug, changes = typer.main.get_command(_COMMON).params
        own = [as_json] if self.prints_json else []
        self.params += [*own, debug, changes] if self.name in STAGES else [*own, debug]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments of a process; an unknown one may be meant as a key of params.yaml."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # of the library below Typer
            if hasattr(error, "possibilities") or "unexpected extra" in getattr(error, "message", ""):
                own = any("--set" in parameter.opts for parameter in self.params)
                how = "--set" if own else "perennial config --set"
                error.message += f". A key of params.yaml is set by `{how} KEY=VALUE`"  # type: ignore[attr-defined]
            raise

    def invoke(self, ctx: Any) -> None:
        """Run the command; an error ends the process with its exit code."""
        debug, as_json = ctx.params.pop("debug"), ctx.params.pop("as_json", False)
        changes = ctx.params.pop("changes", None)

        def run() -> None:
            if _chosen or ctx.params.get("params") == PARAMS:
                enter_project(ctx.params)
            if changes:
                values = dict(map(key_and_value, changes))
                ctx.params["params"] = _changed_params(ctx.params["params"], values)
            super(Command, self).invoke(ctx)

        guarded(ctx.command_path.partition(" ")[2], run, debug=debug, as_json=as_json)


class JsonCommand(Command):
    """A command with `--json`: `output` prints its result."""

    prints_json = True


_COMMON = typer.Typer(add_completion=False)


@_COMMON.command()
def _common(
    *,
    as_json: JsonOption = False,
    debug: DebugOption = False,
    changes: list[str] | None = typed("--set", "For this command only; repeatable.", metavar="KEY=VALUE"),
) -> None:
    """Hold the options that `Command` adds."""


def command(
    app: typer.Typer, name: str, about: str | None = None, *, epilog: str = "", json: bool = True, **shown: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a function as a command; the panels tell about most of them. `shown`: whether it is hidden."""
    if about is None:
        if name not in LISTED:
            raise LookupError(f"{name} is not listed in PANELS of cli/__init__.py, and gives no `about`")
        about, page, _ = LISTED[name]
        epilog = f"{epilog} More: `perennial docs {page}`.".lstrip()
    return app.command(name, cls=JsonCommand if json else Command, help=about, epilog=epilog, **shown)


def choose_pipeline(pipeline: str) -> None:
    """Let the command work in the folder of a pipeline; paths stay relative to the working directory."""
    project = Project.find()
    known = {each.name: each for each in project.pipelines()}
    if pipeline not in known:
        names = ", ".join(filter(None, known)) or "none"
        raise ConfigError(
            f"{project.root} has no pipeline {pipeline!r} in {project.root / PIPELINES}; it has: {names}"
        )
    _chosen.append(known[pipeline].folder)


def enter_project(values: dict[str, Any]) -> None:
    """Change from a subfolder to the project's folder; adjust the given paths to it."""
    here = Path.cwd()
    folder = _chosen[-1] if _chosen else Project.find(here).folder
    if folder == here:
        return

    def placed(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return list(map(placed, value))
        if isinstance(value, Path) and value != PARAMS:
            return here / value
        if isinstance(value, PathOrUrl) and "://" not in value and value != "-":
            return PathOrUrl(here / value)
        return value

    values.update({name: placed(value) for name, value in values.items()})
    os.chdir(folder)


def _enter_environment(root: Path) -> None:
    """Go on as the `perennial` in a project's `.venv`, if this one was installed for all projects."""
    own = layout.source(root)  # in `dvc exp run --temp`, that of DVC's copy of the checkout
    if recorded.BY_DVC in os.environ and own and not own.samefile(layout.PACKAGE):
        variables = {**os.environ, "PYTHONPATH": f"{own.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        os.execve(sys.executable, [sys.executable, "-m", "perennial", *sys.argv[1:]], variables)  # noqa: S606
    python, lock = root / ".venv" / "bin" / "python", root / environment.OWN
    here, prefix = python.parents[1].resolve(), Path(sys.prefix).resolve()
    activated = os.environ.get("VIRTUAL_ENV") == sys.prefix or Path(sys.argv[0]).name == "__main__.py"
    if activated or layout.running_source() or here == prefix or not (python.exists() and lock.is_file()):
        return
    named = next(iter(environment.pinned_versions(lock).values()), ("",))
    if any(here.glob(f"lib/python*/site-packages/perennial_ml-{named[0]}.dist-info")):  # else it is older
        os.execv(python, [str(python), "-m", "perennial", *sys.argv[1:]])  # noqa: S606 - no shell is wanted


def guarded(command: str, run: Callable[[], None], *, debug: bool = False, as_json: bool = False) -> None:
    """Run a command; an error ends the process with its exit code and a message instead of a traceback."""
    if command not in OUTSIDE:
        _enter_environment(Project.find().root)
    _set_up_output(command)
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
    before = _as_json.set(as_json)
    file = os.environ.pop(failures.VARIABLE, None)  # not of the programs that this one starts
    try:
        with nullcontext() if command in OWN_SIGNALS else process.interruptible():
            run()
    except (PerennialError, OSError) as error:
        if debug:
            traceback.print_exc()
        failures.tell_starter(file, error, error_message(error))
        with suppress(OSError):  # its terminal was closed
            typer.echo(f"perennial {command}: {error_message(error)}", err=True)
        raise SystemExit(exit_code(error)) from None
    except Exception as error:
        failures.tell_starter(file, error, error_message(error))
        raise
    finally:
        _as_json.reset(before)


def error_message(error: Exception) -> str:
    """What is wrong, without secrets."""
    if isinstance(error, PerennialError):
        return redacted(str(error))
    if isinstance(error, OSError):
        named = [str(each) for each in (error.filename, error.filename2) if each is not None]
        where = f"{' -> '.join(named)}: " if named else ""
        no_locks = error.errno in failures.NO_LOCKS
        remedy = "use a disk that has locks" if no_locks else "free space or grant access"
        kept = "the file or folder that it would replace is unchanged"
        return redacted(f"{where}{error.strerror or error}; {kept}; {remedy}, then run this again")
    return redacted(f"{type(error).__name__}: {error}")


def wants_json() -> bool:
    """Whether `--json` was given."""
    return _as_json.get()


def output(document: object, text: str | Iterable[str]) -> None:
    """Print the result of a command: with `--json` one document, else text or lines for people."""
    if wants_json():
        typer.echo(json.dumps(document, indent=2, allow_nan=False))
    else:
        typer.echo(text if isinstance(text, str) else "\n".join(text))


def _set_up_output(command: str) -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # None where closed
            stream.reconfigure(errors="backslashreplace")
    # Lines of a stage carry the time, unless a flow adds its own.
    timed = command in STAGES and process.STARTED_BY not in os.environ
    form = f"{'%(asctime)s ' if timed else ''}{command}: %(message)s"
    logs.to_stderr(form, logging.WARNING, dates="%Y-%m-%d %H:%M:%S")
    logging.getLogger("perennial").setLevel(logging.INFO)


def _changed_params(params: Path, values: Mapping[str, object]) -> Path:
    """Write a params.yaml with other values of some keys beside the work of the project."""
    from perennial.base.params import edit_params

    file = config.load(params).paths.work / FOLDER / params.name
    try:
        changed = edit_params.set_values(params.read_text(encoding="utf-8"), values)
    except ConfigError as error:
        raise ConfigError("\n".join(f"--set: {line}" for line in str(error).splitlines())) from error
    files.write_bytes(file, changed.text.encode())
    return file


def weights_are_pinned(params: Path) -> bool:
    """Whether a training starts from the weights that pins/weights.json pins, which `--set` can replace.

    Weights that are published by name are fetched for it.
    """
    from perennial.data.sources import published_weights, weights

    checked = config.load(params)
    if params.resolve().parent != (checked.paths.work / FOLDER).resolve() or weights.is_pinned(checked):
        return True
    if weights.by_name(checked):
        published_weights.fetch(checked)
    return False


def may_push(checked: Config, what: str, *, push: bool | None) -> bool:
    """Whether a command may push: by `--push`, or if a person at a terminal says so.

    The remote is where the project was cloned from, which may be somebody else's.
    """
    from perennial.release.registry import access

    if push and (wrong := access.misnamed(checked)):
        raise ConfigError(f"--push: {wrong}; nothing was changed")
    if push is not None or (remote := access.remote(checked)) is None:
        return push is not False
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    return typer.confirm(f"Push {what} to {remote}?", err=True)
