"""The kinds of values that params.yaml holds."""

import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator
from pydantic_core import PydanticCustomError


def _named(path: Path) -> Path:
    if path.name in {"", ".."}:
        raise PydanticCustomError("unnamed", "must name a file or folder")
    if path.parts[0].startswith("~"):
        raise PydanticCustomError("home", "must be written out: DVC does not know what ~ stands for")
    return path


def _with_host(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme == "file" and parts.netloc not in {"", "localhost"}:
        raise PydanticCustomError("host", "must have three slashes after file:")
    if parts.scheme != "file" and not parts.hostname:
        raise PydanticCustomError("host", "must name a host")
    if parts.query or parts.fragment:
        raise PydanticCustomError("query", "must end in a folder, without ? or #")
    return url


def _auto_or_count(value: object) -> object:
    if value == "auto" or (type(value) is int and 1 <= value <= MOST):
        return value
    raise PydanticCustomError("count", "must be auto or a whole number from 1 to {most}", {"most": MOST})


def _some_device(devices: str) -> str:
    if devices == "gpu:0":
        raise PydanticCustomError("none", "must not be gpu:0, which is no device: gpu:1 is one GPU")
    return devices


MOST = 99_999  # shards and processes: what five digits of a file name count
AutoOrCount = Annotated[Literal["auto"] | int, PlainValidator(_auto_or_count)]
AnyPath = Annotated[Path, Field(strict=False), AfterValidator(_named)]
Url = Annotated[str, Field(pattern=r"^(https?|file)://"), AfterValidator(_with_host)]
# Folders that are written take the place of what was there, so none may be the project's own.
SOURCES = {
    "src", "flows", "tasks", "tests", "infra", "benchmarks", "requirements", "docs", "own", "params",
    ".git", ".dvc", ".ci", ".gitignore", ".dvcignore", ".pre-commit-config.yaml",
    "params.yaml", "dvc.yaml", "dvc.lock", "prefect.yaml", "pyproject.toml", "Makefile",
    "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE",
}  # fmt: skip
Severity = Literal["error", "warn", "ignore"]
Devices = Annotated[
    str,
    Field(
        pattern=r"^(auto|cpu:[1-9][0-9]*|gpu:[0-9]+(,[0-9]+)*)$",
    ),
    AfterValidator(_some_device),
]
Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]


class Section(BaseModel):
    """A part of params.yaml: immutable, typed without conversions, closed to unknown keys."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


def shown(value: object) -> str:
    """A value as YAML spells it, without the password that an address may hold."""
    return "null" if value is None else re.sub(r"//[^/\s@]*@", "//***@", repr(value))
