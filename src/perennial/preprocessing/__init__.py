"""Preprocessing between record and model: with distortions in training, otherwise deterministic."""

import tensorflow as tf
from pydantic import BaseModel, ConfigDict

from perennial.config.data import PreprocessingConfig
from perennial.config.training import AugmentationConfig
from perennial.errors import ConfigError
from perennial.preprocessing import rand_augment
from perennial.preprocessing.basic import CIFAR10_TUTORIAL, CIFARNET, LENET, PLAIN, RESCALE, SHIFTED, STANDARD
from perennial.preprocessing.imagenet import INCEPTION, VGG
from perennial.preprocessing.randomness import keys
from perennial.preprocessing.transforms import Preprocessing, Target

__all__ = ["PREPROCESSING", "ImageSpec", "fitted", "keys"]
PREPROCESSING: dict[str, Preprocessing] = {
    "rescale": RESCALE,
    "lenet": LENET,
    "cifarnet": CIFARNET,
    "cifar10_tutorial": CIFAR10_TUTORIAL,
    "inception": INCEPTION,
    "vgg": VGG,
    "standard": STANDARD,
    "shifted": SHIFTED,
    "plain": PLAIN,
}
LARGEST_STACKED = 512 * 512  # pixels; a batch of larger images would fill a device's memory


class ImageSpec(BaseModel):
    """The raw images, the model input, and the preprocessing between them; saved with the model.

    All four methods return float32 [N, height, width, channels] of `model_shape`, without N for one image.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    preprocessing: str  # in PREPROCESSING
    height: int | None  # of the data set's images; None if they differ
    width: int | None
    channels: int  # of the data set's images: 1 or 3
    image_size: int | None  # side of the model input; None: as the images
    grayscale: bool  # one channel in the model input
    fast: bool  # inception trains with the cheap distortions

    @property
    def raw_shape(self) -> tuple[int | None, int | None, int]:
        """Height, width and channels of the raw images."""
        return self.height, self.width, self.channels

    @property
    def model_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of the model input."""
        channels = 1 if self.grayscale else self.channels
        if self.image_size is not None:
            return self.image_size, self.image_size, channels
        if self.height is None or self.width is None:
            raise ValueError("images of different sizes need an image_size")
        return self.height, self.width, channels

    @property
    def same_size(self) -> bool:
        """Whether raw images are batched and distorted on the device: one size, not too large."""
        if self.height is None or self.width is None:
            return False
        return self.height * self.width <= LARGEST_STACKED

    @property
    def compilable(self) -> bool:
        """Whether XLA can compile the part on the device: all but the resizing of rescale."""
        resized = self.raw_shape[:2] != self.model_shape[:2]
        return not (self.same_size and self.preprocessing == "rescale" and resized)

    @property
    def distorts(self) -> bool:
        """Whether images are distorted in training."""
        return PREPROCESSING[self.preprocessing].distorts

    def training(
        self, images: tf.Tensor, keys: tf.Tensor, augmentation: AugmentationConfig | None = None
    ) -> tf.Tensor:
        """Distort images uint8 [N, height, width, channels]; depends only on them and on keys int32 [N, 2].

        From the augmentation it applies the alternating flip and RandAugment, which come first.
        """
        preprocessing, raw = PREPROCESSING[self.preprocessing], self._raw(images)
        if augmentation is not None and augmentation.alternating_flip:
            raw = tf.where((keys[:, 1] & 1 == 1)[:, None, None, None], raw[:, :, ::-1], raw)
        if augmentation is not None and augmentation.operations:
            raw = rand_augment.distorted(
                raw, keys, operations=augmentation.operations, magnitude=augmentation.magnitude
            )
        return self._checked(preprocessing.training(raw, keys, self._target))

    def training_one(
        self, image: tf.Tensor, key: tf.Tensor, augmentation: AugmentationConfig | None = None
    ) -> tf.Tensor:
        """Distort an image uint8 [height, width, channels]; depends only on it and on a key int32 [2]."""
        return self.training(image[None], key[None], augmentation)[0]

    def evaluation(self, images: tf.Tensor) -> tf.Tensor:
        """Prepare images for evaluation, from uint8 or float32 0..255 [N, height, width, channels]."""
        return self._checked(PREPROCESSING[self.preprocessing].evaluation(self._raw(images), self._target))

    def evaluation_one(self, image: tf.Tensor) -> tf.Tensor:
        """Prepare an image for evaluation, from uint8 or float32 0..255 [height, width, channels]."""
        return self.evaluation(image[None])[0]

    def undistorted_one(self, image: tf.Tensor) -> tf.Tensor:
        """An image of a batch that is not distorted: as stored if all have one size, otherwise as evaluated."""
        return image if self.same_size else self.evaluation_one(image)

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
) -> ImageSpec:
    """The spec of the chosen preprocessing for images of these smallest and largest sizes.

    `published` is the preprocessing of the architecture, which `auto` selects.

    Raises:
        ConfigError: the images differ in size, and no image_size is set.
    """
    (low, high), (left, right) = heights, widths
    if config.image_size is None and (low != high or left != right):
        raise ConfigError(
            "preprocessing.image_size must be set: "
            f"images are {low} to {high} pixels high and {left} to {right} wide"
        )
    return ImageSpec(
        preprocessing=published if config.name == "auto" else config.name,
        height=low if low == high else None,
        width=left if left == right else None,
        channels=channels,
        image_size=config.image_size,
        grayscale=config.grayscale,
        fast=config.fast,
    )
