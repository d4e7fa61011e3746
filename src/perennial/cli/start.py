"""The command that writes parameters for own images."""

import importlib
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perennial.cli.runner import PARAMS, JsonOption, ParamsOption, assignment, command, print_json
from perennial.runtime import process

if TYPE_CHECKING:
    from perennial.start.start import Started

app = typer.Typer()


@command(app, "start", "Write params.yaml for your images, and say why.")
def _start(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder with one folder per class, or an archive of one.")
    ],
    params: ParamsOption = PARAMS,
    *,
    assign: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Choose this value yourself; repeatable."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a params.yaml that git does not have; it is kept beside.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    values = dict(map(assignment, assign or ()))
    with process.interruptible():
        module = importlib.import_module("perennial.start.start")
        done = module.start(folder, params, values, force=force)
    if as_json:
        print_json(done.as_json())
    else:
        _print(done)


def _print(done: "Started") -> None:
    options = importlib.import_module("perennial.config.options")
    typer.echo(f"{done.images.path}: {done.images.described()}")
    typer.echo(f"this machine: {done.machine.described()}\n")
    for each in done.choices:
        typer.echo(f"{each.key}: {options.scalar(each.value)}  # {each.reason}")
    for key, value in done.values.items():
        typer.echo(f"{key}: {options.scalar(value)}  # yours")
    typer.echo("")
    if done.weights_missing:
        missing = done.weights_missing
        typer.echo(f"ImageNet weights would make a better model, but could not be fetched: {missing}\n")
    typer.echo(f"wrote {done.file}" + (f"; the old file is {done.kept}" if done.kept else ""))
    time = "a minute" if done.minutes <= 1 else f"{math.ceil(done.minutes)} minutes"
    typer.echo(f"next: make run (the training takes about {time} here)")
