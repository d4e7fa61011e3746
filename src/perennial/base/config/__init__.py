"""params.yaml as frozen models: every key is required, unknown keys are refused, one line per error."""

from functools import cached_property
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator

from perennial.base import documents, layout
from perennial.base.choices import STOP_METRICS, Task
from perennial.base.config import data, error_messages, release, training
from perennial.base.config.fields import Section, is_component, refused_texts, shown, without_secrets
from perennial.base.config.networks import BY_NAME, NETWORK_SIZE, NETWORKS, network_facts, network_name
from perennial.base.config.paths import Paths, PathsConfig, publish_target, require_own_data_apart
from perennial.base.errors import ConfigError

IMAGE_SIZES = {"digits": 8, "mnist": 28, "cifar10": 32}  # pixels a side of data sets whose images have one size
# Keys that depend on validation scores, and their value without effect.
NEED_SCORES = {"train.stop_threshold": None, "train.patience": None, "train.keep": "last"}
# Keys that a task does not have: their value without effect, and the key to use instead.
OTHER_TASKS: dict[Task, dict[str, tuple[object, str]]] = {
    "multilabel": {
        "train.class_weights": (None, "train.positive_weights"),
        "evaluate.calibrate": (False, "evaluate.threshold"),
        "evaluate.max_error": (None, "evaluate.threshold"),
        "gate.min_accuracy": (None, "gate.min_map"),
        "gate.min_class_recall": (None, "gate.max_class_drop"),
        "gate.max_calibration_error": (None, "gate.min_map"),
        "gate.traffic": (None, "gate.max_slice_drop"),
    },
    "multiclass": {
        "train.positive_weights": (None, "train.class_weights"),
        "evaluate.threshold": ("f1", "evaluate.max_error"),
        "gate.min_map": (None, "gate.min_accuracy"),
    },
}


