"""Changes to a params.yaml."""

import copy
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML


def change_params(file: Path, values: Mapping[str, object]) -> None:
    """Sets parameters, each named by its full path: `{"train.epochs": 1}`; comments are lost."""
    yaml = YAML(typ="safe")  # in C: a fifth of the time of the one that keeps comments
    yaml.default_flow_style, yaml.sort_base_mapping_type_on_output = False, False
    params = copy.deepcopy(_parsed(file.read_text(encoding="utf-8")))
    for path, value in values.items():
        *sections, key = path.split(".")
        part = params
        for section in sections:
            part = part[section]
        part[key] = value
    yaml.dump(params, file)


@functools.cache
def _parsed(text: str) -> Any:
    """Most tests start from the same file."""
    return YAML(typ="safe").load(text)
