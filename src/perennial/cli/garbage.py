"""The command `gc`: what runs, environments, caches, remote and checkpoints hold, and what can go."""

import importlib
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from perennial import config, files
from perennial.cli.runner import PARAMS, JsonOption, ParamsOption, command, print_json
from perennial.runtime import process

app = typer.Typer()
UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


@command(app, "gc", "List what takes space; with --yes, remove what nothing needs.")
def _gc(
    params: ParamsOption = PARAMS,
    *,
    days: Annotated[
        float, typer.Option(min=0, max=36500, help="What was made or used in these days stays.")
    ] = 14,
    yes: Annotated[bool, typer.Option("--yes", help="Remove; without it, only list.")] = False,
    as_json: JsonOption = False,
) -> None:
    checked = config.load(params)
    module = importlib.import_module("perennial.garbage.collect")
    with process.interruptible():
        rows = list(module.collect(checked, files.home(), days=days, yes=yes))
    total = sum(row.garbage_bytes for row in rows)
    if as_json:
        print_json({"removed": yes, "days": days, "bytes": total, "places": list(map(asdict, rows))})
    else:
        _print(rows, total, yes=yes)


def _short(where: str) -> str:
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() fails for a user without one
    return f"~{where.removeprefix(home)}" if where.startswith(f"{home}/") else where


def _print(rows: Sequence[Any], total: int, *, yes: bool) -> None:
    verb = "removed" if yes else "unneeded"
    typer.echo(f"{'':<16} {'holds':>19}  {verb:>19}")
    for row in rows:
        held, gone = _amount(row.number, row.bytes), _amount(row.garbage_number, row.garbage_bytes)
        kept = f"; {row.kept}" if row.kept else ""
        typer.echo(f"{row.what:<16} {held:>19}  {gone:>19}  {_short(row.where)}{kept}")
    hint = "" if yes or not total else "; `perennial gc --yes` removes it"
    typer.echo(f"{verb}: {total:,} bytes{hint}")


def _amount(number: int, size: float) -> str:
    unit, factor = next(((unit, factor) for unit, factor in UNITS if size >= factor), ("B", 1))
    return f"{number:,}, {size / factor:,.1f} {unit}" if factor > 1 else f"{number:,}, {size:,.0f} B"
