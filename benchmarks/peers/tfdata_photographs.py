# Origin: research/slim/preprocessing of github.com/tensorflow/models (Apache-2.0):
# the steps and their constants.
"""The training input of photographs in tf.data: `tfdata_photographs RECORDS SECONDS PROGRAM/CASE...`.

PROGRAM is one of

    decode    decode_jpeg and no more
    full      images are decoded whole, then distorted
    crop      only the part that is used is decoded (decode_and_crop_jpeg)
    keras     images are decoded whole and resized, then come Keras' layers on the batch
"""

import sys
from collections.abc import Callable
from functools import partial

import tensorflow as tf
from keras import Sequential, layers

from benchmarks.peers.photographs import BATCH, CORES, SIZES, Batches, measure

BOX = [[[0.0, 0.0, 1.0, 1.0]]]
MEANS = (123.68, 116.78, 103.94)
METHODS = ("bilinear", "nearest", "bicubic", "area")


def window(encoded: tf.Tensor) -> tf.Tensor:
    """A random part of an image, as in TF-Slim."""
    begin, length, _ = tf.image.sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(encoded),
        BOX,
        min_object_covered=0.1,
        aspect_ratio_range=(0.75, 1.33),
        area_range=(0.05, 1.0),
        max_attempts=100,
    )
    return tf.concat([begin[:2], length[:2]], axis=0)


def resized(image: tf.Tensor, size: int, method: str = "bilinear") -> tf.Tensor:
    """Float32 of this size."""
    return tf.cast(tf.image.resize(image, (size, size), method=method), tf.float32)


def inception(encoded: tf.Tensor, size: int, *, fused: bool, slow: bool = False) -> tf.Tensor:
    """TF-Slim's preprocessing of Inception."""
    place = window(encoded)
    if fused:
        image = tf.io.decode_and_crop_jpeg(encoded, place, channels=3)
    else:
        image = tf.image.crop_to_bounding_box(tf.io.decode_jpeg(encoded, channels=3), *tf.unstack(place))
    if slow:
        branches = [partial(resized, image, size, method) for method in METHODS]
        image = tf.switch_case(tf.random.uniform((), 0, len(METHODS), tf.int32), branches)
    else:
        image = resized(image, size)
    image = tf.image.random_flip_left_right(image / 255.0)
    image = tf.image.random_saturation(tf.image.random_brightness(image, 32 / 255), 0.5, 1.5)
    if slow:
        image = tf.image.random_contrast(tf.image.random_hue(image, 0.2), 0.5, 1.5)
    return tf.clip_by_value(image, 0.0, 1.0) * 2.0 - 1.0


def vgg(encoded: tf.Tensor, size: int) -> tf.Tensor:
    """TF-Slim's preprocessing of VGG."""
    image = tf.io.decode_jpeg(encoded, channels=3)
    shape = tf.cast(tf.shape(image)[:2], tf.float32)
    side = tf.cast(tf.random.uniform((), 256, 513, tf.int32), tf.float32)
    image = tf.image.resize(image, tf.cast(tf.round(shape * side / tf.reduce_min(shape)), tf.int32))
    return tf.image.random_flip_left_right(tf.image.random_crop(image, (size, size, 3))) - tf.constant(MEANS)


def plain(encoded: tf.Tensor, size: int) -> tf.Tensor:
    """The whole image, resized with antialiasing."""
    image = tf.io.decode_jpeg(encoded, channels=3)
    return tf.image.resize(image, (size, size), antialias=True) / 127.5 - 1.0


def standard(encoded: tf.Tensor, size: int) -> tf.Tensor:
    """A random shift by up to an eighth, and a flip."""
    image = tf.pad(plain(encoded, size), [(size // 8, size // 8), (size // 8, size // 8), (0, 0)], "REFLECT")
    return tf.image.random_flip_left_right(tf.image.random_crop(image, (size, size, 3)))


def evaluation(encoded: tf.Tensor, size: int) -> tf.Tensor:
    """The center, as in TF-Slim's evaluation of Inception."""
    return resized(tf.image.central_crop(tf.io.decode_jpeg(encoded, channels=3), 0.875), size) / 127.5 - 1.0


def decode(encoded: tf.Tensor, size: int) -> tf.Tensor:  # noqa: ARG001
    """No more than the shape of the decoded image."""
    return tf.shape(tf.io.decode_jpeg(encoded, channels=3))


def whole(encoded: tf.Tensor, size: int) -> tf.Tensor:
    """The whole image as bytes of this size."""
    return tf.cast(resized(tf.io.decode_jpeg(encoded, channels=3), size), tf.uint8)


def keras_layers(case: str, size: int) -> Callable[..., object]:
    """What Keras' layers do of a preprocessing."""
    flip, scale = layers.RandomFlip("horizontal"), layers.Rescaling(1 / 127.5, -1)
    zoomed = [layers.RandomZoom((-0.5, 0.0)), flip]
    colored = [*zoomed, layers.RandomBrightness(0.125), layers.RandomSaturation(0.5)]
    chosen = {
        "inception": colored,
        "slow": [*colored, layers.RandomHue(0.2), layers.RandomContrast(0.5)],
        "vgg": zoomed,
        "standard": [layers.RandomTranslation(0.125, 0.125), flip],
        "plain": [],
        "evaluation": [layers.CenterCrop(size * 7 // 8, size * 7 // 8), layers.Resizing(size, size)],
    }[case]
    net = Sequential([*chosen, scale])
    return lambda images: net(images, training=True)


def batches(asked: str, files: list[bytes]) -> Batches:
    """Batches of distorted images without end."""
    program, _, case = asked.partition("/")
    fused, size = program == "crop", SIZES[case]
    cases: dict[str, Callable[..., tf.Tensor]] = {
        "inception": partial(inception, fused=fused),
        "slow": partial(inception, fused=fused, slow=True),
        "vgg": vgg,
        "standard": standard,
        "plain": plain,
        "evaluation": evaluation,
    }
    prepare = {"decode": decode, "keras": whole}.get(program, cases[case])
    images = tf.data.Dataset.from_tensor_slices(files).repeat()
    batched = images.map(partial(prepare, size=size), num_parallel_calls=CORES).batch(BATCH)
    if program == "keras":
        batched = batched.map(keras_layers(case, size), num_parallel_calls=CORES)
    options = tf.data.Options()
    options.autotune.enabled = False
    options.threading.private_threadpool_size = CORES + 1
    options.threading.max_intra_op_parallelism = 1
    for _ in batched.prefetch(4).with_options(options):
        yield BATCH


if __name__ == "__main__":
    measure(batches, sys.argv[1:])
