"""Images and descriptions that the tests of preprocessing share."""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from perennial.data.preprocessing import ImageSpec


@pytest.fixture
def pixels() -> Callable[..., ImageSpec]:
    """Describes images: `pixels("vgg", (32, 32, 3), image_size=24)`."""

    def describe(name: str, shape: tuple[int | None, int | None, int], **options: object) -> ImageSpec:
        height, width, channels = shape
        described = {"image_size": None, "grayscale": False, "fast": True, **options}
        return ImageSpec(preprocessing=name, height=height, width=width, channels=channels, **described)

    return describe


@pytest.fixture
def images() -> Callable[..., tf.Tensor]:
    """Makes smooth images with colours and noise, uint8 [count, height, width, channels]."""

    def make(count: int, height: int, width: int, channels: int) -> tf.Tensor:
        random = np.random.default_rng(height * width * channels)
        coarse = random.uniform(0, 255, (count, height // 4 + 2, width // 4 + 2, channels))
        smooth = tf.image.resize(coarse, (height, width), method="bicubic").numpy()
        noisy = smooth + random.normal(0, 6, smooth.shape)
        return tf.constant(np.clip(noisy, 0, 255).round().astype(np.uint8))

    return make
