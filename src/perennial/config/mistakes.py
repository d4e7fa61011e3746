"""What is wrong with params.yaml, in words."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from perennial.config.types import shown


def line(config: type[BaseModel], details: ErrorDetails) -> str:
    """One mistake: the key's full path, the rule, the value, and the nearest valid key or choice."""
    path = ".".join(str(part) for part in details["loc"])
    match details["type"]:
        case "extra_forbidden":
            known = [
                ".".join((*map(str, details["loc"][:-1]), key)) for key in _fields(config, details["loc"][:-1])
            ]
            return f"{path} is not a key{_nearest(path, known)}"
        case "one_length" | "overlap":
            return details["msg"]
    field = _fields(config, details["loc"][:-1]).get(str(details["loc"][-1]))
    meaning = f" ({field.description})" if field is not None and field.description else ""
    if details["type"] == "missing":
        return f"{path} is missing{meaning}"
    rule = details["msg"].replace("Input should", "must").replace("String should", "must")
    rule = rule.replace("Input is", "is")
    if details["type"] == "literal_error":
        choices = str(details.get("ctx", {}).get("expected", ""))
        meaning += _nearest(str(details["input"]), choices.replace("'", "").replace(" or ", ", ").split(", "))
    return f"{path} {rule}, got {shown(details['input'])}{meaning}"


def keys(section: type[BaseModel]) -> list[str]:
    """The keys of a section as params.yaml spells them."""
    return list(_by_key(section))


def _fields(config: type[BaseModel], location: Sequence[int | str]) -> Mapping[str, FieldInfo]:
    """The declared fields of the section at a location, by key."""
    section: Any = config
    for part in location:
        section = _by_key(section)[str(part)].annotation
    return _by_key(section)


def _by_key(section: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in section.model_fields.items()}


def _nearest(word: str, known: Sequence[str]) -> str:
    """What was probably meant, else all that is known."""
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known)}"
