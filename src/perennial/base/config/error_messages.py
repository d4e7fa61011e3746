"""Readable errors for params.yaml."""

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from perennial.base.config.fields import shown
from perennial.base.config.paths import FIXED, PathsConfig

# Names of other programs, and short ones.
ALIASES = {
    "arch": "model.name", "architecture": "model.name", "backbone": "model.name", "network": "model.name",
    "batch": "train.batch_size", "bs": "train.batch_size", "lr": "train.learning_rate",
    "wd": "train.weight_decay",
    "data_dir": "dataset.path", "img_size": "preprocessing.image_size", "imgsz": "preprocessing.image_size",
    "iterations": "train.max_steps", "num_steps": "train.max_steps", "steps": "train.max_steps",
    "early_stopping": "train.patience", "lr_schedule": "train.schedule.name",
    "num_workers": "compute.processes",
    "momentum": "train.optimizer_options", "optimizers": "train.optimizer_options",
    "optim": "train.optimizer", "pretrained": "model.weights", "scheduler": "train.schedule.name",
}  # fmt: skip

# Keys of earlier versions, and what to do instead; `perennial config --upgrade` removes them.
NEW_EXAMPLES = "the monitor scores no new examples; monitor.source retrains on them, and the gate compares"
RAND_AUGMENT = "RandAugment is not part of this version; use erasing, mixup or cutmix"
REMOVED = {
    "compute.workers": "start `perennial train` on each machine with TF_CONFIG (`perennial docs distributed`)",
    "train.augmentation.operations": RAND_AUGMENT,
    "train.augmentation.magnitude": RAND_AUGMENT,
    "train.augmentation.image_sizes": "training on growing images is not part of this version",
    "train.lookahead": "Lookahead is not part of this version; train.averages averages weights",
    "monitor.min_accuracy": NEW_EXAMPLES,
    "monitor.max_label_drift": NEW_EXAMPLES,
    "monitor.max_brightness_drift": NEW_EXAMPLES,
    "monitor.min_examples": NEW_EXAMPLES,
    "monitor.max_examples": NEW_EXAMPLES,
    **{
        f"paths.{name}": f"these files are in {place} (`perennial docs files`); move what is elsewhere"
        for name, place in FIXED.items()
        if name not in PathsConfig.model_fields
    },
}


class Key(NamedTuple):
    """A key of params.yaml, known or not, the section that contains it, and all known keys."""

    section: type[BaseModel]
    parts: tuple[str, ...]
    known: tuple[str, ...]

    def __str__(self) -> str:
        """The full path."""
        return ".".join(self.parts)

    @property
    def siblings(self) -> list[str]:
        """Full paths of the valid keys in the section."""
        return [".".join((*self.parts[:-1], name)) for name in by_key(self.section)]

    @property
    def nearest(self) -> str | None:
        """The key that an unknown one may mean."""
        return nearest(str(self), self.known) or _nearest(str(self), self.siblings)


def nearest(key: str, known: Sequence[str]) -> str | None:
    """The key that an unknown one may mean, such as train.learning_rate for train.lr."""
    section, _, name = key.rpartition(".")
    every = {full.rpartition(".")[2]: full for full in reversed(known)}  # the first of equal names
    beside = {full.removeprefix(f"{section}."): full for full in known if full.rpartition(".")[0] == section}
    if section and not any(full.startswith(f"{section}.") for full in known):  # the section may be misspelt
        return _nearest(key, known) or every.get(name)
    if name in ALIASES or name in every:
        return ALIASES.get(name) or every[name]
    typed = _nearest(name, list(beside))
    return beside[typed] if typed else _nearest(key, known)


def lines(config: type[BaseModel], errors: Sequence[ErrorDetails]) -> list[str]:
    """Format one line per wrong key: its full path, the rule, the value, and the nearest key or choice."""
    keys = [(_key(config, error), error) for error in errors]
    unknown = [key for key, error in keys if error["type"] == "extra_forbidden"]
    meant = {key.nearest for key in unknown}
    reported = [(key, error) for key, error in keys if error["type"] != "missing" or str(key) not in meant]
    by_path = groupby(reported, lambda pair: pair[0])
    return [_line(key, [error for _, error in same]) for key, same in by_path]


