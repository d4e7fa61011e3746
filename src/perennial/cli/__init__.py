"""The command line: a command for every stage, and further commands."""

import functools
import importlib
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from perennial.cli.panels import HIDDEN, LISTED, PANELS


class Commands(TyperGroup):
    """All commands in panels. The module of a command is imported when it is used, so that `--help` is fast."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """The names of all commands, panel by panel."""
        return list(LISTED)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """The command of a name; for an unknown one all are loaded, so that the nearest is suggested."""
        module = LISTED[cmd_name].module if cmd_name in LISTED else HIDDEN.get(cmd_name)
        for each in [module] if module else {each.module for each in LISTED.values()}:
            if cmd_name not in self.commands:
                imported = importlib.import_module(f"{__name__}.{each}")
                self.commands.update(typer.main.get_group(imported.app).commands)
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write the panels, without importing a command."""
        width = max(map(len, LISTED))
        for panel, commands in PANELS.items():
            with formatter.section(panel):
                formatter.write_dl([(f"{name:<{width}}", each.about) for name, each in commands.items()])


app = typer.Typer(
    cls=Commands,
    help="Retrain image classifiers, and rebuild any version of a model from a git revision.",
    epilog="Start with `perennial new shop --photos FOLDER`, `cd shop`, `perennial run`, `perennial predict`. "
    "The champion is the model in use; the gate decides whether a new one replaces it. "
    "Exit codes: 0 done, 2 wrong parameters, 3 wrong data, 4 not good enough, 75 interrupted, 1 anything else.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def all_commands() -> dict[str, Any]:
    """Every command with its options, in the order of the panels."""
    group: Any = typer.main.get_command(app)
    return {name: group.get_command(None, name) for name in LISTED}


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        from perennial.base.project import source_code

        typer.echo(f"perennial {metadata.version(source_code.DISTRIBUTION)}")
        raise typer.Exit


def _choose(pipeline: str | None) -> None:
    if pipeline is not None:
        from perennial.cli.command import choose_pipeline, guarded

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
        from perennial.base import logs
        from perennial.base.errors import PerennialError

        logs.write_traceback()
        sys.exit(PerennialError.exit_code)
