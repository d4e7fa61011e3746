"""Definition of a data set: its files and the functions that read them.

What a data set of a project's own components returns is checked, and its errors name the component.
"""

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from perennial.base.choices import SPLITS, Split, Task, Transparency
from perennial.base.project import own_components
from perennial.data.images import BadImage, Image, accept
from perennial.data.tfrecord.label_arrays import LabelArray

Images = Callable[[Sequence[int]], Iterator[Image | BadImage]]
# Added examples: drawn at random, which only measure; chosen, which only train; drawn for the test split.
DRAWN, CHOSEN, TESTED = 1, 2, 3


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """A file of the original distribution."""

    name: str
    bytes: int
    sha256: str
    content_sha256: str | None = None  # of the content of a gzip file, because mirrors may compress differently


@dataclass(frozen=True, kw_only=True)
class Examples:
    """The examples of a split in a fixed order. Picklable: other processes read the images.

    `images(indices)` yields the images of the examples with these indices, 0 .. N - 1, in that order.
    `originals(indices)` yields the content of their files, because a record may hold a re-encoded image.
    """

    labels: LabelArray  # integers [N], 0 .. classes - 1; of several labels: uint8 [N, classes], 0 or 1
    images: Images
    image_bytes: NDArray[np.int64]  # [N], approximate size of each image
    names: Sequence[str] = ()  # N file names, if each example is a file
    originals: Callable[[Sequence[int]], Iterator[bytes]] | None = None
    alpha: bool = False  # whether images may have an alpha channel: `images` takes the keyword `transparency`
    further: Sequence[tuple[str, ...]] = ()  # N rows of `Source.columns`, if a table has such columns
    kinds: NDArray[np.uint8] | None = None  # [N], 0 for the source's own, or as above; None: all its own
    shape: tuple[int, int, int] | None = None  # height, width and channels, 1 or 3, if all images have the same
    max_side: int | None = None  # pixels to which `images` reduces the longer side

    def adapted(self, transparency: Transparency, max_side: int | None) -> Self:
        """The examples with transparent pixels dropped or on white, and larger images reduced to `max_side`.

        Images of one shape keep it.
        """
        max_side = None if self.shape else max_side
        images: Any = self.images
        images = partial(images, transparency=transparency) if self.alpha else images
        images = images if max_side is None else partial(_limited, images, max_side)
        return replace(self, images=images, max_side=max_side)


def _limited(images: Images, max_side: int, indices: Sequence[int]) -> Iterator[Image | BadImage]:
    for image in images(indices):
        yield image if isinstance(image, BadImage) else accept.limited(image, max_side)


@dataclass(frozen=True, kw_only=True)
class Source:
    """Content of a data set: classes in the order of their labels, and its splits."""

    classes: tuple[str, ...]
    splits: Mapping[Split, Examples]
    task: Task = "multiclass"
    columns: tuple[str, ...] = ()  # further columns of a table of labels


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Facts about a data set and the function that reads it.

    `read(folder)` gets a folder with the unpacked files, without `.gz` and archives as plain `.tar`, and raises
    DataError if one is damaged or unexpected.
    """

    read: Callable[[Path], Source]
    files: tuple[SourceFile, ...] = ()
    decoded: bool = False  # whether reading decodes the images, so that worker processes pay off
    mirrors: tuple[str, ...] = ()  # base URLs that end in a slash, in the order in which they are tried
    # For the user's own data: `collect(path, raw)` copies a folder or archive into the raw folder;
    # `assemble(files, raw)` copies fetched files, given as pairs of the name below `dataset.url` and the path.
    collect: Callable[[Path, Path], None] | None = None
    assemble: Callable[[Iterable[tuple[str, Path]], Path], None] | None = None
    belongs: Callable[[str], bool] = bool  # whether a name below `dataset.url` is part of the data; bool: all


def of_component(name: str) -> Dataset:
    """The data set of a component."""
    found: Dataset = own_components.load(name, "an object of Dataset", lambda each: isinstance(each, Dataset))
    return replace(found, read=partial(_read_component, name, found.read))


def _read_component(name: str, read: Callable[[Path], Source], folder: Path) -> Source:
    """Read the data set, and check the result."""
    source: Source = own_components.call(name, read, folder)
    if wrong := _wrong(source):
        raise own_components.refused(name, wrong)
    splits = {
        split: replace(examples, images=partial(_component_images, name, examples.images))
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


def _component_images(
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
