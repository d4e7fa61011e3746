"""What happens to pixels between record and model: distorted in training, else the same everywhere."""

import tensorflow as tf
from pydantic import BaseModel, ConfigDict

from perennial.config.sections import PreprocessingConfig
from perennial.errors import ConfigError
from perennial.preprocessing.cifar import CIFAR10_TUTORIAL, CIFARNET
from perennial.preprocessing.inception import INCEPTION
from perennial.preprocessing.lenet import LENET
from perennial.preprocessing.randomness import keys
from perennial.preprocessing.rescale import RESCALE
from perennial.preprocessing.standard import STANDARD
from perennial.preprocessing.target import Preprocessing, Target
from perennial.preprocessing.vgg import VGG

__all__ = ["PREPROCESSING", "Pixels", "fitted", "keys"]
PREPROCESSING: dict[str, Preprocessing] = {
    "rescale": RESCALE,
    "lenet": LENET,
    "cifarnet": CIFARNET,
    "cifar10_tutorial": CIFAR10_TUTORIAL,
    "inception": INCEPTION,
    "vgg": VGG,
    "standard": STANDARD,
}
LARGEST_STACKED = 512 * 512  # pixels; a batch of larger images would fill a device's memory


class Pixels(BaseModel):
    """The way of an image from raw pixels to the model's input; saved with the model.

    All four ways give float32 [N, height, width, channels] of `model_shape`, without N for one image.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    preprocessing: str  # in PREPROCESSING
    height: int | None  # of the data set's images; None where they differ
    width: int | None
    channels: int  # of the data set's images: 1 or 3
    image_size: int | None  # side of the result; None: as the images
    grayscale: bool  # one channel in the result
    fast: bool  # inception trains with the cheap distortions

    @property
    def raw_shape(self) -> tuple[int | None, int | None, int]:
        """Height, width and channels of what comes in."""
        return self.height, self.width, self.channels

    @property
    def model_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of what the model gets."""
        channels = 1 if self.grayscale else self.channels
        if self.image_size is not None:
            return self.image_size, self.image_size, channels
        if self.height is None or self.width is None:
            raise ValueError("images of different sizes need an image_size")
        return self.height, self.width, channels

    @property
    def same_size(self) -> bool:
        """Whether raw images are stacked and distorted on the device: of one size that is not large."""
        if self.height is None or self.width is None:
            return False
        return self.height * self.width <= LARGEST_STACKED

    @property
    def compilable(self) -> bool:
        """Whether XLA can compile what the device does with images: all but the resizing of rescale."""
        resized = self.raw_shape[:2] != self.model_shape[:2]
        return not (self.same_size and self.preprocessing == "rescale" and resized)

    def training(self, images: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
        """Distorted images, from uint8 [N, height, width, channels] and keys int32 [N, 2] alone."""
        preprocessing = PREPROCESSING[self.preprocessing]
        return self._checked(preprocessing.training(self._raw(images), keys, self._target))

    def training_one(self, image: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
        """A distorted image, from uint8 [height, width, channels] and a key int32 [2] alone."""
        return self.training(image[None], key[None])[0]

    def evaluation(self, images: tf.Tensor) -> tf.Tensor:
        """Images as they are judged, from uint8 or float32 0..255 [N, height, width, channels]."""
        return self._checked(PREPROCESSING[self.preprocessing].evaluation(self._raw(images), self._target))

    def evaluation_one(self, image: tf.Tensor) -> tf.Tensor:
        """An image as it is judged, from uint8 or float32 0..255 [height, width, channels]."""
        return self.evaluation(image[None])[0]

    @property
    def _target(self) -> Target:
        height, width, channels = self.model_shape
        return Target(height=height, width=width, channels=channels, fast=self.fast)

    def _raw(self, images: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.ensure_shape(images, (None, *self.raw_shape)), tf.float32)

    def _checked(self, images: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(images, (None, *self.model_shape))


def fitted(
    config: PreprocessingConfig,
    *,
    published: str,
    heights: tuple[int, int],
    widths: tuple[int, int],
    channels: int,
) -> Pixels:
    """The preprocessing that was chosen for images of these sizes, smallest and largest.

    `published` is the one that the architecture came with, which the name auto stands for.

    Raises:
        ConfigError: the images differ in size, and no size was chosen.
    """
    (low, high), (left, right) = heights, widths
    if config.image_size is None and (low != high or left != right):
        raise ConfigError(
            "preprocessing.image_size must be set: "
            f"images are {low} to {high} pixels high and {left} to {right} wide"
        )
    return Pixels(
        preprocessing=published if config.name == "auto" else config.name,
        height=low if low == high else None,
        width=left if left == right else None,
        channels=channels,
        image_size=config.image_size,
        grayscale=config.grayscale,
        fast=config.fast,
    )
