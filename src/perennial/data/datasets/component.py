"""Data sets of a project's own components: what they return is checked, and their errors name them."""

import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from perennial.base.choices import SPLITS
from perennial.base.project import own_components
from perennial.data.datasets.dataset import Dataset, Examples, Source
from perennial.data.images import BadImage, Image


def load(name: str) -> Dataset:
    """The data set of a component."""
    found: Dataset = own_components.load(name, "an object of Dataset", lambda each: isinstance(each, Dataset))
    return replace(found, read=partial(_read, name, found.read))


def _read(name: str, read: Callable[[Path], Source], folder: Path) -> Source:
    """Read the data set, and check the result."""
    source: Source = own_components.call(name, read, folder)
    if wrong := _wrong(source):
        raise own_components.refused(name, wrong)
    splits = {
        split: replace(examples, images=partial(_images, name, examples.images))
        for split, examples in source.splits.items()
    }
    return replace(source, splits=splits)


def _wrong(source: object) -> str | None:
    if not isinstance(source, Source):
        return f"returned {own_components.described(source)}, expected a Source"
    if not source.classes or not all(isinstance(each, str) for each in source.classes):
        return f"returned the classes {source.classes!r}, expected a tuple of names"
    if not isinstance(source.splits, Mapping) or not {"train"} <= set(source.splits) <= set(SPLITS):
        found = ", ".join(map(str, source.splits))
        return f"returned the splits {found}, expected train, and perhaps validation and test"
    shape = (len(source.classes),) if source.task == "multilabel" else ()
    parts = ((split, _wrong_split(each, len(source.classes), shape)) for split, each in source.splits.items())
    return next((f"returned a split {split} {wrong}" for split, wrong in parts if wrong), None)


def _wrong_split(examples: object, classes: int, shape: tuple[int, ...]) -> str | None:
    if not isinstance(examples, Examples):
        return f"that is {own_components.described(examples)}, expected Examples"
    for field, expected in (("labels", shape), ("image_bytes", ())):
        values = getattr(examples, field)
        if not isinstance(values, np.ndarray) or values.ndim < 1 or values.shape[1:] != expected:
            sizes = ", ".join(map(str, ("N", *expected)))
            return f"whose {field} are {own_components.described(values)}, expected a NumPy array [{sizes}]"
    labels, count, most = examples.labels, len(examples.labels), 1 if shape else classes - 1
    if count and not (labels.dtype.kind in "iu" and 0 <= labels.min() <= labels.max() <= most):
        found = f"{labels.dtype} from {labels.min()} to {labels.max()}"
        return f"with labels {found}, expected whole numbers from 0 to {most}"
    if len(examples.image_bytes) != count or (len(examples.names) not in {0, count}):
        return f"with {count} labels, {len(examples.image_bytes)} image_bytes and {len(examples.names)} names"
    try:
        with Path(os.devnull).open("wb") as nowhere:
            pickle.dump(examples, nowhere)
    except Exception as error:  # noqa: BLE001 - pickling raises errors of many kinds
        return (
            f"that other processes cannot read: {error}; let `images` be a function of the module, with its "
            "first arguments bound by functools.partial"
        )
    return None


def _images(
    name: str, images: Callable[..., Iterator[Image | BadImage]], indices: Sequence[int], **options: object
) -> Iterator[Image | BadImage]:
    """The images of a component, checked; called in other processes, too."""
    count = 0
    with own_components.naming_component():
        for image in images(indices, **options):
            if not isinstance(image, Image | BadImage):
                raise own_components.refused(name, f"yielded {own_components.described(image)}, not an Image")
            yield image
            count += 1
    if count != len(indices):
        raise own_components.refused(name, f"yielded {count} images, expected {len(indices)}")
