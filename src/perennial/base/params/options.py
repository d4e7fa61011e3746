"""Texts generated from the options: the default params.yaml and the Markdown reference."""

import functools
import json
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, TypeAdapter
from pydantic.fields import FieldInfo

from perennial.base.config import Config
from perennial.base.config.error_messages import by_key, inner_section, valued_keys
from perennial.base.config.training import OPTIMIZERS

WIDTH = 112
HEADER = "# Every parameter of a run. Each key is required; `perennial config --upgrade` adds missing ones.\n"
# In a section that a person decides: what follows is seldom changed.
IN_ONE_LINE = {
    "schedule", "averages", "augmentation", "head", "warm_start", "severity", "card", "compute",
    "checkpoints", "logging", "record", "publish", "monitor", "label", "paths",
}  # fmt: skip
FIRST_OF_REST = ("train", "steps_between_evals")
REST = "# The rest is rarely changed; `perennial docs options` explains every key."
MARKDOWN_HEADER = """# Options

Every key of `params.yaml`. Each is required and other keys are refused: with a wrong file, a command ends with
exit code 2 before anything runs. `perennial config` checks the file, `perennial config --upgrade` adds missing
keys, and `perennial config --preset NAME` applies a [preset](../how-to/training.md#presets).

This page is generated: `perennial config --options > docs/reference/options.md`.
"""
# of JSON Schema
WORDS = {
    "integer": "whole number", "number": "number", "string": "text", "path": "path", "boolean": "true or false",
    "null": "null",
}  # fmt: skip
LIMITS = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}


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
        Option(".".join(path), _plain(field.default), _type(_schema(field)), field.description or "")
        for path, field in valued_keys(Config)
    ]


@functools.cache
def defaults() -> str:
    """The params.yaml with every default."""
    blocks = {key: block((key,)) for key in by_key(Config)}
    return HEADER + "".join(text if key in IN_ONE_LINE else f"\n{text}" for key, text in blocks.items())


def block(path: tuple[str, ...], indent: int = 0) -> str:
    """The lines of a key or section, with defaults and comments, indented by `indent` spaces."""
    field = field_at(path)
    inner = inner_section(field)
    if inner is not None and path[-1] in IN_ONE_LINE:
        return _in_one_line(f"{path[-1]}: {scalar(values(path))}", inner.__doc__ or "", indent)
    if inner is not None:
        head = _commented(f"{path[-1]}:", (inner.__doc__ or "").strip().rstrip("."), indent)
        return head + "".join(block((*path, key), indent + 2) for key in by_key(inner))
    rest = f"{' ' * indent}{REST}\n" if path == FIRST_OF_REST else ""
    return rest + _commented(f"{path[-1]}: {scalar(field.default)}", comment(field), indent)


def comment(field: FieldInfo) -> str:
    """The comment of a key: its choices, if they are few, and its description."""
    names = _schema(field).get("enum", ())
    described = field.description or ""
    # A description that explains each choice lists them already.
    if names and not all(f"{name}: " in described for name in names):
        return f"{' | '.join(names)}; {described}"
    return described


def line_comment(path: tuple[str, ...]) -> str:
    """The default comment behind a key's value; empty where it stands above or the key has none."""
    line = block(path, 2).splitlines()[-1]
    return line[line.index(" # ") + 1 :] if " # " in line else ""


def field_at(path: tuple[str, ...]) -> FieldInfo:
    """The field of a key, by its path."""
    section: type[BaseModel] = Config
    for key in path[:-1]:
        section = inner_section(by_key(section)[key]) or section
    return by_key(section)[path[-1]]


def scalar(value: object) -> str:
    """A default in YAML 1.2."""
    if isinstance(value, dict) and not any(isinstance(each, dict) for each in value.values()):
        return "{" + ", ".join(f"{key}: {scalar(each)}" for key, each in value.items()) + "}"
    text = json.dumps(_plain(value)).strip('"')
    return re.sub(r"^(-?\d+)e", r"\1.0e", text)


def values(path: tuple[str, ...]) -> Any:
    """The default of a key, or those of all keys of a section, as JSON values; `()` is the whole file."""
    field = field_at(path) if path else None
    inner = inner_section(field) if field else Config
    return {key: values((*path, key)) for key in by_key(inner)} if inner else _plain(field and field.default)


def markdown() -> str:
    """The reference of all options as a page in Markdown."""
    parts, every = [MARKDOWN_HEADER], options()
    for name, field in by_key(Config).items():
        about = (getattr(inner_section(field), "__doc__", "") or "").strip()
        parts.append(f"\n## {name}\n\n{about}\n\n| key | default | type | description |\n|---|---|---|---|\n")
        for each in every:
            if each.key.startswith(f"{name}."):
                cells = (f"`{each.key}`", f"`{scalar(each.default)}`", each.type, each.description)
                parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
                if each.key == "train.optimizer_options":
                    parts.append(_settings_of_optimizers())
    return "".join(parts)


def _settings_of_optimizers() -> str:
    """Rows for what train.optimizer_options may hold."""
    return "".join(
        f"| {name}: `{key}` | `{scalar(field.default)}` | {_type(_schema(field))} | {field.description} |\n"
        for name, section in OPTIMIZERS.items()
        for key, field in section.model_fields.items()
    )


def _plain(value: object) -> Any:
    return str(value) if isinstance(value, Path) else value


def _schema(field: FieldInfo) -> dict[str, Any]:
    annotated: Any = Annotated[(field.annotation, Field(), *field.metadata)]
    return TypeAdapter[Any](annotated).json_schema()


def _commented(text: str, about: str, indent: int) -> str:
    """A line with its comment; the comment comes first if both together are too long."""
    space = " " * indent
    if not about:
        return f"{space}{text}\n"
    if len(line := f"{space}{text} # {about}") <= WIDTH:
        return f"{line}\n"
    wrapped = textwrap.wrap(about, WIDTH - indent - 2)
    return "".join(f"{space}# {each}\n" for each in wrapped) + f"{space}{text}\n"


def _in_one_line(text: str, about: str, indent: int) -> str:
    """A section in flow style, wrapped if it is too long, with its comment at the end of a line or above."""
    if len(line := f"{' ' * indent}{text} # {about.strip().rstrip('.')}") <= WIDTH:
        return f"{line}\n"
    whole = text.replace(": ", ":\0")  # a key stays beside its value
    wrapped = textwrap.wrap(whole, WIDTH - indent, subsequent_indent="  ", break_on_hyphens=False)
    above = f"# {about.strip().rstrip('.')}"
    return "".join(f"{' ' * indent}{each}\n" for each in (above, *wrapped)).replace("\0", " ")


def _type(schema: dict[str, Any]) -> str:
    """Type, range and choices of a value, from its JSON Schema."""
    if "title" in schema:
        return str(schema["title"])
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if names := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return ", ".join(f"`{name}`" for name in names)
    if schema["type"] == "array":
        return f"list of: {_type(schema['items'])}"
    limits = [f"{word} {schema[name]}" for name, word in LIMITS.items() if name in schema]
    return " ".join([WORDS[schema.get("format", schema["type"])], *limits])
