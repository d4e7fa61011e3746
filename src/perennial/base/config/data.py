"""Sections of params.yaml about images: data set, validation, preprocessing and network."""

import difflib
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from perennial.base import choices
from perennial.base.choices import SPLITS, Split
from perennial.base.config.fields import (
    AnyPath,
    AutoOrCount,
    Count,
    CountOrZero,
    Gpus,
    Section,
    Seed,
    SourceUrl,
    Url,
    is_component,
    kind,
    option,
    or_component,
)
from perennial.base.config.networks import BY_NAME, LAPTOP, NAMES, PRETRAINED, network_name

TABLE_KEYS = "path, file, label, split, separator, classes, unlabelled, group"


def _texts(value: Any) -> Any:
    """Write the keys of a mapping and the elements of a list as text, as a table holds them."""
    if isinstance(value, list):
        return [each if isinstance(each, str) else str(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _texts(each) if isinstance(each, dict) else each for key, each in value.items()}
    return value


def _splits(value: Any) -> Any:
    """Check what the values of a column of splits mean."""
    for words in value.values() if isinstance(value, dict) else ():
        for meant in words.values() if isinstance(words, dict) else ():
            if meant not in SPLITS:
                raise ValueError(f"must give train, validation or test for each value, got {meant!r}")
    return _texts(value)


Name = Annotated[str, Field(min_length=1)]
Column = str | Count  # its name, or its number from 1 in a table without a header
Words = Annotated[dict[str, Split], Field(min_length=1)]  # the split that each value means


class TableConfig(Section):
    """A table of labels: where it is, and which of its columns mean what."""

    path: Name | Annotated[dict[Split, Name], Field(min_length=1)]  # below dataset.path; or one for each split
    file: Column | None = None
    label: Column | list[str] | None = None  # null: the class folders; a list: columns of 0 and 1
    split: Annotated[
        Column | Annotated[dict[str, Words], Field(min_length=1, max_length=1)] | None, BeforeValidator(_splits)
    ] = None  # null: that of the folders, or perennial splits
    separator: Name | None = None  # between the labels of a cell; null: JSON lists, or one label
    classes: Name | None = None  # a list of classes that names numbers
    unlabelled: Annotated[list[str] | None, BeforeValidator(_texts)] = None  # cells without one; null: usual
    group: Column | None = None  # images with the same value, as of a patient, stay in the same split

    @property
    def paths(self) -> dict[Split | None, str]:
        """The tables, each with the split that it is for."""
        if isinstance(self.path, str):
            return {None: self.path}
        return {split: self.path[split] for split in SPLITS if split in self.path}

    @property
    def labels(self) -> list[Any]:
        """The columns of labels; none if the class folders give them."""
        return self.label if isinstance(self.label, list) else [] if self.label is None else [self.label]

    @property
    def group_column(self) -> str | None:
        """The name of the column of groups among the further columns."""
        return f"column {self.group}" if isinstance(self.group, int) else self.group

    @property
    def has_header(self) -> bool:
        """Whether the first row of the table names its columns."""
        return not isinstance(self.file, int)

    @property
    def block(self) -> dict[str, Any]:
        """The value of dataset.table in params.yaml."""
        found = self.model_dump(mode="json")
        return {
            key: value for key, value in found.items() if value is not None or key in TABLE_KEYS.split(", ")[:4]
        }

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        columns = [self.file, self.group, *self.labels]
        columns.append(self.split if not isinstance(self.split, dict) else None)
        named = [column for column in columns if column is not None]
        by_split = isinstance(self.path, dict)
        if self.file is None:
            raise ValueError("needs the column of files: set file to its name")
        if len({isinstance(column, int) for column in named}) > 1:
            raise ValueError("names all columns by name, or all by number in a table without a header")
        if len(set(named)) < len(named):
            raise ValueError(f"uses a column twice: {named}")
        if isinstance(self.label, list) and len(self.label) < 2:
            raise ValueError("needs two or more columns of 0 and 1 in a list for label")
        if self.separator is not None and not isinstance(self.label, str | int):
            raise ValueError("splits the labels of one column: set label to it, or separator to null")
        if by_split and self.split is not None:
            raise ValueError("has a table for each split, so split must be null")
        if by_split and "train" not in self.path:
            raise ValueError("needs a table of the split train")
        if self.label is None and self.split is None and not by_split:
            raise ValueError("gives neither labels nor splits: set label or split to a column")
        return self


def _table(value: Any) -> Any:
    """Check the mapping; its errors name the key inside."""
    if value is None or isinstance(value, TableConfig):
        return value
    if not isinstance(value, dict):
        raise ValueError(f"must be null or a mapping with {TABLE_KEYS}")  # noqa: TRY004 - pydantic takes it
    if unknown := value.keys() - set(TABLE_KEYS.split(", ")):
        raise ValueError(f"has no key {min(map(str, unknown))}; its keys are {TABLE_KEYS}")
    try:
        return TableConfig.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"][:1]))
        rule = first["msg"].removeprefix("Value error, ").replace("Input should", "must")
        raise ValueError(f"{f'{place}: ' if place else ''}{rule}") from None


Table = Annotated[TableConfig | None, BeforeValidator(_table), kind(f"mapping with {TABLE_KEYS}, or null")]


class DatasetConfig(Section):
    """The images, where they come from, and how they are split."""

    name: Annotated[choices.Dataset | str, or_component(choices.Dataset)] = option(
        "digits", "or components.data.MODULE:NAME"
    )
    task: choices.Task = option("multiclass", "multilabel: several labels an image, from a table or tfrecord")
    base_url: Url | None = option(None, "folder that replaces the built-in mirrors; null: the mirrors")
    path: AnyPath = option(Path("own"), "your folder or archive, for image_folder, tfrecord and imagenet")
    url: SourceUrl | None = option(None, "changing source: s3://, an https:// archive or a path; null: path")
    table: Table = option(None, "image_folder: the table that gives labels or splits; null: the class folders")
    digests: Literal["pinned", "record"] = option(
        "pinned", "pinned: accept only known files; record: trust the first download, verify later ones"
    )
    validation_fraction: float = option(0.1, "share of training held out for validation; 0: none", ge=0, lt=1)
    test_fraction: float = option(0.1, "share held out for test, if there is no test split", gt=0, lt=1)
    seed: Seed = option(0, "seed that selects the examples held out for validation")
    shards: AutoOrCount = option("auto", "TFRecord files in each split; auto: 100 to 200 MB each")
    layout: Literal["perennial", "slim"] = option(
        "perennial", "slim: for programs that read TF-Slim's files, not for training"
    )
    on_bad_image: Literal["fail", "skip"] = option("fail", "for files that are not valid images")
    transparency: choices.Transparency = option(
        "drop", "drop: keep the colour of transparent pixels; white: put them on white"
    )
    max_side: int | None = option(
        None, "reduce the longer side of larger images to these pixels; null: no", ge=64
    )

    @model_validator(mode="after")
    def _own_data(self) -> Self:
        if self.url is not None and self.name not in {"image_folder", "tfrecord"}:
            raise ValueError(
                f"dataset.url is for dataset.name image_folder or tfrecord, got {self.name}; set it to null"
            )
        if self.table is not None and self.name != "image_folder":
            raise ValueError(f"dataset.table is for dataset.name image_folder, got {self.name}; set it to null")
        if self.table is not None and self.table.group is not None and self.layout == "slim":
            raise ValueError("dataset.layout slim knows no groups, and dataset.table has a column of them")
        return self

    @model_validator(mode="after")
    def _has_labels_for_task(self) -> Self:
        if self.task == "multiclass":
            if self.table is not None and self.table.separator is not None:
                raise ValueError(
                    "dataset.table.separator is for dataset.task multilabel, got multiclass; set one of them"
                )
        elif self.name == "image_folder" and (self.table is None or self.table.label is None):
            raise ValueError(
                "dataset.task multilabel needs dataset.table with a column of labels: class folders give one "
                "label an image"
            )
        elif self.layout == "slim":
            raise ValueError("dataset.layout slim holds one label an image, and dataset.task is multilabel")
        elif self.name not in {"image_folder", "tfrecord"} and not is_component(self.name):
            raise ValueError(
                f"dataset.task multilabel is for dataset.name image_folder or tfrecord, got {self.name}, whose "
                "images have one label; set it to multiclass"
            )
        return self


class SeverityConfig(Section):
    """Effect of each problem: error stops the run, warn reports it."""

    label_conflict: choices.Severity = option("error", "equal images with different labels")
    duplicate_across_splits: choices.Severity = option("error", "equal images in two splits")
    duplicate_in_split: choices.Severity = option("warn", "equal images in one split")
    near_duplicate: choices.Severity = option("warn", "images with almost equal perceptual hashes")
    class_missing: choices.Severity = option("error", "classes without examples")
    class_imbalance: choices.Severity = option("warn", "class sizes beyond max_class_ratio")
    drift_labels: choices.Severity = option("warn", "class shares beyond max_label_drift")
    drift_brightness: choices.Severity = option("warn", "brightness beyond max_brightness_drift")


class ValidateConfig(Section):
    """Checks of the records and their thresholds."""

    decode: Literal["all", "sample", "none"] = option("all", "which images to decode; sample: one in ten")
    near_duplicate_bits: int | None = option(
        4, "maximum distance of near duplicates; null: no search", ge=0, le=8
    )
    max_class_ratio: float = option(10.0, "maximum ratio of the largest training class to the smallest", ge=1)
    max_label_drift: float = option(0.05, "maximum change of a class's share", gt=0, le=1)
    max_brightness_drift: float = option(0.1, "maximum change of brightness", gt=0, le=1)
    severity: SeverityConfig = Field(default_factory=SeverityConfig)


class ComputeConfig(Section):
    """Where work runs; does not change results."""

    engine: Literal["processes", "ray"] = option("processes", "ray: work on the cluster of RAY_ADDRESS")
    processes: AutoOrCount = option("auto", "processes on this machine; auto: one per core")
    gpus: Gpus = option("all", "GPUs that a stage reserves if its devices are auto: all, or a number")


class PreprocessingConfig(Section):
    """Conversion of a record's pixels to the input of the network."""

    name: Annotated[choices.Preprocessing | str, or_component(choices.Preprocessing)] = option(
        "rescale", "or components.MODULE:NAME"
    )
    image_size: Annotated[int | None, kind("whole number from 1 to 4096, network or null")] = option(
        None, "pixels a side; network: the size it was published for; null: the data set's own", ge=1, le=4096
    )
    grayscale: bool = option(False, "one channel instead of three")
    resize: Literal["auto", "legacy", "exact"] = option(
        "auto", "legacy: as TensorFlow 1; exact: as tf.image; auto: as the network was published"
    )
    fast: bool = option(True, "inception: only the cheap colour and resize distortions")


class ModelConfig(Section):
    """The network."""

    name: Annotated[
        str, or_component(NAMES), BeforeValidator(network_name), kind("a name that `perennial models` lists")
    ] = option("mnist_cnn", "network; `perennial models` lists all; or components.MODULE:NAME, one of your own")
    dropout: float | None = option(None, "dropout rate; null: the network's own", ge=0, lt=1)
    batch_norm_decay: float | None = option(None, "batch normalization's; null: the network's own", ge=0, lt=1)
    conv_stddev: float | None = option(None, "cifar10_tutorial: of initial weights; null: 0.05", gt=0)
    channels: Annotated[
        Annotated[list[Count], Field(min_length=3, max_length=3)] | None,
        kind("a list of 3 whole numbers above 0, or null"),
    ] = option(None, "fast_cnn: channels of its three blocks; null: [64, 128, 128]")
    labels_offset: CountOrZero = option(0, "first classes of labels.txt to leave out, such as a background")
    weights: str | None = option(None, "imagenet: those of Keras; or a file of such weights; null: random")
    weights_url: Url | None = option(None, "folder with the file for weights: imagenet; null: Keras' address")

    @model_validator(mode="after")
    def _has_published_weights(self) -> Self:
        near = difflib.get_close_matches(self.weights or "", [BY_NAME], n=1)
        if near and self.weights != BY_NAME and not re.search(r"[./]", self.weights or ""):
            raise ValueError(
                f"model.weights must be imagenet, a file (.h5) or null, got {self.weights}; "
                f"did you mean {near[0]}?"
            )
        if self.weights == BY_NAME and is_component(self.name):
            raise ValueError(
                f"model.weights: imagenet is not published for {self.name}; set model.weights to null"
            )
        if self.weights == BY_NAME and f"keras_{self.name}" in PRETRAINED:
            raise ValueError(
                f"model.weights: imagenet is published for model.name keras_{self.name}, the network of Keras "
                f"Applications, and not for {self.name}, which is slim's"
            )
        if self.weights == BY_NAME and self.name not in PRETRAINED:
            raise ValueError(
                f"model.weights: imagenet is published for {', '.join(PRETRAINED)}, and not for model.name "
                f"{self.name}; small ones for a laptop are {', '.join(LAPTOP)}; or set model.weights to null"
            )
        return self