class Config(Section):
    """All parameters of a run."""

    dataset: data.DatasetConfig = Field(default_factory=data.DatasetConfig)
    preprocessing: data.PreprocessingConfig = Field(default_factory=data.PreprocessingConfig)
    model: data.ModelConfig = Field(default_factory=data.ModelConfig)
    gate: release.GateConfig = Field(default_factory=release.GateConfig)
    train: training.TrainConfig = Field(default_factory=training.TrainConfig)
    validation: data.ValidateConfig = Field(default_factory=data.ValidateConfig, alias="validate")
    compute: data.ComputeConfig = Field(default_factory=data.ComputeConfig)
    checkpoints: training.CheckpointsConfig = Field(default_factory=training.CheckpointsConfig)
    logging: training.LoggingConfig = Field(default_factory=training.LoggingConfig)
    evaluate: release.EvaluateConfig = Field(default_factory=release.EvaluateConfig)
    export: release.ExportConfig = Field(default_factory=release.ExportConfig)
    record: release.RecordConfig = Field(default_factory=release.RecordConfig)
    publish: release.PublishConfig = Field(default_factory=release.PublishConfig)
    monitor: release.MonitorConfig = release.MonitorConfig()
    label: release.LabelConfig = release.LabelConfig()
    chosen_paths: PathsConfig = Field(default_factory=PathsConfig, alias="paths")

    @cached_property
    def paths(self) -> Paths:
        """Where the files of the pipeline stand."""
        return Paths(work=self.chosen_paths.work)

    @model_validator(mode="before")
    @classmethod
    def _sized_by_network(cls, values: Any) -> Any:
        """Replace `image_size: network` by the network's size in pixels, which all other code expects."""
        try:
            pixels, name = values["preprocessing"], network_name(values["model"]["name"])
            asked = pixels["image_size"] == NETWORK_SIZE and name in NETWORKS
        except (KeyError, TypeError):
            return values  # the sections' own rules report the error
        if is_component(name) and pixels["image_size"] == NETWORK_SIZE:
            raise ValueError(
                f"preprocessing.image_size must be a number or null for model.name {name}, got network: the "
                "size of your own network is not known"
            )
        if not asked:
            return values
        return {**values, "preprocessing": {**pixels, "image_size": NETWORKS[name].image_size}}

    @model_validator(mode="after")
    def _folders_apart(self) -> Self:
        self.paths.require_safe()
        require_own_data_apart("dataset.path", self.dataset.path, self.paths)
        if self.dataset.url is not None and "://" not in self.dataset.url:
            require_own_data_apart("dataset.url", Path(self.dataset.url), self.paths)
        for key, url in (("publish.url", self.publish.url), ("checkpoints.remote", self.checkpoints.remote)):
            try:
                if url is not None:
                    publish_target(url, self.paths, self.dataset.path)
            except ValueError as error:
                raise ValueError(f"{key} {error}, got {shown(url)}") from error
        return self

    @model_validator(mode="after")
    def _rules_have_scores(self) -> Self:
        """Without a validation split, raise if an option depends on validation scores."""
        if self.dataset.validation_fraction == 0:
            why = ": without a validation split there are no scores to decide by"
            for key, without in NEED_SCORES.items():
                self._require(key, without, "dataset.validation_fraction 0", why)
        return self

    @model_validator(mode="after")
    def _has_weights_without_training(self) -> Self:
        needed = self.train.max_steps == 0 and not is_component(self.model.name)
        if needed and self.train.warm_start.path is None:
            raise ValueError(
                "train.max_steps must be above 0 for train.warm_start.path null, got 0: a model that is not "
                "trained needs the weights of another"
            )
        return self

    @model_validator(mode="after")
    def _network_fits_images(self) -> Self:
        size, least = self.preprocessing.image_size, network_facts(self.model.name).least_size
        own = IMAGE_SIZES.get(self.dataset.name)
        if (size or own or least) < least:
            why = f"got {size}" if size else f"got null: images of {self.dataset.name} have {own} pixels a side"
            raise ValueError(f"preprocessing.image_size must be at least {least} for {self.model.name}, {why}")
        if self.export.mirror and network_facts(self.model.name).mirrors:
            raise ValueError(
                f"export.mirror must be false for {self.model.name}, got true: it averages mirror images itself"
            )
        if self.model.weights == BY_NAME and self.preprocessing.grayscale:
            raise ValueError(
                "preprocessing.grayscale must be false for model.weights imagenet, got true: the published "
                "weights take images of 3 channels"
            )
        return self

    @model_validator(mode="after")
    def _fits_task(self) -> Self:
        task, metric = self.dataset.task, self.train.stop_metric
        for key, (without, instead) in OTHER_TASKS[task].items():
            self._require(key, without, f"dataset.task {task}", f"; use {instead}")
        if metric not in (known := STOP_METRICS[task]):
            raise ValueError(
                f"train.stop_metric must be {' or '.join(known)} for dataset.task {task}, got {metric}"
            )
        return self

    def _require(self, key: str, without: object, place: str, end: str) -> None:
        """Check that a key has no effect, which its value `without` says."""
        section, name = key.split(".")
        if (value := getattr(getattr(self, section), name)) != without:
            raise ValueError(f"{key} must be {shown(without)} for {place}, got {shown(value)}{end}")


def load(file: Path) -> Config:
    """Load the parameters from a YAML 1.2 file."""
    return load_with_values(file)[0]


def load_with_values(file: Path) -> tuple[Config, dict[str, Any]]:
    """Load the parameters, and the values that the file has for them; raises the errors of `load`."""
    try:
        values = read(file.read_text(encoding="utf-8"))
        return check(values), values
    except FileNotFoundError as error:
        known = layout.Project.find(file.parent).pipelines()
        names = ", ".join(each.name for each in known if each.name)
        some = f"the project has pipelines: {names}; `perennial --pipeline NAME` works on one"
        none = "change to the folder of your project, or name a file with --params"
        raise ConfigError(f"{file} does not exist; {some if names else none}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error
    except ConfigError as error:
        raise ConfigError("\n".join(f"{file}: {line}" for line in str(error).splitlines())) from error


def read(text: str) -> dict[str, Any]:
    """Parse the text of a params.yaml into its sections."""
    try:
        values = documents.parse_yaml(text)
    except ValueError as error:
        raise ConfigError(f"cannot be read: {without_secrets(' '.join(str(error).split()))}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"must hold sections ({', '.join(error_messages.by_key(Config))})")
    return values


def check(values: dict[str, Any]) -> Config:
    """Check the sections of a params.yaml and return the parameters."""
    if refused := list(refused_texts(values)):
        raise ConfigError("\n".join(f"{path} {rule}" for path, rule in refused))
    found = error_messages.missing(Config, values)
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        found += error.errors()
    if found:
        raise ConfigError("\n".join(error_messages.lines(Config, found)))
    return config
