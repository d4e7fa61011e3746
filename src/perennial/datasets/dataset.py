"""What a data set is: its files, its classes and how its examples are read."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from perennial.images import Image

SourceSplit = Literal["train", "test"]


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """A file of the original distribution."""

    name: str
    sha256: str
    content_sha256: str  # of what it holds once uncompressed: a mirror that compressed it again is as good


@dataclass(frozen=True, kw_only=True)
class Examples:
    """The examples of a split, in the order of their source."""

    labels: NDArray[np.int64]  # [N], 0 .. classes - 1
    image: Callable[[int], Image]  # of the example with this number, 0 .. N - 1


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Facts about a data set and the function that reads it.

    `read(folder with the files, "train" or "test")` gives the examples of an original split and
    raises DataError when a file is not what it should be.
    """

    classes: tuple[str, ...]
    files: tuple[SourceFile, ...]
    mirrors: tuple[str, ...]  # base addresses that end in a slash, in the order they are tried
    read: Callable[[Path, SourceSplit], Examples]
