"""What is wrong with params.yaml, in words."""

import difflib
from collections.abc import Sequence
from itertools import groupby

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from perennial.config.types import shown


def lines(config: type[BaseModel], found: Sequence[ErrorDetails]) -> list[str]:
    """A line for each mistake: the key's full path, the rule, the value, and the nearest valid key or choice.

    A misspelt key is one mistake, although the right one is missing then; so is a value of no known kind.
    """
    meant = {_meant(config, each) for each in found if each["type"] == "extra_forbidden"}
    told = [each for each in found if each["type"] != "missing" or _path(config, each) not in meant]
    return [_line(config, path, list(same)) for path, same in groupby(told, lambda each: _path(config, each))]


def keys(section: type[BaseModel]) -> list[str]:
    """The keys of a section as params.yaml spells them."""
    return list(_by_key(section))


def _line(config: type[BaseModel], path: str, same: Sequence[ErrorDetails]) -> str:
    """What all mistakes of one key come to."""
    # An element of a list is a closer look than that the value is none of the other kinds.
    first = max(same, key=lambda each: len(each["loc"]))
    if first["type"] == "extra_forbidden":
        near, known = _meant(config, first), ", ".join(_siblings(config, first))
        return f"{path} is not a key; " + (f"did you mean {near}?" if near else f"known: {known}")
    if first["type"] in {"together", "overlap"}:
        return first["msg"]
    section, parts = _owner(config, first)
    field = _by_key(section).get(parts[-1])
    meaning = f" ({field.description})" if field is not None and field.description else ""
    if first["type"] == "missing":
        return f"{path} is missing{meaning}"
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
    """The choice that was probably meant, else all that are known."""
    choices = str(details.get("ctx", {}).get("expected", "")).replace("'", "").replace(" or ", ", ").split(", ")
    near = difflib.get_close_matches(str(details["input"]), choices, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(choices)}"


def _meant(config: type[BaseModel], details: ErrorDetails) -> str | None:
    """The key that an unknown one was probably meant to be."""
    near = difflib.get_close_matches(_path(config, details), _siblings(config, details), n=1)
    return near[0] if near else None


def _siblings(config: type[BaseModel], details: ErrorDetails) -> list[str]:
    """The keys of the section that a mistake is in, by their full paths."""
    section, path = _owner(config, details)
    return [".".join((*path[:-1], key)) for key in _by_key(section)]


def _path(config: type[BaseModel], details: ErrorDetails) -> str:
    """The full path of the key that a mistake is in."""
    return ".".join(_owner(config, details)[1])


def _owner(config: type[BaseModel], details: ErrorDetails) -> tuple[type[BaseModel], list[str]]:
    """The section and the path of a key; what else is in a location are elements and kinds of its value."""
    section, path = config, list[str]()
    for part in map(str, details["loc"]):
        path.append(part)
        field = _by_key(section).get(part)
        inner = field.annotation if field is not None else None
        if len(path) == len(details["loc"]) or not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            break
        section = inner
    return section, path


def _by_key(section: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in section.model_fields.items()}
