"""What every command has: common options, its log, its output, its exit code, and the folder it works in."""

import io
import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from perennial.base import failures, logs
from perennial.base.errors import ConfigError, PerennialError, exit_code, redacted
from perennial.base.layout import PIPELINES, Project
from perennial.base.processes import process
from perennial.base.project.stages import STAGES
from perennial.cli import changed_params
from perennial.cli.arguments import ExplainingCommand, key_and_value

PARAMS = Path("params.yaml")
_chosen: list[Path] = []  # folder of the pipeline that `perennial --pipeline` names


class PathOrUrl(str):
    """The value of an option that takes a local path, relative to where the command was typed, or a URL."""

    __slots__ = ()


ParamsOption = Annotated[Path, typer.Option("--params", help="Parameters file.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Use another value for this command only; repeatable."),
]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
FetchOption = Annotated[bool, typer.Option("--fetch/--no-fetch", help="Ask the git remote first.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


class Command(ExplainingCommand):
    """A command with `--debug`. Started in a subfolder of a project, it works in the project's folder."""

    settable = False

    def __init__(self, *arguments: Any, **values: Any) -> None:
        """Add the common options to those of the command's function."""
        super().__init__(*arguments, **values)
        debug, changes = typer.main.get_command(_COMMON).params
        self.params += [debug, changes] if self.settable else [debug]

    def invoke(self, ctx: Any) -> None:
        """Run the command; an error ends the process with its exit code."""
        debug, changes = ctx.params.pop("debug"), ctx.params.pop("changes", None)

        def run() -> None:
            if _chosen or ctx.params.get("params") == PARAMS:
                _enter_project(ctx.params)
            if changes:
                values = dict(map(key_and_value, changes))
                ctx.params["params"] = changed_params.write(ctx.params["params"], values)
            super(Command, self).invoke(ctx)

        guarded(ctx.command_path.partition(" ")[2], run, debug=debug)


class SettableCommand(Command):
    """A command with `--set`, which leaves params.yaml unchanged."""

    settable = True


_COMMON = typer.Typer(add_completion=False)


@_COMMON.command()
def _common(*, debug: DebugOption = False, changes: SetOption = None) -> None:
    """Hold the options that `Command` adds."""


def command(
    app: typer.Typer, name: str, about: str, *, settable: bool = False, **shown: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a function as a command; `shown` is its epilog, or whether it is hidden."""
    return app.command(name, cls=SettableCommand if settable else Command, help=about, **shown)


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


def _enter_project(values: dict[str, Any]) -> None:
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


def guarded(command: str, run: Callable[[], None], *, debug: bool = False) -> None:
    """Run a command; an error ends the process with its exit code and a message instead of a traceback."""
    _set_up_output(command)
    file = os.environ.pop(failures.VARIABLE, None)  # not of the programs that this one starts
    try:
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


def error_message(error: Exception) -> str:
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


def output(document: object, text: str | Iterable[str], *, as_json: bool) -> None:
    """Print one JSON document, or text or lines for people."""
    if as_json:
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
