"""What a data set is: its files and how its examples are read."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perennial.config.choices import Split
from perennial.images import BadImage, Image

Images = Callable[[Sequence[int]], Iterator[Image | BadImage]]


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """A file of the original distribution."""

    name: str
    bytes: int
    sha256: str
    content_sha256: str | None = None  # of what a gzip file holds: a mirror that compressed it again is as good


@dataclass(frozen=True, kw_only=True)
class Examples:
    """The examples of a split, in a fixed order. Can be pickled: other processes read the images.

    `images(numbers)` gives the images of the examples with these numbers, 0 .. N - 1, in the order asked for.
    """

    labels: NDArray[np.int64]  # [N], 0 .. classes - 1
    images: Images
    encoded_bytes: int  # of all images together, about
    names: Sequence[str] = ()  # of the files, N of them, where each example is a file


@dataclass(frozen=True, kw_only=True)
class Source:
    """What the files of a data set hold: classes in the order of their labels, and the splits it has."""

    classes: tuple[str, ...]
    splits: Mapping[Split, Examples]


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Facts about a data set and the function that reads it.

    `read(folder)` gets a folder with the files, those that were compressed without their `.gz` or as a plain
    `.tar`, and raises DataError when one is not what it should be.
    """

    read: Callable[[Path], Source]
    files: tuple[SourceFile, ...] = ()
    instead: tuple[SourceFile, ...] = ()  # as good as `files`, where those cannot be had
    decoded: bool = False  # whether images are decoded on the way: then they cost more to make than to send
    mirrors: tuple[str, ...] = ()  # base addresses that end in a slash, in the order they are tried
    # For data of one's own: puts what dataset.path names into the raw folder (its content, then the folder).
    collect: Callable[[Path, Path], None] | None = None
