"""Types of the values in params.yaml, and how messages show a value."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    WithJsonSchema,
    field_validator,
)
from pydantic_core import PydanticKnownError

from perennial.base.choices import is_bucket

INT32_MAX = 2**31 - 1  # TensorFlow's C++ code overflows above it
FLOAT32 = (1.1754944e-38, 3.4028234e38)  # smallest normal and largest number
MAX_FILES = 99_999  # shards and processes: the number in a shard's name has five digits
MAX_DEVICES = 1024
MAX_TEXT = 4096  # characters
# Also `user:pass/word@host`, whose authority is not a host with a port.
USER_IN_URL = re.compile(
    r"[a-z][\w+.-]*:/{1,2}(?:[^/?#\s]*@|[^/?#\s\[]*:(?!\d*(?:[/?#\s]|$)).*@)", re.IGNORECASE
)
SECRET_IN_QUERY = re.compile(
    r":/\S*[?&;#][\w.-]*(?:token|key|secret|passw|pwd|auth|sig|credential)[\w.-]*=", re.IGNORECASE
)
COMPONENT = re.compile(r"components(?:\.[a-z_]\w*)+:[a-z_]\w*", re.IGNORECASE | re.ASCII)
CREDENTIALS = (
    "must not hold a user name, password or token, because params.yaml is kept in git; put credentials into "
    "~/.netrc, the environment or a Prefect block"
)


class Section(BaseModel):
    """A section of params.yaml: immutable, without type conversion; unknown keys are errors."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, str_max_length=MAX_TEXT, defer_build=True
    )

    @field_validator("*")
    @classmethod
    def _fits_float32(cls, value: object) -> object:
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, float) and number and not FLOAT32[0] <= abs(number) <= FLOAT32[1]:
                raise ValueError("must be 0 or between 1.2e-38 and 3.4e+38 (float32)")
        return value


def kind(text: str) -> WithJsonSchema:
    """Describe the type of a field for the reference, where its annotation alone does not show it."""
    return WithJsonSchema({"title": text})


def is_component(value: object) -> bool:
    """Whether a value names an object of the project's own components, such as components.nets:tiny."""
    return isinstance(value, str) and COMPONENT.fullmatch(value) is not None


def short_name(name: str) -> str:
    """A name for files: that of a component without its module."""
    return name.partition(":")[2].lower() if is_component(name) else name


def or_component(choices: Any) -> PlainValidator:
    """Accept one of a list of names, or the name of a component."""
    known: tuple[str, ...] = get_args(choices)

    def check(value: object) -> object:
        if (isinstance(value, str) and value in known) or is_component(value):
            return value
        if isinstance(value, str) and re.match(r"components\W|[^:]*:", value):
            raise ValueError(
                "must be components.MODULE:NAME for an object NAME in the file components/MODULE.py"
            )
        raise PydanticKnownError("literal_error", {"expected": ", ".join(map(repr, known))})

    return PlainValidator(check, json_schema_input_type=choices)


def option(default: Any, description: str, **limits: Any) -> Any:
    """Define an option: a field of a section, from which params.yaml and its reference are generated."""
    return Field(default, description=description, **limits)


def _local_path(path: Path) -> Path:
    if path.name in {"", ".."}:
        raise ValueError("must name a file or folder")
    if path.parts[0].startswith("~"):
        raise ValueError("must be written in full: DVC does not expand ~")
    if re.match(r"[A-Za-z][\w+.-]+:/", str(path)):
        raise ValueError("must be a path on this machine, not a URL")
    if max(map(len, map(str.encode, path.parts))) > 255 or len(str(path)) > 1024:
        raise ValueError("must have at most 1024 characters and 255 bytes in each part")
    return path


def _url_of_a_folder(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError
    except ValueError:
        parts = urlsplit("")
    if parts.scheme == "file" and parts.netloc not in {"", "localhost"}:
        raise ValueError("must have three slashes after file:")
    if parts.scheme != "file" and not parts.hostname:
        raise ValueError("must name a host")
    if parts.query or parts.fragment:
        raise ValueError("must be a URL without ? or #")
    return url


def _source(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    if not separator:
        _local_path(Path(url))
    elif scheme in {"http", "https"}:
        _url_of_a_folder(url)
    elif not is_bucket(url) or not rest.partition("/")[0]:
        raise ValueError("must be s3://bucket/prefix, an http or https URL, or a path")
    return url


def _devices(devices: str) -> str:
    if devices == "gpu:0":
        raise ValueError("must not be gpu:0, which selects no device: gpu:1 is one GPU")
    if any(len(number) > 4 or int(number) > MAX_DEVICES for number in re.findall(r"\d+", devices)):
        raise ValueError(f"must not have a number above {MAX_DEVICES}")
    return devices


Count = Annotated[int, Field(ge=1, le=INT32_MAX)]
CountOrZero = Annotated[int, Field(ge=0, le=INT32_MAX)]
Positive = Annotated[float, Field(gt=0)]
Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]
AutoOrCount = Literal["auto"] | Annotated[int, Field(ge=1, le=MAX_FILES)]
Gpus = Literal["all"] | Annotated[int, Field(ge=1, le=MAX_DEVICES)]
AnyPath = Annotated[Path, Field(strict=False), AfterValidator(_local_path)]
Url = Annotated[
    str, Field(pattern=r"^(https?|file)://"), AfterValidator(_url_of_a_folder), kind("http, https or file URL")
]
SourceUrl = Annotated[str, AfterValidator(_source), kind("s3, http or https URL, or a path")]
Devices = Annotated[
    str,
    Field(pattern=r"^(auto|cpu:[1-9][0-9]*|gpu:[0-9]+(,[0-9]+)*)$"),
    AfterValidator(_devices),
    kind("auto, cpu:N, gpu:N, or gpu:0,2"),
]


def shown(value: object) -> str:
    """Format a value as YAML on one line, shortened and without passwords."""
    if value is None or isinstance(value, bool):
        return {None: "null", False: "false", True: "true"}[value]
    text = repr(value)
    return without_secrets(text) if len(text) <= 1000 else f"{len(text)} characters"


def without_secrets(text: str) -> str:
    """Remove all that may be a password; stricter than `redacted`, which leaves words between two URLs."""
    text = re.sub(r"(:/{1,2}).*@", r"\1***@", text, flags=re.DOTALL)
    text = re.sub(r"(?<!\w)[^\s'\"/:]+:(?!/)[^\s'\"]*@", "***@", text)
    return re.sub(r"([?&;#][\w.-]*=)[^&\s'\"]*", r"\1***", text)


def refused_texts(values: Any) -> Iterator[tuple[str, str]]:
    """Find keys whose text is not allowed, with the reason: credentials or control characters."""
    queue: list[tuple[str, Any]] = [("", values)]
    seen = set[int]()  # aliases in YAML can lead back to a list that holds them
    while queue:
        path, value = queue.pop()
        if isinstance(value, dict | list) and id(value) not in seen:
            seen.add(id(value))
            inner = value.items() if isinstance(value, dict) else ((f"[{i}]", v) for i, v in enumerate(value))
            queue += [(f"{path}.{key}".strip(".").replace(".[", "["), each) for key, each in inner]
        # Longer texts are refused anyway without being shown, and searching them takes minutes.
        elif isinstance(value, str) and len(value) <= MAX_TEXT:
            if USER_IN_URL.search(value) or SECRET_IN_QUERY.search(value):
                yield path, CREDENTIALS
            elif re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]", value):
                yield path, "must not hold control characters or halves of surrogate pairs"
