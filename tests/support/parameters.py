"""Changes to a params.yaml."""

from collections.abc import Mapping
from pathlib import Path

from ruamel.yaml import YAML


def change_params(file: Path, values: Mapping[str, object]) -> None:
    """Sets parameters, each named by its full path: `{"train.epochs": 1}`."""
    yaml = YAML()
    params = yaml.load(file)
    for path, value in values.items():
        *sections, key = path.split(".")
        part = params
        for section in sections:
            part = part[section]
        part[key] = value
    yaml.dump(params, file)
