"""The command that pins what a run works with and what may change meanwhile."""

import importlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from perennial import config
from perennial.cli.runner import PARAMS, JsonOption, ParamsOption, command, print_json
from perennial.config import Config
from perennial.runtime import process

app = typer.Typer()


class PinName(StrEnum):
    """What is pinned."""

    SOURCE = "source"
    BASELINE = "baseline"
    WEIGHTS = "weights"
    CHAMPION = "champion"


@command(app, "pin", "Pin the data, initial weights and champion of the next run.")
def _pin(
    parts: Annotated[
        list[PinName] | None,
        typer.Argument(metavar="PART", help="source, baseline, weights or champion. [default: all]"),
    ] = None,
    params: ParamsOption = PARAMS,
    *,
    fetch: Annotated[bool, typer.Option("--fetch", help="Ask the remote first who is champion.")] = False,
    as_json: JsonOption = False,
) -> None:
    checked, pinned = config.load(params), {}
    with process.interruptible():
        for name in parts or PinName:
            pinned[name] = _pinned(checked, name, fetch=fetch)
            if not as_json:
                typer.echo(_line(name, pinned[name]))
    if as_json:
        print_json(pinned)


def _pinned(checked: Config, name: PinName, *, fetch: bool) -> dict[str, Any]:
    """Pin one part; its new content, and for the champion whether that changed."""
    if name == PinName.CHAMPION:
        pinned, changed = importlib.import_module("perennial.registry.champion").pin(checked, fetch=fetch)
        return {**pinned.model_dump(), "changed": changed}
    if name == PinName.SOURCE:
        pinned = importlib.import_module("perennial.sources.pin").pin(checked)
    elif name == PinName.WEIGHTS:
        pinned = importlib.import_module("perennial.sources.weights").pin(checked)
    else:
        pinned = importlib.import_module("perennial.sources.previous").pin(checked.paths)
    content: dict[str, Any] = pinned.model_dump()
    return content


def _line(name: PinName, pinned: Mapping[str, Any]) -> str:
    if name == PinName.CHAMPION:
        named = f"{pinned['version']} ({pinned['commit'][:10]})" if pinned["version"] else "none yet"
        return f"champion: {named}{'' if pinned['changed'] else ', as before'}"
    if name == PinName.SOURCE:
        held = "{url}: {objects:,} objects, {bytes:,} bytes"
        return f"source: {held.format(**pinned) if pinned['url'] else 'no dataset.url'}"
    if name == PinName.WEIGHTS:
        paths = [_weights(each) for each in pinned.values() if each]
        return f"weights: {'; '.join(paths) or 'random'}"
    return f"baseline: {pinned['dataset'] or 'no earlier version of the data'}"


def _weights(pinned: Mapping[str, Any]) -> str:
    return f"{pinned['path']}, {pinned['file'] or format(pinned['bytes'], ',') + ' bytes'}"
