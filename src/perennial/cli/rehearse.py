"""The command `rehearse`: the pipeline under faults, on a small part of its data."""

import importlib
from pathlib import Path
from typing import Annotated

import typer

from perennial import config, files
from perennial.cli.runner import PARAMS, JsonOption, ParamsOption, command, print_json
from perennial.errors import PerennialError
from perennial.runtime import process

app = typer.Typer()


@command(app, "rehearse", "Run the pipeline under faults, and check what it promises.")
def _rehearse(
    params: ParamsOption = PARAMS,
    *,
    minutes: Annotated[
        float, typer.Option(min=0, max=100_000, help="Time in which faults begin, after the unbroken run.")
    ] = 10,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Choose the same faults, stages and moments as the run of this seed."),
    ] = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this fault, at least once; repeatable. [default: all]"),
    ] = None,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the result as an HTML page, too.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    checked = config.load(params)
    process.require_own_checkout(Path.cwd())
    module = importlib.import_module("perennial.rehearsal.rehearse")
    report = importlib.import_module("perennial.rehearsal.report")
    with process.interruptible():
        result = module.rehearse(checked, minutes=minutes, seed=seed, only=fault or ())
    if page is not None:
        files.write_bytes(page, report.page(result, checked.record.artifact).encode())
    if as_json:
        print_json(report.document(result))
    else:
        typer.echo("\n".join(report.lines(result)))
    if not result.tried:
        raise PerennialError("no fault hit in this time; give it more --minutes")
    if result.broken:
        raise PerennialError(
            f"{len(result.broken)} of {len(result.tried)} faults broke a promise; what they left is in "
            f"{result.folder}; the same faults again: `perennial rehearse --seed {result.seed}`"
        )
