"""Images decoded one by one. In training they are distorted at once, and a JPEG is decoded only in part.

The random decisions are those for images of one size. A part of a JPEG that is decoded alone differs at its
edges from that part of the whole image: the decoder interpolates colors without the pixels outside.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from perennial.base.config.training import AugmentationConfig
from perennial.data.images import jpeg
from perennial.data.preprocessing import ImageSpec
from perennial.data.preprocessing.randomness import turned

PNG_SIZE = (16, 8)  # position and length of width and height, four bytes each, the most significant first
UNCONVERTED = tf.autograph.experimental.do_not_convert  # saves time: no function here needs AutoGraph
# The operations' names in TensorFlow's errors about an image that does not decode.
DECODERS = ("DecodeImage", "DecodeAndCropJpeg", "ExtractJpegShape", "Substr")


def decoded(encoded: tf.Tensor, pixels: ImageSpec) -> tf.Tensor:
    """Decode one encoded image as stored, uint8 [height, width, channels]."""
    image = tf.io.decode_image(encoded, channels=pixels.channels, expand_animations=False)
    return tf.ensure_shape(image, pixels.raw_shape)


def stored(encoded: tf.Tensor, pixels: ImageSpec) -> tf.Tensor:
    """Decode images of one size, string [N], as stored: uint8 [N, height, width, channels]."""
    return _each(lambda image: decoded(image, pixels), encoded, pixels.undistorted_as)


def for_training(
    encoded: tf.Tensor, keys: tf.Tensor, pixels: ImageSpec, augmentation: AugmentationConfig
) -> tf.Tensor:
    """Decode images, string [N], to a training batch as in `ImageSpec.trained_as`."""
    if pixels.same_size:
        return stored(encoded, pixels)
    distortion, flips = pixels.distortion, augmentation.alternating_flip
    mirrored = turned(keys) if flips else tf.zeros_like(keys[:, 0], tf.bool)
    windows = distortion.windows(_sizes(encoded), keys, pixels.target) if distortion else ()

    def prepare(element: tuple[tf.Tensor, tf.Tensor, Any]) -> tf.Tensor:
        image, flip, window = element
        if distortion is None:
            whole = decoded(image, pixels)
            return pixels.evaluation_one(_mirrored(whole, flip) if flips else whole)
        part = _decoded_part(image, window.rectangle, flip if flips else None, pixels)
        return _mirrored(distortion.cut(part, window, pixels.target), window.mirrored)

    return _each(prepare, (encoded, mirrored, windows), pixels.trained_as)


def _sizes(encoded: tf.Tensor) -> tf.Tensor:
    """Height and width of each image, string [N], from its header: int32 [N, 2]."""

    def of_png(image: tf.Tensor) -> tf.Tensor:
        values = tf.cast(tf.io.decode_raw(tf.strings.substr(image, *PNG_SIZE), tf.uint8), tf.int32)
        width, height = tf.unstack(tf.linalg.matvec(tf.reshape(values, (2, 4)), [1 << 24, 1 << 16, 1 << 8, 1]))
        return tf.stack([height, width])

    def size(image: tf.Tensor) -> tf.Tensor:
        return tf.cond(_is_jpeg(image), lambda: tf.io.extract_jpeg_shape(image)[:2], lambda: of_png(image))

    return _each(size, encoded, tf.TensorSpec((2,), tf.int32))


def _each(prepare: Callable[..., tf.Tensor], elements: Any, result: tf.TensorSpec) -> tf.Tensor:
    """Map encoded images to a batch of images; takes half the time of Dataset.map."""
    return tf.map_fn(UNCONVERTED(prepare), elements, fn_output_signature=result)


def _is_jpeg(encoded: tf.Tensor) -> tf.Tensor:
    return tf.strings.substr(encoded, 0, len(jpeg.START)) == jpeg.START


def _decoded_part(
    encoded: tf.Tensor, rectangle: tf.Tensor, flip: tf.Tensor | None, pixels: ImageSpec
) -> tf.Tensor:
    """A rectangle of an image, or of its mirror image if `flip` is true."""

    def of_jpeg() -> tf.Tensor:
        if flip is None:
            return tf.io.decode_and_crop_jpeg(encoded, rectangle, channels=pixels.channels)
        top, left, height, width = tf.unstack(rectangle)
        right = tf.io.extract_jpeg_shape(encoded)[1] - left - width
        place = tf.stack([top, tf.where(flip, right, left), height, width])
        return _mirrored(tf.io.decode_and_crop_jpeg(encoded, place, channels=pixels.channels), flip)

    def of_others() -> tf.Tensor:
        image = decoded(encoded, pixels)
        top, left, height, width = tf.unstack(rectangle)
        image = image if flip is None else _mirrored(image, flip)
        return image[top : top + height, left : left + width]

    part = tf.cond(_is_jpeg(encoded), of_jpeg, of_others)
    return tf.ensure_shape(part, (None, None, pixels.channels))


def _mirrored(image: tf.Tensor, mirrored: tf.Tensor) -> tf.Tensor:
    """An image, mirrored if bool [] is true."""
    return tf.raw_ops.Reverse(tensor=image, dims=tf.stack([False, mirrored, False]))
