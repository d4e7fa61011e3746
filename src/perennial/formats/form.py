"""What a form of an export is."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Images: TypeAlias = Callable[[], Iterable[NDArray[Any]]]  # one by one, as the form takes them
# From a batch of images to classes int64 [N] and probabilities float32 [N, classes].
Answer: TypeAlias = Callable[[NDArray[Any]], tuple[NDArray[np.int64], NDArray[np.float32]]]


@dataclass(frozen=True, kw_only=True)
class Form:
    """A form that an export has besides the SavedModel: who makes it, who reads it, how far it may be off."""

    file: str  # in assets.extra of the export
    convert: Callable[[Any, Images], bytes]  # a frozen GraphDef, and training images to measure ranges on
    runner: Callable[[Path], Answer]
    difference: float  # the most that a probability may differ from the scored model's
    agreement: float  # the least share of examples that get the scored model's class
    unknown: frozenset[str] = frozenset()  # operations of preprocessings that it has none for
    any_size: bool = True  # whether its preprocessing takes images of all sizes
    needs: tuple[str, ...] = ()  # packages of the extra with its name
