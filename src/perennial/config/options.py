"""Generated texts about every option: the default params.yaml and the reference in Markdown."""

import json
import re
import textwrap
import types
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from perennial.config import Config
from perennial.config.error_messages import by_key, inner_section
from perennial.config.fields import Kind

WIDTH = 112
HEADER = "# Every parameter of a run. Each key is required; `perennial config --upgrade` adds missing ones.\n"
MARKDOWN_HEADER = """# Options

Every key of `params.yaml`. Each is required and other keys are refused: with a wrong file, a command ends with
exit code 2 before anything runs. `perennial config` checks the file, `perennial config --upgrade` adds missing
keys, and `perennial config --preset NAME` applies a file of `params/`.

This page is generated: `perennial config --options > docs/reference/options.md`.
"""
WORDS = {
    int: "whole number",
    float: "number",
    str: "text",
    Path: "path",
    bool: "true or false",
    type(None): "null",
}
LIMITS = {Ge: "from", Gt: "above", Le: "to", Lt: "below"}


@dataclass(frozen=True)
class Option:
    """A key of params.yaml as the reference shows it."""

    key: str
    default: Any
    type: str
    description: str


def options() -> list[Option]:
    """Every option in the order of params.yaml."""
    return [
        Option(
            ".".join(path),
            _plain(field.default),
            _kind(field.annotation, field.metadata),
            field.description or "",
        )
        for path, field in _walk(Config)
        if inner_section(field) is None
    ]


def defaults() -> str:
    """The params.yaml with every default."""
    return HEADER + "".join(f"\n{block((key,))}" for key in by_key(Config))


def block(path: tuple[str, ...], indent: int = 0) -> str:
    """The lines of a key or section, with defaults and comments, indented by so many spaces."""
    field = field_at(path)
    inner = inner_section(field)
    if inner is not None:
        head = _commented(f"{path[-1]}:", (inner.__doc__ or "").strip().rstrip("."), indent)
        return head + "".join(block((*path, key), indent + 2) for key in by_key(inner))
    return _commented(f"{path[-1]}: {scalar(field.default)}", comment(field), indent)


def comment(field: FieldInfo) -> str:
    """The comment of a key: its choices, if they are few, and its description."""
    shown = any(isinstance(each, Kind) for each in field.metadata)
    names = get_args(field.annotation) if get_origin(field.annotation) is Literal and not shown else ()
    described = field.description or ""
    # A description that explains each choice already lists them.
    if names and not all(f"{name}: " in described for name in names):
        return f"{' | '.join(names)}; {described}"
    return described


def field_at(path: tuple[str, ...]) -> FieldInfo:
    """The field of a key, by its path."""
    section: type[BaseModel] = Config
    for key in path[:-1]:
        section = inner_section(by_key(section)[key]) or section
    return by_key(section)[path[-1]]


def scalar(value: object) -> str:
    """A default in YAML 1.2."""
    text = json.dumps(_plain(value)).strip('"')
    return re.sub(r"^(-?\d+)e", r"\1.0e", text)


def values(path: tuple[str, ...]) -> Any:
    """The default of a key, or those of all keys of a section, as JSON values; `()` is the whole file."""
    field = field_at(path) if path else None
    inner = inner_section(field) if field else Config
    return {key: values((*path, key)) for key in by_key(inner)} if inner else _plain(field and field.default)


def markdown() -> str:
    """The reference of all options as a page in Markdown."""
    parts = [MARKDOWN_HEADER]
    for name, field in by_key(Config).items():
        about = (getattr(inner_section(field), "__doc__", "") or "").strip()
        parts.append(f"\n## {name}\n\n{about}\n\n| key | default | type | description |\n|---|---|---|---|\n")
        for each in options():
            if each.key.startswith(f"{name}."):
                cells = (f"`{each.key}`", f"`{scalar(each.default)}`", each.type, each.description)
                parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    return "".join(parts)


def as_json() -> list[dict[str, Any]]:
    """The options as JSON values."""
    return [asdict(each) for each in options()]


def _walk(section: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    for key, field in by_key(section).items():
        inner = inner_section(field)
        yield (*above, key), field
        if inner is not None:
            yield from _walk(inner, (*above, key))


def _plain(value: object) -> Any:
    return str(value) if isinstance(value, Path) else value


def _commented(text: str, about: str, indent: int) -> str:
    """A line with its comment, or below its comment where both together are too long."""
    space = " " * indent
    if not about:
        return f"{space}{text}\n"
    if len(line := f"{space}{text} # {about}") <= WIDTH:
        return f"{line}\n"
    wrapped = textwrap.wrap(about, WIDTH - indent - 2)
    return "".join(f"{space}# {each}\n" for each in wrapped) + f"{space}{text}\n"


def _kind(annotation: Any, metadata: list[Any]) -> str:
    """Type, range and choices of a value."""
    if named := [each.text for each in metadata if isinstance(each, Kind)]:
        return named[0]
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *own = get_args(annotation)
        constraints = [each for one in own for each in (one.metadata if isinstance(one, FieldInfo) else [one])]
        return _kind(inner, [*constraints, *metadata])
    if origin is Literal:
        return ", ".join(f"`{name}`" for name in get_args(annotation))
    if origin is list:
        return f"list of: {_kind(get_args(annotation)[0], [])}"
    if origin in {Union, types.UnionType}:
        return " or ".join(
            _kind(each, metadata if each is not type(None) else []) for each in get_args(annotation)
        )
    return f"{WORDS[annotation]} {_range(metadata)}".strip()


def _range(metadata: list[Any]) -> str:
    """The limits of a number, such as: from 0 to 8."""
    limits = [
        f"{word} {getattr(each, kind.__name__.lower())}"
        for kind, word in LIMITS.items()
        for each in metadata
        if isinstance(each, kind)
    ]
    return " ".join(limits)
