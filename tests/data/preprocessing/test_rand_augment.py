"""RandAugment: its operations against Pillow's and against loops, and which ones an image draws."""

import math

import numpy as np
import PIL.Image
import PIL.ImageEnhance
import PIL.ImageOps
import pytest
import tensorflow as tf

from perennial.base.config.training import AugmentationConfig
from perennial.data.preprocessing.rand_augment import COLORS, GEOMETRIC, distorted, moved
from perennial.data.preprocessing.randomness import keys

LEVEL = 0.5
ENHANCERS = {
    "color": PIL.ImageEnhance.Color,
    "contrast": PIL.ImageEnhance.Contrast,
    "brightness": PIL.ImageEnhance.Brightness,
    "sharpness": PIL.ImageEnhance.Sharpness,
}
EXACT = {
    "autocontrast": PIL.ImageOps.autocontrast,
    "equalize": PIL.ImageOps.equalize,
    "posterize": lambda image: PIL.ImageOps.posterize(image, 6),
    "solarize": lambda image: PIL.ImageOps.solarize(image, 128),
}


@pytest.fixture
def batch(images):
    """Float images 0..255, the last one of a single color, and keys."""
    made = tf.cast(images(6, 20, 14, 3), tf.float32)
    return tf.concat([made, tf.fill((1, 20, 14, 3), 77.0)], axis=0), keys(1, 2, tf.range(7))


@pytest.mark.parametrize("name", EXACT)
def test_an_operation_of_values_is_pillows(name, batch):
    found = COLORS[name](batch[0], tf.fill([7], LEVEL)).numpy()
    for image, result in zip(batch[0].numpy(), found, strict=True):
        expected = np.asarray(EXACT[name](PIL.Image.fromarray(image.astype(np.uint8))), np.float32)
        np.testing.assert_allclose(result, expected, atol=1.0 if name == "autocontrast" else 0)


@pytest.mark.parametrize("name", ENHANCERS)
@pytest.mark.parametrize("sign", [LEVEL, -LEVEL])
def test_an_enhancement_is_pillows_but_for_rounding(name, sign, batch):
    found = COLORS[name](batch[0], tf.fill([7], sign)).numpy()
    for image, result in zip(batch[0].numpy(), found, strict=True):
        enhancer = ENHANCERS[name](PIL.Image.fromarray(image.astype(np.uint8)))
        np.testing.assert_allclose(result, np.asarray(enhancer.enhance(1 + 0.9 * sign), np.float32), atol=2.0)


@pytest.mark.parametrize("name", COLORS)
def test_gray_images_stay_gray(name, images):
    made = tf.cast(images(3, 12, 10, 1), tf.float32)
    assert COLORS[name](made, tf.fill([3], LEVEL)).shape == made.shape


@pytest.mark.parametrize("name", GEOMETRIC)
@pytest.mark.parametrize("sign", [1.0, -0.6])
def test_a_geometric_operation_takes_the_nearest_pixel_of_the_line_that_it_maps_to(name, sign, batch):
    image = batch[0][:1]
    found = moved(image, tf.constant([GEOMETRIC.index(name)]), tf.constant([sign]))[0].numpy()
    height, width = image.shape[1:3]
    expected = np.full((height, width, 3), 128.0)
    for row in range(height):
        for column in range(width):
            y, x = row - (height - 1) / 2, column - (width - 1) / 2
            angle = sign * math.radians(30)
            sine, cosine = math.sin(angle), math.cos(angle)
            to_x, to_y = {
                "rotate": (x * cosine - y * sine, x * sine + y * cosine),
                "shear_x": (x + 0.3 * sign * y, y),
                "shear_y": (x, y + 0.3 * sign * x),
                "translate_x": (x + 0.45 * sign * width, y),
                "translate_y": (x, y + 0.45 * sign * height),
            }[name]
            r, c = math.floor(to_y + (height - 1) / 2 + 0.5), math.floor(to_x + (width - 1) / 2 + 0.5)
            if 0 <= r < height and 0 <= c < width:
                expected[row, column] = image[0, r, c]
    # A place just between two pixels may be rounded to either in float32.
    assert (np.abs(found - expected).max(axis=-1) > 0).mean() < 0.01


def test_an_image_is_changed_alike_in_whatever_batch_it_comes(batch):
    images, drawn = batch
    together = distorted(images, drawn, AugmentationConfig(operations=2, magnitude=9.0)).numpy()
    for index in (0, 4):
        alone = distorted(
            images[index : index + 1], drawn[index : index + 1], AugmentationConfig(operations=2, magnitude=9.0)
        )
        np.testing.assert_array_equal(alone[0], together[index])


def test_one_operation_gives_one_of_the_fourteen_or_the_image_itself(batch):
    image = batch[0][:1]
    drawn = keys(5, 0, tf.range(400))
    found = distorted(
        tf.repeat(image, 400, axis=0), drawn, AugmentationConfig(operations=1, magnitude=7.0)
    ).numpy()
    known = [image[0].numpy()]
    for sign in (0.7, -0.7):
        known += [operation(image, tf.constant([sign]))[0].numpy() for operation in COLORS.values()]
        known += [
            moved(image, tf.constant([index]), tf.constant([sign]))[0].numpy()
            for index in range(len(GEOMETRIC))
        ]
    matches = [next(i for i, each in enumerate(known) if np.array_equal(each, result)) for result in found]
    operations = {0 if match == 0 else (match - 1) % 13 for match in matches}
    assert operations == set(range(13))
    assert 10 <= sum(match == 0 for match in matches) <= 60  # 1 in 14 is expected, 29


def test_images_whose_size_is_known_late_are_changed_alike(batch):
    images, drawn = batch
    late = tf.function(
        lambda image, key: distorted(image, key, AugmentationConfig(operations=2, magnitude=9.0)),
        input_signature=[tf.TensorSpec([None, None, None, 3]), tf.TensorSpec([None, 2], tf.int32)],
        autograph=False,
    )
    expected = distorted(images, drawn, AugmentationConfig(operations=2, magnitude=9.0))
    np.testing.assert_allclose(late(images, drawn), expected, atol=1e-3)


def test_values_stay_within_the_range_of_pixels(batch):
    found = distorted(*batch, AugmentationConfig(operations=4, magnitude=10.0)).numpy()
    assert found.min() >= 0
    assert found.max() <= 255


@pytest.mark.parametrize("name", ["standard", "rescale", "inception"])
def test_operations_come_before_the_preprocessing(name, pixels, images):
    raw, drawn = images(5, 20, 16, 3), keys(1, 2, tf.range(5))
    augmentation = AugmentationConfig(operations=2, magnitude=9.0)
    spec = pixels(name, (20, 16, 3), image_size=16)
    together = spec.training(raw, drawn, augmentation).numpy()
    operated = distorted(tf.cast(raw, tf.float32), drawn, AugmentationConfig(operations=2, magnitude=9.0))
    assert spec.training(operated, drawn).numpy() == pytest.approx(together, abs=1e-5)
