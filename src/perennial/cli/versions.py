"""The commands of the registry: versions, their champion, and the records of runs."""

import importlib
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from perennial import config
from perennial.cli.runner import PARAMS, JsonOption, ParamsOption, command, print_json, tie_to_checkout
from perennial.errors import ConfigError
from perennial.runtime import process

app = typer.Typer()


@command(app, "versions", "List the registered versions, the newest first.")
def _versions(
    params: ParamsOption = PARAMS,
    *,
    fetch: Annotated[bool, typer.Option("--fetch", help="Ask the remote first.")] = False,
    as_json: JsonOption = False,
) -> None:
    module = importlib.import_module("perennial.registry.versions")
    registry = module.open_registry(config.load(params), fetch=fetch).registry
    listed = module.listing(registry)
    if as_json:
        print_json(listed)
        return
    for each in listed:
        scored = "-" if each["accuracy"] is None else f"{each['accuracy']:.4f}"
        champion = "  champion" if each["champion"] else ""
        typer.echo(f"{each['version']:<10} {each['commit'][:10]}  {each['date']}  {scored:>6}{champion}")
    if not listed:
        typer.echo(f"{registry.artifact} has no version yet; `perennial promote` registers one")


@command(app, "promote", "Register this checkout's model as champion, if it is promoted.")
def _promote(
    params: ParamsOption = PARAMS,
    *,
    force: Annotated[
        str | None, typer.Option(metavar="NAME", help="Promote a rejected model; NAME is who decides it.")
    ] = None,
    because: Annotated[str | None, typer.Option(metavar="TEXT", help="With --force: the reason.")] = None,
    as_json: JsonOption = False,
) -> None:
    if (force is None) != (because is None) or "" in {force, because}:
        raise ConfigError("--force NAME and --because TEXT go together: both are recorded")
    checked = config.load(params)
    tie_to_checkout(params)
    module = importlib.import_module("perennial.registry.record")
    forced = module.Forced(by=force, because=because) if force else None
    with process.interruptible():
        done = module.promote(checked, f"promote-{datetime.now(UTC):%Y%m%dT%H%M%SZ}", forced)
    print_json(asdict(done)) if as_json else typer.echo(done.message)


@command(app, "rollback", "Make an earlier version the champion again.")
def _rollback(
    version: Annotated[
        str | None, typer.Argument(metavar="[VERSION]", help="Such as v0.0.3. [default: the champion before]")
    ] = None,
    params: ParamsOption = PARAMS,
    *,
    as_json: JsonOption = False,
) -> None:
    checked = config.load(params)
    module = importlib.import_module("perennial.registry.champion")
    with process.interruptible():
        target, moved = module.rollback(checked, version)
    if as_json:
        print_json({"version": target.name, "commit": target.commit, "moved": moved})
    else:
        typer.echo(f"{target.name} is champion" if moved else f"{target.name} is champion already")


@command(app, "record", "Commit and push what RUN made, as deployments do at their end.")
def _record(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Name of the run.")],
    params: ParamsOption = PARAMS,
    *,
    as_json: JsonOption = False,
) -> None:
    checked = config.load(params)
    tie_to_checkout(params)
    module = importlib.import_module("perennial.registry.record")
    with process.interruptible():
        done = module.record(checked, run)
    print_json(asdict(done)) if as_json else typer.echo(f"{done.outcome}: {done.message}")
