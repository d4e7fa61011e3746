"""What is said of an image."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Probabilities = NDArray[np.float32]  # [classes]


@dataclass(frozen=True, kw_only=True)
class Class:
    """A class that an image may be of."""

    label: str
    index: int  # in the order of the model's outputs
    probability: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Prediction:
    """What the model says of an image."""

    classes: tuple[Class, ...]  # the most probable ones, most probable first
    probabilities: Probabilities  # of all classes, in the order of the model's outputs

    @property
    def label(self) -> str:
        """The name of the most probable class."""
        return self.classes[0].label

    @property
    def index(self) -> int:
        """The number of the most probable class, from 0."""
        return self.classes[0].index

    @property
    def probability(self) -> float:
        """The probability of the most probable class, 0..1."""
        return self.classes[0].probability
