"""What an architecture is: a function that builds it and the images it was published for."""

from collections.abc import Callable
from dataclasses import dataclass

import keras


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """An image classifier that gives logits."""

    build: Callable[[tuple[int, int, int], int], keras.Model]  # (height, width, channels), classes
    image_size: int  # pixels a side, of the original
    channels: int  # of the original
