"""The command line: a command for every stage, and further commands."""

import functools
import importlib
import sys
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from perennial.base.project.stage_table import STAGES


class Listed(NamedTuple):
    """A command in a panel."""

    about: str  # its help
    page: str  # of `perennial docs`
    module: str  # of this package; it is imported when the command is used


PANELS: Mapping[str, Mapping[str, Listed]] = {
    "Start": {
        "new": Listed("Make a project for your images, or add a pipeline.", "tutorial", "project_commands"),
        "run": Listed("Run all stages here, or start a run of a deployment.", "start-a-run", "run_commands"),
        "report": Listed("Summarize the last run, and write its page.", "report", "commands"),
        "predict": Listed("Classify images.", "predict", "commands"),
        "serve": Listed("Serve a model over HTTP, with a page and metrics.", "serve", "serve_command"),
        "status": Listed("Show the model in use, next and last runs, problems.", "operations", "run_commands"),
        "config": Listed("Check, print or change params.yaml; apply a preset.", "options", "commands"),
        "docs": Listed("Read the documentation, offline.", "index", "docs_command"),
        "models": Listed("List the networks: size, published accuracy, weights.", "networks", "model_commands"),
    },
    "Versions": {
        "versions": Listed("List the versions of the model, newest first.", "versions", "version_commands"),
        "promote": Listed("Make this model a version and the champion.", "versions", "version_commands"),
        "approve": Listed("List models that wait for a person; decide on one.", "approval", "version_commands"),
        "rollback": Listed("Make an earlier version the champion again.", "versions", "version_commands"),
        "why": Listed("Explain why two scores differ.", "why", "reproduce_commands"),
        "runs": Listed("List and compare runs, or write a page of them.", "runs", "run_commands"),
        "rebuild": Listed("Train a version again, and compare every digest.", "rebuild", "reproduce_commands"),
        "publish": Listed("Publish a model that passed the gate, or roll back.", "publish", "commands"),
        "fetch": Listed("Fetch a published version, and verify every file.", "publish", "commands"),
        "verify": Listed("Compare a published model with what git records.", "verify", "reproduce_commands"),
    },
    "Data": {
        "start": Listed("Write params.yaml for your images, and print why.", "own-images", "project_commands"),
        "show": Listed("Print a record, or save its image.", "validate", "commands"),
        "label": Listed("Label kept images, and propose them on a branch.", "label", "label_commands"),
        "seen": Listed("List the versions that learned from an image.", "forget", "lineage_commands"),
        "forget": Listed("Remove an image, and exclude it from later versions.", "forget", "lineage_commands"),
        "audit": Listed("Check that data and models of versions are intact.", "audit", "object_commands"),
        "gc": Listed("List what takes space; with --yes, remove it.", "garbage", "object_commands"),
        "remote": Listed("Say where DVC keeps data and models.", "s3", "object_commands"),
    },
    "Production": {
        "deploy": Listed("Register the schedules on the Prefect server.", "deployments", "project_commands"),
        "worker": Listed("Work for the deployments of this project.", "workers", "project_commands"),
        "monitor": Listed("Look for a reason to retrain; test the alerts.", "monitor", "run_commands"),
        "tune": Listed("Search settings by validation scores; keep the best.", "tune", "project_commands"),
        "cross-validate": Listed("Score and check all images.", "cross-validate", "project_commands"),
        "test": Listed("Run all stages once on a small sample, elsewhere.", "components", "project_commands"),
        "rehearse": Listed("Run the pipeline under faults.", "rehearse", "reproduce_commands"),
        "add": Listed("Install an extra, such as tune or onnx.", "components", "project_commands"),
        "upgrade": Listed("Move the project to another version of perennial.", "upgrades", "project_commands"),
    },
    "Stages, for scripts": {
        **{name: Listed(stage.about, stage.page, "stage_commands") for name, stage in STAGES.items()},
        "pin": Listed("Note which data, weights and champion a run uses.", "how-it-works", "version_commands"),
        "record": Listed("Commit and push what a run made.", "versions", "version_commands"),
    },
}
LISTED = {name: each for commands in PANELS.values() for name, each in commands.items()}
HIDDEN = {"flow-run": "run_commands"}


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
