"""The command that pins what a run works with and what may change meanwhile."""

import importlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

import typer

from perennial import config
from perennial.cli.runner import PARAMS, JsonOption, ParamsOption, command, print_json
from perennial.config import Config
from perennial.runtime import process

app = typer.Typer()
PinName = Literal["source", "baseline", "weights", "champion"]


@command(app, "pin", "Pin the data, initial weights and champion of the next run.")
def _pin(
    part: Annotated[
        PinName | None,
        typer.Argument(metavar="[PART]", help="source, baseline, weights or champion. [default: all]"),
    ] = None,
    params: ParamsOption = PARAMS,
    *,
    fetch: Annotated[bool, typer.Option("--fetch", help="Ask the remote first who is champion.")] = False,
    as_json: JsonOption = False,
) -> None:
    checked, pinned = config.load(params), {}
    with process.interruptible():
        for name in get_args(PinName) if part is None else (part,):
            pinned[name] = _pinned(checked, name, fetch=fetch)
            if not as_json:
                typer.echo(_line(name, pinned[name]))
    if as_json:
        print_json(pinned)


def _pinned(checked: Config, name: PinName, *, fetch: bool) -> dict[str, Any]:
    """Pin one part; its new content, and for the champion whether that changed."""
    if name == "champion":
        pinned, changed = importlib.import_module("perennial.registry.champion").pin(checked, fetch=fetch)
        return {**pinned.model_dump(), "changed": changed}
    if name == "source":
        pinned = importlib.import_module("perennial.sources.pin").pin(checked)
    elif name == "weights":
        pinned = importlib.import_module("perennial.sources.weights").pin(checked)
    else:
        pinned = importlib.import_module("perennial.sources.previous").pin(checked.paths)
    content: dict[str, Any] = pinned.model_dump()
    return content


def _line(name: PinName, pinned: Mapping[str, Any]) -> str:
    if name == "champion":
        named = f"{pinned['version']} ({pinned['commit'][:10]})" if pinned["version"] else "none yet"
        return f"champion: {named}{'' if pinned['changed'] else ', as before'}"
    if name == "source":
        held = "{url}: {objects:,} objects, {bytes:,} bytes"
        return f"source: {held.format(**pinned) if pinned['url'] else 'no dataset.url'}"
    if name == "weights":
        paths = [f"{each['path']}, {each['bytes']:,} bytes" for each in pinned.values() if each]
        return f"weights: {'; '.join(paths) or 'random'}"
    return f"baseline: {pinned['dataset'] or 'no earlier version of the data'}"