def missing(
    section: type[BaseModel], values: Mapping[Any, Any], above: tuple[str, ...] = ()
) -> list[ErrorDetails]:
    """List an error for each missing key: the models' defaults are for new files only."""
    errors: list[ErrorDetails] = []
    for key, field in by_key(section).items():
        inner, place = inner_section(field), (*above, key)
        if key not in values:
            errors.append({"type": "missing", "loc": place, "msg": "", "input": values})
        elif inner is not None and isinstance(values[key], Mapping):
            errors += missing(inner, values[key], place)
    return errors


def by_key(section: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a section by their keys in params.yaml."""
    return {field.alias or name: field for name, field in section.model_fields.items()}


def inner_section(field: FieldInfo | None) -> type[BaseModel] | None:
    """The section that a field holds, if it holds one."""
    inner = field and field.annotation
    return inner if isinstance(inner, type) and issubclass(inner, BaseModel) else None


def valued_keys(
    section: type[BaseModel], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    """The paths and fields of all keys with values in a section and the sections in it, in their order."""
    for key, field in by_key(section).items():
        inner = inner_section(field)
        yield from valued_keys(inner, (*above, key)) if inner else [((*above, key), field)]


def _key(config: type[BaseModel], details: ErrorDetails) -> Key:
    """The key of an error; the rest of its location names elements and types of the value."""
    section, location = config, tuple(map(str, details["loc"]))
    known = tuple(".".join(path) for path, _ in valued_keys(config))
    for depth, part in enumerate(location, 1):
        inner = inner_section(by_key(section).get(part))
        if depth == len(location) or inner is None:
            return Key(section, location[:depth], known)
        section = inner
    return Key(section, (), known)


def _line(key: Key, same: Sequence[ErrorDetails]) -> str:
    """All errors of one key in one line."""
    # An error of a list's element is more precise than the errors of other types that the value does not match.
    first = max(same, key=lambda error: len(error["loc"]))
    if instead := REMOVED.get(str(key)):
        return f"{key} is gone: {instead}; `perennial config --upgrade` removes the key"
    if first["type"] == "extra_forbidden":
        known = f"did you mean {key.nearest}?" if key.nearest else f"known: {', '.join(key.siblings)}"
        return f"{key} is not a key; {known}"
    field = by_key(key.section).get(key.parts[-1]) if key.parts else None
    is_section = field is None or inner_section(field) is not None
    if first["type"] == "value_error" and is_section:  # several keys together break a rule that names them
        return _rule(first)
    meaning = f" ({field.description})" if field is not None and field.description else ""
    if first["type"] == "missing":
        default = "" if is_section else f"; its default is {json.dumps(field and field.default, default=str)}"
        return f"{key} is missing{meaning}{default}; `perennial config --upgrade` adds it"
    element = "".join(f"[{part}]" for part in first["loc"][len(key.parts) :] if isinstance(part, int))
    broken = [first] if element else same
    rules = " or ".join(dict.fromkeys(map(_rule, broken)))
    is_choice = first["type"] == "literal_error" and broken == [first]
    wrong = _choice(first, meaning) if is_choice else f"{rules}, got {shown(first['input'])}{meaning}"
    return f"{key}{element} {wrong}"


def _rule(details: ErrorDetails) -> str:
    worded = {"model_type": "must be a section (a mapping of keys)", "path_type": "must be a path"}
    rule = details["msg"].removeprefix("Value error, ")
    rule = rule.replace("Input should", "must").replace("String should", "must").replace("Input is", "is")
    return worded.get(details["type"], rule)


def _choice(details: ErrorDetails, meaning: str) -> str:
    """The closest choice first, since there may be many, then all of them."""
    expected = str(details.get("ctx", {}).get("expected", ""))
    choices = expected.replace("'", "").replace(" or ", ", ").split(", ")
    given = str(details["input"])
    begin = [choice for choice in choices if given and choice.startswith(given.lower())]
    near = begin[0] if begin else _nearest(given.lower().replace("-", "_"), choices)
    meant = f"; did you mean {near}?" if near else ""
    got = f"{shown(details['input'])}{meant}{meaning}"
    return f"is not one of its values, got {got}; known: {', '.join(choices)}"


def _nearest(name: str, known: Sequence[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, known, n=1)), None)
