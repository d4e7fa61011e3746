"""Preprocessing between record and model: with distortions in training, otherwise deterministic."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal

import tensorflow as tf

from perennial.base.config.data import PreprocessingConfig
from perennial.base.config.fields import is_component
from perennial.base.config.training import AugmentationConfig
from perennial.base.documents import JsonFile
from perennial.base.errors import ConfigError
from perennial.base.project import own_components
from perennial.data.preprocessing import basic
from perennial.data.preprocessing.inception_and_vgg import INCEPTION, VGG
from perennial.data.preprocessing.randomness import keys, turned
from perennial.data.preprocessing.transforms import Distortion, Preprocessing, Target

__all__ = ["PREPROCESSING", "ImageSpec", "fitted", "keys"]
PREPROCESSING: dict[str, Preprocessing] = {
    "rescale": basic.RESCALE, "lenet": basic.LENET, "cifarnet": basic.CIFARNET, "plain": basic.PLAIN,
    "cifar10_tutorial": basic.CIFAR10_TUTORIAL, "inception": INCEPTION, "vgg": VGG,
    "standard": basic.STANDARD, "shifted": basic.SHIFTED,
}  # fmt: skip
LARGEST_STACKED = 512 * 512  # pixels; a batch of larger images would fill a device's memory
LARGEST_RESIZED = 128 * 128  # pixels; larger images are resized in less time one by one
VERSION = 2  # of the pixels; since 2, photographs are distorted when they are decoded, and in whole numbers


def named(name: str) -> Preprocessing:
    """The preprocessing that a name means, which may be a component of the project."""
    if not is_component(name):
        return PREPROCESSING[name]
    found = own_components.load(
        name,
        "a Preprocessing or a function of images and target",
        lambda each: isinstance(each, Preprocessing) or own_components.is_function(each),
    )
    made = found if isinstance(found, Preprocessing) else Preprocessing(evaluation=found, resizes="always")
    return replace(made, evaluation=partial(_evaluated, name, made.evaluation))


def _evaluated(
    name: str, evaluation: Callable[[tf.Tensor, Target], tf.Tensor], images: tf.Tensor, target: Target
) -> tf.Tensor:
    """Call the function of a component, and check what it returns."""
    found = own_components.call(name, evaluation, images, target)
    shape = (None, target.height, target.width, target.channels)
    if not tf.is_tensor(found) or found.dtype != tf.float32 or not found.shape.is_compatible_with(shape):
        got = f"{found.dtype.name} {found.shape}" if tf.is_tensor(found) else own_components.described(found)
        raise own_components.refused(name, f"returned {got}, expected float32 {shape}")
    return found


class ImageSpec(JsonFile, extra="forbid"):
    """The raw images, the model input, and the preprocessing between them; saved with the model.

    All its methods return float32 [N, height, width, channels] of `model_shape`, without N for one image.
    """

    preprocessing: str  # in PREPROCESSING
    height: int | None  # of the data set's images; None if they differ
    width: int | None
    channels: int  # of the data set's images: 1 or 3
    image_size: int | None  # side of the model input; None: as the images
    grayscale: bool  # one channel in the model input
    fast: bool  # inception trains with the cheap distortions
    resize: Literal["legacy", "exact"] = "exact"  # inception and vgg; the default is that of models before it
    version: int = 1  # of the pixels that it was trained on

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
        """Whether raw images are batched and distorted on the device: of one size, and not too large."""
        if self.height is None or self.width is None:
            return False
        return self.height * self.width <= (LARGEST_RESIZED if self._resized else LARGEST_STACKED)

    @property
    def undistorted_as(self) -> tf.TensorSpec:
        """Shape and type of an image in a batch that is not distorted: as stored if all have one size."""
        if self.same_size:
            return tf.TensorSpec(self.raw_shape, tf.uint8)
        return tf.TensorSpec(self.model_shape, tf.float32)

    @property
    def trained_as(self) -> tf.TensorSpec:
        """Shape and type of an image in a training batch; colors and values are still to be distorted."""
        if self.same_size or self.distortion is None:
            return self.undistorted_as
        height, width, _ = self.model_shape
        return tf.TensorSpec((height, width, self.channels), tf.uint8)

    @property
    def compilable(self) -> bool:
        """Whether XLA can compile the part on the device: all but the resizing of rescale."""
        return not (self.same_size and self.preprocessing == "rescale" and self._resized)

    def training(
        self, images: tf.Tensor, keys: tf.Tensor, augmentation: AugmentationConfig | None = None
    ) -> tf.Tensor:
        """Distort images uint8 [N, height, width, channels]; depends only on them and on keys int32 [N, 2]."""
        raw = self._raw(images)
        if augmentation is not None and augmentation.alternating_flip:
            raw = tf.where(turned(keys)[:, None, None, None], raw[:, :, ::-1], raw)
        if self.distortion is None:
            return self.evaluation(raw)
        placed = self.distortion.placed(raw, keys, self.target)
        return self._checked(self.distortion.finished(placed, keys, self.target))

    def finished(self, images: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
        """Distort the colors of images from `photographs.for_training`, and scale them; compiled on a CPU."""
        distortion = self.distortion
        if distortion is None:
            return images
        compiled = tf.function(
            lambda images, keys: distortion.finished(tf.cast(images, tf.float32), keys, self.target),
            jit_compile=not tf.config.list_logical_devices("GPU"),
            autograph=False,
        )
        return self._checked(compiled(images, keys))

    def evaluation(self, images: tf.Tensor) -> tf.Tensor:
        """Prepare images for evaluation, from uint8 or float32 0..255 [N, height, width, channels]."""
        return self._checked(self._preprocessing.evaluation(self._raw(images), self.target))

    def evaluation_one(self, image: tf.Tensor) -> tf.Tensor:
        """Prepare an image with the bits of `evaluation`, in less time: only used pixels become float32."""
        raw = tf.ensure_shape(image, self.raw_shape)[None]
        return self._checked(self._preprocessing.evaluation(raw, self.target))[0]

    @property
    def _preprocessing(self) -> Preprocessing:
        return named(self.preprocessing)

    @property
    def distortion(self) -> Distortion | None:
        """How images are distorted in training, if they are."""
        return self._preprocessing.distortion

    @property
    def _resized(self) -> bool:
        resizes = self._preprocessing.resizes
        return resizes == "always" or (resizes != "never" and self.raw_shape[:2] != self.model_shape[:2])

    @property
    def target(self) -> Target:
        """The model input."""
        height, width, channels = self.model_shape
        centered = self.resize == "exact"
        return Target(height=height, width=width, channels=channels, fast=self.fast, centered=centered)

    def _raw(self, images: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.ensure_shape(images, (None, *self.raw_shape)), tf.float32)

    def _checked(self, images: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(images, (None, *self.model_shape))


def fitted(
    config: PreprocessingConfig,
    *,
    published: str,
    tensorflow_1: bool,
    heights: tuple[int, int],
    widths: tuple[int, int],
    channels: int,
) -> ImageSpec:
    """The spec of the chosen preprocessing for images of these smallest and largest sizes.

    `published` is the preprocessing of the architecture, which `auto` selects; `tensorflow_1` says whether it
    comes from a program of TensorFlow 1, which took images as that version resized them.
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
        resize=("legacy" if tensorflow_1 else "exact") if config.resize == "auto" else config.resize,
        version=VERSION,
    )
