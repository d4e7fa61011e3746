"""What happens to the values of pixels, each image of a batch with its own amount.

The same as tf.image's adjust_ functions, which take one amount for all; factors and shifts are float32 [N].
"""

import tensorflow as tf

LUMA = (0.2989, 0.5870, 0.1140)  # of red, green and blue, as in tf.image.rgb_to_grayscale


def in_channels(images: tf.Tensor, channels: int) -> tf.Tensor:
    """Images in grey where one channel is wanted of three; else as they are."""
    if images.shape[-1] == channels:
        return images
    # No matrix product, as tf.image's: a GPU would round it to ten bits.
    return tf.reduce_sum(images * tf.constant(LUMA), axis=-1, keepdims=True)


def brightened(images: tf.Tensor, shifts: tf.Tensor) -> tf.Tensor:
    """Values shifted."""
    return images + _each(shifts)


def contrasted(images: tf.Tensor, factors: tf.Tensor) -> tf.Tensor:
    """Distances from the mean of each channel multiplied."""
    means = tf.reduce_mean(images, axis=(1, 2), keepdims=True)
    return (images - means) * _each(factors) + means


def saturated(images: tf.Tensor, factors: tf.Tensor) -> tf.Tensor:
    """Saturation, in the sense of HSV, multiplied and cut off at 1; grey images stay.

    Hue and value stay when each channel comes nearer to the largest by the same ratio, so nothing is converted.
    """
    if images.shape[-1] == 1:
        return images
    value = tf.reduce_max(images, axis=-1, keepdims=True)
    spread = value - tf.reduce_min(images, axis=-1, keepdims=True)
    # Black and what is darker has no saturation: spread / spread would make one.
    wanted = tf.minimum(value, spread * _each(factors))
    ratio = tf.where(value > 0, tf.math.divide_no_nan(wanted, spread), 0.0)
    return value - (value - images) * ratio


def turned(images: tf.Tensor, shifts: tf.Tensor) -> tf.Tensor:
    """Hue, in the sense of HSV, turned by these shares of the circle; grey images stay."""
    if images.shape[-1] == 1:
        return images
    # Without the grey part, which has no hue, no value is negative: HSV would lose those.
    grey = tf.reduce_min(images, axis=-1, keepdims=True)
    hsv = tf.image.rgb_to_hsv(images - grey)
    hue = tf.math.floormod(hsv[..., :1] + _each(shifts), 1.0)
    return tf.image.hsv_to_rgb(tf.concat([hue, hsv[..., 1:]], axis=-1)) + grey


def standardized(images: tf.Tensor) -> tf.Tensor:
    """Each image with mean 0 and standard deviation 1, or less where it is nearly of one colour."""
    return tf.image.per_image_standardization(images)


def _each(amounts: tf.Tensor) -> tf.Tensor:
    return tf.reshape(amounts, (-1, 1, 1, 1))
