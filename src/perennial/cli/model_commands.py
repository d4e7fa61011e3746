"""`perennial models`: the networks, their size, published accuracy and weights."""

import difflib
from collections.abc import Sequence
from typing import Any

import typer

from perennial.base import config
from perennial.base.config import networks
from perennial.base.config.fields import is_component
from perennial.base.config.networks import NETWORKS, network_name
from perennial.base.errors import ConfigError
from perennial.base.layout import Project
from perennial.base.processes.tensorflow import import_with_tensorflow
from perennial.base.project import own_components
from perennial.cli.command import command, output
from perennial.cli.option_types import PARAMS, argument

app = typer.Typer(rich_markup_mode=None)
FACTS = (
    "name", "parameters", "image_size", "channels", "preprocessing", "imagenet_top_1", "weights", "laptop"
)  # fmt: skip
SIDE, CLASSES, GRAY = 32, 10, ("digits", "mnist")  # of the images and data of which nothing is known
LIGHT = (*networks.SMALL, "mobilenet_", "efficientnet_v2_b0")  # up to 0.7 billion multiply-adds an image


@command(app, "models")
def _models(names: list[str] | None = argument("Networks to list.", default=None, metavar="NETWORK")) -> None:
    names = [network_name(name) for name in names or ()]
    for name in names:
        if is_component(name):
            own_components.require({"model": {"name": name}}, Project.find().root)
        elif name not in NETWORKS:
            near = difflib.get_close_matches(name, NETWORKS, n=1)
            advice = f"did you mean {near[0]}?" if near else "`perennial models` lists all"
            raise ConfigError(f"there is no network {name!r}; {advice}")
    chosen = names or (*NETWORKS, *_own())
    listed = [_own_facts(name) if is_component(name) else _facts(name) for name in chosen]
    output(listed, _table(listed))


def _own() -> list[str]:
    """The network of the project itself that its params.yaml names, if it names one."""
    if not PARAMS.is_file():
        return []
    name = config.load(PARAMS).model.name
    return [name] if is_component(name) else []


def _own_facts(name: str) -> dict[str, Any]:
    """The facts about a network of the project itself: built for the images of params.yaml."""
    checked = config.load(PARAMS)
    size = checked.preprocessing.image_size or config.IMAGE_SIZES.get(checked.dataset.name, SIDE)
    channels = 1 if checked.preprocessing.grayscale or checked.dataset.name in GRAY else 3
    architecture = import_with_tensorflow("perennial.model.models", checked.paths.work).named(name)
    options = checked.model.model_copy(update={"name": name})
    built = architecture.build((size, size, channels), CLASSES, options)
    facts = (name, built.count_params(), size, channels, architecture.preprocessing, None, None, False)
    return dict(zip(FACTS, facts, strict=True))


def _facts(name: str) -> dict[str, Any]:
    own = NETWORKS[name]
    weights, light = networks.BY_NAME if name in networks.PRETRAINED else None, name.startswith(LIGHT)
    facts = (name, own.parameters, own.image_size, own.channels, own.preprocessing, own.top_1, weights, light)
    return dict(zip(FACTS, facts, strict=True))


def _table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [f"{'network':<24}{'parameters':>12} {'image':>11} {'ImageNet':>9}  {'preprocessing':<17}weights"]
    for row in rows:
        size = "{image_size}x{image_size}x{channels}".format(**row)
        top = "" if row["imagenet_top_1"] is None else f"{row['imagenet_top_1']:.1f} %"
        line = f"{row['name']:<24}{row['parameters']:>12,} {size:>11} {top:>9}  {row['preprocessing']:<17}"
        line += f"{row['weights'] or '':<9}" + ("suits a laptop" if row["laptop"] else "")
        lines.append(line.rstrip())
    return "\n".join(lines)
