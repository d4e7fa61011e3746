"""Readable errors for params.yaml."""

import difflib
import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from perennial.config.fields import shown

REMOVED = {"export.parity_examples": "delete it, because export compares the whole test split"}


def lines(config: type[BaseModel], found: Sequence[ErrorDetails]) -> list[str]:
    """One line for each wrong key: its full path, the rule, the value, and the nearest valid key or choice.

    A misspelt key is one error, although the right key is missing too; so is a value of none of several types.
    """
    meant = {_meant(config, each) for each in found if each["type"] == "extra_forbidden"}
    reported = [each for each in found if each["type"] != "missing" or _path(config, each) not in meant]
    return [
        _line(config, path, list(same)) for path, same in groupby(reported, lambda each: _path(config, each))
    ]


def missing(
    section: type[BaseModel], values: Mapping[Any, Any], above: tuple[str, ...] = ()
) -> list[ErrorDetails]:
    """An error for each key that is not there: the models' defaults are for new files, not for absent keys."""
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


def inner_section(field: FieldInfo) -> type[BaseModel] | None:
    """The section that a field holds, if it holds one."""
    inner = field.annotation
    return inner if isinstance(inner, type) and issubclass(inner, BaseModel) else None


def _line(config: type[BaseModel], path: str, same: Sequence[ErrorDetails]) -> str:
    """All errors of one key in one line."""
    # The error of a list's element is more precise than those of the other types that the value does not have.
    first = max(same, key=lambda each: len(each["loc"]))
    if first["type"] == "extra_forbidden":
        if path in REMOVED:
            return f"{path} was removed: {REMOVED[path]} (`perennial config --upgrade` does)"
        near, known = _meant(config, first), ", ".join(_siblings(config, first))
        return f"{path} is not a key; " + (f"did you mean {near}?" if near else f"known: {known}")
    if first["type"] in {"together", "overlap"}:
        return first["msg"]
    section, parts = _owner(config, first)
    field = by_key(section).get(parts[-1])
    meaning = f" ({field.description})" if field is not None and field.description else ""
    if first["type"] == "missing":
        default = (
            f"; its default is {json.dumps(field.default, default=str)}"
            if field and not inner_section(field)
            else ""
        )
        return f"{path} is missing{meaning}{default}; `perennial config --upgrade` adds it"
    element = "".join(f"[{part}]" for part in first["loc"][len(parts) :] if isinstance(part, int))
    broken = [first] if element else same
    rules = " or ".join(dict.fromkeys(map(_rule, broken)))
    near = _nearest_choice(first) if first["type"] == "literal_error" and broken == [first] else ""
    return f"{path}{element} {rules}, got {shown(first['input'])}{meaning}{near}"


def _rule(details: ErrorDetails) -> str:
    if details["type"] == "model_type":
        return "must be a section (a mapping of keys)"
    if details["type"] == "path_type":
        return "must be a path"
    rule = details["msg"].replace("Input should", "must").replace("String should", "must")
    return rule.replace("Input is", "is")


def _nearest_choice(details: ErrorDetails) -> str:
    """The closest choice, else all of them."""
    choices = str(details.get("ctx", {}).get("expected", "")).replace("'", "").replace(" or ", ", ").split(", ")
    near = difflib.get_close_matches(str(details["input"]), choices, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(choices)}"


def _meant(config: type[BaseModel], details: ErrorDetails) -> str | None:
    """The valid key closest to an unknown one."""
    near = difflib.get_close_matches(_path(config, details), _siblings(config, details), n=1)
    return near[0] if near else None


def _siblings(config: type[BaseModel], details: ErrorDetails) -> list[str]:
    """Full paths of the keys in the section of an error."""
    section, path = _owner(config, details)
    return [".".join((*path[:-1], key)) for key in by_key(section)]


def _path(config: type[BaseModel], details: ErrorDetails) -> str:
    """Full path of the key of an error."""
    return ".".join(_owner(config, details)[1])


def _owner(config: type[BaseModel], details: ErrorDetails) -> tuple[type[BaseModel], list[str]]:
    """Section and path of a key; the rest of a location names elements and types of its value."""
    section, path = config, list[str]()
    for part in map(str, details["loc"]):
        path.append(part)
        field = by_key(section).get(part)
        inner = inner_section(field) if field is not None else None
        if len(path) == len(details["loc"]) or inner is None:
            break
        section = inner
    return section, path
