"""Readable errors for params.yaml."""

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from perennial.config.fields import shown

REMOVED = {
    "evaluate.bootstrap_resamples": "delete it, because intervals are computed without resamples",
    "evaluate.seed": "delete it, because intervals are computed without random numbers",
    "export.parity_examples": "delete it, because export compares the whole test split",
}
RENAMED = {"model.imagenet_weights": "model.weights"}  # old: new, in the same section


class Key(NamedTuple):
    """A key of params.yaml, known or not, and the section that contains it."""

    section: type[BaseModel]
    parts: tuple[str, ...]

    def __str__(self) -> str:
        """The full path."""
        return ".".join(self.parts)

    @property
    def siblings(self) -> list[str]:
        """Full paths of the valid keys in the section."""
        return [".".join((*self.parts[:-1], name)) for name in by_key(self.section)]

    @property
    def nearest(self) -> str | None:
        """The valid key closest to an unknown one, such as train.epochs for a mere epochs."""
        inside = () if len(self.parts) > 1 else _keys_named(str(self), self.section)
        return _nearest(str(self), self.siblings) or next(iter(inside), None)


def lines(config: type[BaseModel], found: Sequence[ErrorDetails]) -> list[str]:
    """Format one line per wrong key: its full path, the rule, the value, and the nearest valid key or choice.

    A misspelt key, whose right key is missing too, is one error; so is a value that fits none of several types.
    """
    keys = [(_key(config, each), each) for each in found]
    unknown = [key for key, each in keys if each["type"] == "extra_forbidden"]
    meant = {RENAMED.get(str(key)) or key.nearest for key in unknown}
    reported = [(key, each) for key, each in keys if each["type"] != "missing" or str(key) not in meant]
    by_path = groupby(reported, lambda each: each[0])
    return [_line(key, [each for _, each in same]) for key, same in by_path]


def missing(
    section: type[BaseModel], values: Mapping[Any, Any], above: tuple[str, ...] = ()
) -> list[ErrorDetails]:
    """List an error for each missing key: the models' defaults are for new files only."""
    found: list[ErrorDetails] = []
    for key, field in by_key(section).items():
        inner, place = inner_section(field), (*above, key)
        if key not in values:
            found.append({"type": "missing", "loc": place, "msg": "", "input": values})
        elif inner is not None and isinstance(values[key], Mapping):
            found += missing(inner, values[key], place)
    return found


def by_key(section: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a section by their keys in params.yaml."""
    return {field.alias or name: field for name, field in section.model_fields.items()}


def inner_section(field: FieldInfo | None) -> type[BaseModel] | None:
    """The section that a field holds, if it holds one."""
    inner = field and field.annotation
    return inner if isinstance(inner, type) and issubclass(inner, BaseModel) else None


def _keys_named(name: str, section: type[BaseModel]) -> Iterator[str]:
    """The full paths of the keys of this name in the sections of a section."""
    for key, field in by_key(section).items():
        if (inner := inner_section(field)) is not None:
            found = [name] if name in by_key(inner) else []
            yield from (f"{key}.{each}" for each in (*found, *_keys_named(name, inner)))


def _key(config: type[BaseModel], details: ErrorDetails) -> Key:
    """The key of an error; the rest of its location names elements and types of the value."""
    section, location = config, tuple(map(str, details["loc"]))
    for depth, part in enumerate(location, 1):
        inner = inner_section(by_key(section).get(part))
        if depth == len(location) or inner is None:
            return Key(section, location[:depth])
        section = inner
    return Key(section, ())


def _line(key: Key, same: Sequence[ErrorDetails]) -> str:
    """All errors of one key in one line."""
    # An error of a list's element is more precise than the errors of other types that the value does not match.
    first = max(same, key=lambda each: len(each["loc"]))
    if first["type"] == "extra_forbidden":
        if (removed := REMOVED.get(str(key))) is not None:
            return f"{key} was removed: {removed} (`perennial config --upgrade` does)"
        if (new := RENAMED.get(str(key))) is not None:
            return f"{key} is now {new}; `perennial config --upgrade` renames it"
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
    return (
        f"is not one of its values, got {shown(details['input'])}{meant}{meaning}; known: {', '.join(choices)}"
    )


def _nearest(name: str, known: Sequence[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, known, n=1)), None)
