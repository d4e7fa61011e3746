"""The params.yaml of one command: the project's, with the values of `--set`."""

from collections.abc import Mapping
from pathlib import Path

from perennial.base import config, files
from perennial.base.errors import ConfigError

FOLDER = "try"  # in paths.work


def write(params: Path, values: Mapping[str, object]) -> Path:
    """Write a params.yaml with other values of some keys beside the work of the project."""
    from perennial.base.params import edit_params

    file = config.load(params).paths.work / FOLDER / params.name
    try:
        changed = edit_params.set_values(params.read_text(encoding="utf-8"), values)
    except ConfigError as error:
        raise ConfigError("\n".join(f"--set: {line}" for line in str(error).splitlines())) from error
    files.write_bytes(file, changed.text.encode())
    return file


def weights_are_pinned(params: Path) -> bool:
    """Whether a training starts from the weights that pins/weights.json pins, which `--set` can replace.

    Weights that are published by name are fetched for it.
    """
    from perennial.data.sources import published_weights, weights

    checked = config.load(params)
    if params.resolve().parent != (checked.paths.work / FOLDER).resolve() or weights.is_pinned(checked):
        return True
    if weights.by_name(checked):
        published_weights.fetch(checked)
    return False
