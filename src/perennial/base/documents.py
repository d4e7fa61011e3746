"""JSON and YAML documents: parsed, and checked against schemas."""

import json
import math
import pickle
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from perennial.base.errors import DataError


class JsonFile(BaseModel):
    """Base of the schemas of JSON files that a stage reads; unknown keys are kept as they are."""

    model_config = ConfigDict(frozen=True, strict=True, extra="allow", allow_inf_nan=False, defer_build=True)


Schema = TypeVar("Schema", bound=JsonFile)


def flattened(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Flatten nested mappings to full keys, such as `train.epochs`."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        inner = isinstance(value, Mapping) and value  # an empty one is a value
        found |= flattened(value, f"{above}{key}.") if inner else {f"{above}{key}": value}
    return found


def read_json(file: Path, advice: str = "`dvc repro` makes or restores it") -> Any:
    """The object in a JSON file."""
    try:
        return _json_object(file.read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read: {error}; {advice}") from error


def parse_json(text: str | bytes) -> Any:
    """Parse JSON, in bytes as UTF-8."""
    try:
        text = (text.encode() if isinstance(text, str) else text).decode()
        found = json.loads(text, parse_float=_finite, parse_constant=_finite)
        if "\\ud" in text.lower():
            json.dumps(found, ensure_ascii=False).encode()
        return found  # noqa: TRY300
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def json_object(text: str | bytes) -> dict[str, Any]:
    """Parse a JSON object from another program's output; empty if it is not one."""
    try:
        return _json_object(text)
    except ValueError:
        return {}


def valid_fields(values: Mapping[str, Any], schema: type[JsonFile]) -> tuple[dict[str, Any], list[str]]:
    """Split an object: the values that a schema allows, and the keys of those with a wrong type."""
    try:
        schema.model_validate(values)
    except ValidationError as error:
        wrong = {str(each["loc"][0]): None for each in error.errors(include_url=False) if each["loc"]}
        return {key: value for key, value in values.items() if key not in wrong}, list(wrong)
    return dict(values), []


def parse_yaml(text: str | bytes) -> Any:
    """Parse YAML 1.2, the dialect that DVC reads."""
    try:
        return pickle.loads(_pickled_yaml(text))  # noqa: S301 - a copy of what was parsed here
    except (RecursionError, LookupError, YAMLError) as error:  # LookupError: such as `!!bool x`
        conflict = "it has marks of a merge conflict (<<<<<<<); keep one side of each"
        raise ValueError(conflict if "<<<<<<< " in str(text) else str(error)) from error


@lru_cache(maxsize=32)
def _pickled_yaml(text: str | bytes) -> bytes:
    """What a text holds: a stage reads some files several times, and parsing takes most of that."""
    return pickle.dumps(YAML(typ="safe").load(text))


def yaml_object(text: str | bytes) -> dict[str, Any]:
    """Parse a YAML 1.2 mapping; empty if it is another value. Raises the errors of `parse_yaml`."""
    found = parse_yaml(text)
    return found if isinstance(found, dict) else {}


def _json_object(content: str | bytes) -> dict[str, Any]:
    value = parse_json(content)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - as for other JSON that is not expected
    return value


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text} is not a finite number")
    return value


def read_checked(file: Path, schema: type[Schema], advice: str) -> Schema:
    """Read a JSON file and check it against a schema."""
    if not file.exists():
        raise DataError(f"{file} does not exist; {advice}")
    try:
        content = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file} cannot be read ({error}); {advice}") from error
    return parse_checked(content, str(file), schema, advice)


def parse_checked(content: bytes, name: str, schema: type[Schema], advice: str) -> Schema:
    """Check the JSON in bytes against a schema; raises DataError as `read_checked` does, with this name."""
    try:
        return schema.model_validate(_json_object(content))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        if first["type"] == "missing":
            raise DataError(f"{name} has no {key}; {advice}") from error
        got = f"{first['input']!r:.80}"
        raise DataError(f"{name} has {got} as {key}: {first['msg'].lower()}; {advice}") from error
    except ValueError as error:
        raise DataError(f"{name} cannot be read ({error}); {advice}") from error


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Put values of full keys, such as `train.epochs`, into nested mappings; the reverse of `flattened`."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        *sections, last = key.split(".")
        inner: Any = found
        for section in sections:
            inner = inner.setdefault(section, {}) if isinstance(inner, dict) else None
        if isinstance(inner, dict):
            inner[last] = value
    return found
