"""Weights and images that programs of different libraries make alike, from the names of slim's variables."""

import zlib

import numpy as np
from numpy.typing import NDArray

SHAPED = ("weights", "depthwise_weights", "pointwise_weights")


def weight(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """The value of a variable, a function of its name and its shape in slim."""
    random, kind = np.random.default_rng(zlib.crc32(name.encode())), name.rsplit("/", 1)[-1]
    if kind in SHAPED:
        fan = shape[0] * shape[1] if kind == SHAPED[1] else int(np.prod(shape[:-1]))
        return (random.standard_normal(shape, np.float32) * np.float32((2 / fan) ** 0.5)).astype(np.float32)
    low, high = {"gamma": (0.5, 1.5), "moving_variance": (0.5, 1.5)}.get(kind, (-0.3, 0.3))
    return random.uniform(low, high, shape).astype(np.float32)


def images(size: int) -> NDArray[np.float32]:
    """Two images, float32 [2, size, size, 3]."""
    return np.random.default_rng(size).uniform(-1, 1, (2, size, size, 3)).astype(np.float32)
