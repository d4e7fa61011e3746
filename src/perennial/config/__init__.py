"""params.yaml as frozen models: every key must be there, no other may be, and each mistake gets a line."""

from pathlib import Path
from typing import Self

from pydantic import Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from perennial.config import mistakes
from perennial.config.release import (
    EvaluateConfig,
    ExportConfig,
    GateConfig,
    PublishConfig,
    publish_folder,
)
from perennial.config.sections import (
    ComputeConfig,
    DatasetConfig,
    ModelConfig,
    PathsConfig,
    PreprocessingConfig,
    ValidateConfig,
)
from perennial.config.training import CheckpointsConfig, LoggingConfig, TrainConfig
from perennial.config.types import Section, shown
from perennial.errors import ConfigError


class Config(Section):
    """All parameters of a run."""

    dataset: DatasetConfig
    validation: ValidateConfig = Field(alias="validate")
    compute: ComputeConfig
    preprocessing: PreprocessingConfig
    model: ModelConfig
    train: TrainConfig
    checkpoints: CheckpointsConfig
    logging: LoggingConfig
    evaluate: EvaluateConfig
    export: ExportConfig
    gate: GateConfig
    publish: PublishConfig
    paths: PathsConfig

    @model_validator(mode="after")
    def _own_data_apart(self) -> Self:
        own, real = self.dataset.path, self.dataset.path.resolve()
        for name in type(self.paths).model_fields:
            path = getattr(self.paths, name)
            if real.is_relative_to(path.resolve()) or path.resolve().is_relative_to(real):
                raise PydanticCustomError(
                    "overlap",
                    f"dataset.path must not lie in paths.{name} or hold it, got {own} and {path}",
                )
        return self

    @model_validator(mode="after")
    def _published_apart(self) -> Self:
        if self.publish.url is not None:
            try:
                publish_folder(self.publish.url, self.paths)
            except ValueError as error:
                told = f"publish.url {error}, got {shown(self.publish.url)}"
                raise PydanticCustomError("overlap", "{told}", {"told": told}) from error
        return self


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
        raise ConfigError(f"{file} must hold sections ({', '.join(mistakes.keys(Config))})")
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        lines = mistakes.lines(Config, error.errors())
        raise ConfigError(f"{file}: " + f"\n{file}: ".join(lines)) from error
