"""params.yaml as frozen models: every key must be there, no other may be, and each mistake gets a line."""

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from perennial.errors import ConfigError


def _named(path: Path) -> Path:
    if path.name in {"", ".."}:
        raise PydanticCustomError("unnamed", "must name a file or folder")
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


AnyPath = Annotated[Path, Field(strict=False), AfterValidator(_named)]
Url = Annotated[str, Field(pattern=r"^(https?|file)://"), AfterValidator(_with_host)]
# Folders that are written take the place of what was there, so none may be the project's own.
SOURCES = {"src", "flows", "tasks", "tests", "infra", "benchmarks", "requirements", "docs", ".git", ".dvc"}
Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]


class Section(BaseModel):
    """A part of params.yaml: immutable, typed without conversions, closed to unknown keys."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class DatasetConfig(Section):
    """Which images, from where, and how they are split."""

    name: Literal["digits", "mnist"] = Field(description="the data set")
    base_url: Url | None = Field(
        description="http, https or file address that replaces the built-in mirrors; null: the mirrors",
    )
    digests: Literal["pinned", "record"] = Field(
        description="pinned: only the known files; record: trust the first download, check later ones"
    )
    validation_fraction: float = Field(
        gt=0, lt=1, description="share of the training examples held out for validation, 0..1"
    )
    seed: Seed = Field(description="chooses the examples that are held out")
    shards: int = Field(ge=1, le=99_999, description="TFRecord files a split")


class PreprocessingConfig(Section):
    """What happens to pixels between the record and the model."""

    name: Literal["rescale"] = Field(description="the preprocessing")
    image_size: int | None = Field(
        ge=1, le=4096, description="pixels a side after resizing; null: the data set's own size"
    )


class ModelConfig(Section):
    """The architecture."""

    name: Literal["mnist_cnn"] = Field(description="the architecture")


class TrainConfig(Section):
    """How the weights are found."""

    epochs: int | None = Field(ge=1, description="passes over the training split; null: max_steps decides")
    max_steps: int | None = Field(ge=1, description="optimizer updates; null: epochs decides")
    batch_size: int = Field(ge=1, description="examples an update, over all devices together")
    epochs_between_evals: int = Field(ge=1, description="epochs between two evaluations")
    stop_threshold: float | None = Field(
        gt=0,
        le=1,
        description="validation accuracy that ends the training, a fraction and not a percentage; null: never",
    )
    optimizer: Literal["adam"] = Field(description="the optimizer")
    learning_rate: float = Field(gt=0, description="step size of the optimizer")
    seed: Seed = Field(description="chooses initial weights, order of examples and dropout")
    devices: str = Field(pattern=r"^(auto|(cpu|gpu):[1-9][0-9]*)$", description="auto, cpu:N or gpu:N")
    deterministic: bool = Field(description="equal runs give equal weights, bit by bit")

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if (self.epochs is None) == (self.max_steps is None):
            raise PydanticCustomError(
                "one_length",
                "train.epochs and train.max_steps: exactly one must be set, got {epochs} and {steps}",
                {"epochs": _shown(self.epochs), "steps": _shown(self.max_steps)},
            )
        return self


class EvaluateConfig(Section):
    """How the model is scored."""

    batch_size: int = Field(ge=1, description="examples scored at once; changes speed, not scores")


class ExportConfig(Section):
    """How the SavedModel is checked."""

    parity_examples: int = Field(
        ge=1, description="test examples on which export and evaluated model must agree"
    )


class GateConfig(Section):
    """What a model must reach to be promoted."""

    min_accuracy: float = Field(ge=0, le=1, description="test accuracy, a fraction")


class PathsConfig(Section):
    """Where everything lies, relative to the folder that the command is started in."""

    raw: AnyPath
    records: AnyPath
    validation: AnyPath
    index: AnyPath
    model: AnyPath
    training: AnyPath
    metrics: AnyPath
    confusion: AnyPath
    confusion_plot: AnyPath
    export: AnyPath
    decision: AnyPath
    report: AnyPath
    runs: AnyPath
    work: AnyPath
    digests: AnyPath

    @model_validator(mode="after")
    def _apart(self) -> Self:
        paths = {name: getattr(self, name) for name in type(self).model_fields}
        for name, path in paths.items():
            if path.parts[0] in SOURCES:
                raise PydanticCustomError(
                    "overlap", f"paths.{name} must not lie in {path.parts[0]}, got {path}"
                )
            for other, above in paths.items():
                if other != name and path.is_relative_to(above):
                    raise PydanticCustomError(
                        "overlap", f"paths.{name} must not lie in paths.{other}, got {path} and {above}"
                    )
        return self


class Config(Section):
    """All parameters of a run."""

    dataset: DatasetConfig
    preprocessing: PreprocessingConfig
    model: ModelConfig
    train: TrainConfig
    evaluate: EvaluateConfig
    export: ExportConfig
    gate: GateConfig
    paths: PathsConfig


def load(file: Path) -> Config:
    """The parameters in a YAML 1.2 file.

    Raises:
        ConfigError: the file cannot be read or breaks a rule; one line per mistake with the key's
            full path, the rule, the value and, for an unknown key or choice, the nearest valid one.
    """
    try:
        values = YAML(typ="safe", pure=True).load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, YAMLError) as error:
        raise ConfigError(f"{file} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{file} must hold sections ({', '.join(Config.model_fields)})")
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        lines = [_line(details) for details in error.errors()]
        raise ConfigError(f"{file}: " + f"\n{file}: ".join(lines)) from error


def _line(details: ErrorDetails) -> str:
    """One mistake in words."""
    path = ".".join(str(part) for part in details["loc"])
    field = _field(details["loc"])
    meaning = f" ({field.description})" if field is not None and field.description else ""
    match details["type"]:
        case "extra_forbidden":
            return f"{path} is not a key{_nearest(path, _keys(details['loc'][:-1]))}"
        case "missing":
            return f"{path} is missing{meaning}"
        case "one_length" | "overlap":
            return details["msg"]
    rule = details["msg"].replace("Input should", "must").replace("String should", "must")
    rule = rule.replace("Input is", "is")
    if details["type"] == "literal_error":
        choices = str(details.get("ctx", {}).get("expected", ""))
        meaning += _nearest(str(details["input"]), choices.replace("'", "").replace(" or ", ", ").split(", "))
    return f"{path} {rule}, got {_shown(details['input'])}{meaning}"


def _field(location: tuple[int | str, ...]) -> FieldInfo | None:
    """The declared field at a location, if there is one."""
    return _section(location[:-1]).model_fields.get(str(location[-1]))


def _keys(location: tuple[int | str, ...]) -> list[str]:
    """The full paths of the valid keys of a section."""
    return [".".join((*map(str, location), key)) for key in _section(location).model_fields]


def _section(location: tuple[int | str, ...]) -> type[Section]:
    section: Any = Config
    for part in location:
        section = section.model_fields[str(part)].annotation
    return cast("type[Section]", section)


def _nearest(word: str, known: Sequence[str]) -> str:
    """What was probably meant, else all that is known."""
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known)}"


def _shown(value: object) -> str:
    """A value as YAML spells it, without the password that an address may hold."""
    return "null" if value is None else re.sub(r"//[^/\s@]*@", "//***@", repr(value))
