"""Which parameters have changed since the last run: a report tells of a run by those of today."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

FILE = "params.yaml"  # as DVC calls it


def changed(folder: Path, stages: Sequence[str]) -> tuple[str, ...] | None:
    """The keys whose values are not those that dvc.lock has of the stages; None where that is not known."""
    try:
        now = _load(folder / FILE)
        recorded = [_load(folder / "dvc.lock")["stages"][stage].get("params", {}) for stage in stages]
        keys = {
            name
            for each in recorded
            for section, then in each.get(FILE, {}).items()
            for name in _differing(then, _at(now, section), section)
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, YAMLError):
        return None
    return tuple(sorted(keys))


def _load(file: Path) -> Any:
    return YAML(typ="safe", pure=True).load(file.read_text(encoding="utf-8"))


def _at(values: object, name: str) -> object:
    """The value of a key such as `train.epochs`; None where there is none."""
    for key in name.split("."):
        values = values.get(key) if isinstance(values, Mapping) else None
    return values


def _differing(then: object, now: object, name: str) -> Iterator[str]:
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        for key in then.keys() | now.keys():
            yield from _differing(then.get(key), now.get(key), f"{name}.{key}")
    elif then != now:
        yield name
