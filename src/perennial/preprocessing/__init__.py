"""What happens to pixels between the record and the model: the same in training, evaluation and export."""

from collections.abc import Callable

import tensorflow as tf
from pydantic import BaseModel, ConfigDict

from perennial.preprocessing.rescale import rescale

PREPROCESSING: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "rescale": rescale,
}


class Pixels(BaseModel):
    """The way of an image from raw pixels to the model's input."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    preprocessing: str  # in PREPROCESSING
    height: int | None  # of the data set's images; None where they differ
    width: int | None
    channels: int
    image_size: int | None  # side after resizing; None: not resized

    @property
    def raw_shape(self) -> tuple[int | None, int | None, int]:
        """Height, width and channels of what comes in."""
        return self.height, self.width, self.channels

    @property
    def model_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of what the model gets."""
        if self.image_size is not None:
            return self.image_size, self.image_size, self.channels
        if self.height is None or self.width is None:
            raise ValueError("images of different sizes need an image_size")
        return self.height, self.width, self.channels

    def resize(self, images: tf.Tensor) -> tf.Tensor:
        """uint8 [..., height, width, channels] at the model's height and width, bilinear, rounded."""
        size = self.model_shape[:2]
        if self.raw_shape[:2] == size:
            return images
        resized = tf.image.resize(images, size, antialias=True)
        return tf.cast(tf.round(resized), tf.uint8)

    def preprocess(self, images: tf.Tensor) -> tf.Tensor:
        """Float32 [N, height, width, channels] for the model, from resized uint8 of that shape."""
        return PREPROCESSING[self.preprocessing](images)
