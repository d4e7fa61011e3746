"""The commands of deployments: start a run, look at all, and what a work pool runs for each."""

import dataclasses
import importlib
import os
import sys
from typing import Annotated, Literal

import typer

from perennial import config
from perennial.cli.runner import PARAMS, JsonOption, ParamsOption, assignment, command, print_json

app = typer.Typer()


@command(app, "run", "Start a run of a deployment.")
def _run(  # noqa: PLR0913 - each option is one
    name: Annotated[str, typer.Argument(metavar="NAME", help="Such as nightly, or FLOW/NAME.")],
    assign: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Value of a key of params.yaml for this run; repeatable."
        ),
    ] = None,
    rev: Annotated[
        str | None, typer.Option(help="Branch, tag or commit to run. [default: the default branch]")
    ] = None,
    *,
    push: Annotated[
        bool | None,
        typer.Option("--push/--no-push", help="Commit and push. [default: the deployment's]"),
    ] = None,
    publish_to: Annotated[
        str | None, typer.Option(metavar="FOLDER|URL", help="Publish there instead of to publish.url.")
    ] = None,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Kept in the record and the commit.")
    ] = None,
    when_busy: Annotated[
        Literal["end", "wait"] | None, typer.Option(help="While another run of the pipeline is at work.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Wait for its end, and exit with its code.")] = False,
    as_json: JsonOption = False,
) -> None:
    start = importlib.import_module("perennial.worker.start")
    overrides = dict(map(assignment, assign or ()))
    if rev is None:  # another revision may have other keys
        start.require_options(overrides)
    asked = {
        "overrides": overrides or None,
        "rev": rev,
        "push": push,
        "publish_to": publish_to,
        "reason": reason,
        "when_busy": when_busy,
    }
    server = importlib.import_module("perennial.worker.server").connect()
    run = start.start(server, name, {key: value for key, value in asked.items() if value is not None})
    if watch:
        run = start.follow(server, run, lambda line: typer.echo(line, err=True))
    if as_json:
        print_json(dataclasses.asdict(run))
    else:
        typer.echo(f"{run.deployment}: run {run.name} ({run.id}): {run.state}")
    sys.exit(run.exit_code)


@command(app, "status", "Print the champion, the last and next runs, and problems.")
def _status(
    params: ParamsOption = PARAMS,
    *,
    fetch: Annotated[bool, typer.Option("--fetch", help="Ask git's remote first.")] = False,
    as_json: JsonOption = False,
) -> None:
    status = importlib.import_module("perennial.worker.status")
    found = status.look(config.load(params), os.environ, fetch=fetch)
    print_json(found) if as_json else typer.echo("\n".join(status.lines(found)))


@command(app, "flow-run", "Prepare the checkout and the packages of a flow run, then run it.", hidden=True)
def _flow_run() -> None:
    importlib.import_module("perennial.worker.flow_run").start()
