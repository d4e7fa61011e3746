"""The command of the work pools."""

import importlib

import typer

from perennial.cli.runner import command

app = typer.Typer()


@command(app, "flow-run", "Prepare the checkout and the packages of a flow run, then run it.", hidden=True)
def _flow_run() -> None:
    importlib.import_module("perennial.worker.flow_run").start()
