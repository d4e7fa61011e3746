"""What images are trained on, against a plain computation of each one with the numbers that were drawn."""

import numpy as np
import pytest
import tensorflow as tf

from perennial.base.config.training import AugmentationConfig
from perennial.data.preprocessing import basic, inception_and_vgg, keys
from perennial.data.preprocessing.randomness import Draws, alternating

COUNT = 12
KEYS = keys(4, 2, tf.range(COUNT))


def flipped(image, coin):
    return image[:, ::-1] if coin else image


def standardized(image):
    return (image - image.mean()) / max(image.std(), 1 / np.sqrt(image.size))


def like_the_tutorial(image, draws, number, border, size):
    image = np.pad(image.astype(np.float64), [(border, border), (border, border), (0, 0)])
    top = int(draws.integers(basic.TOP, image.shape[0] - size + 1)[number])
    left = int(draws.integers(basic.LEFT, image.shape[1] - size + 1)[number])
    image = flipped(image[top : top + size, left : left + size], draws.coin(basic.FLIP)[number])
    image = image + float(draws.uniform(basic.BRIGHTNESS, -63, 63)[number])
    means = image.mean((0, 1))
    return standardized((image - means) * float(draws.uniform(basic.CONTRAST, 0.2, 1.8)[number]) + means)


@pytest.mark.parametrize(
    ("name", "border", "shape", "size"),
    [
        ("cifar10_tutorial", 0, (32, 32, 3), 24),
        ("cifar10_tutorial", 0, (20, 31, 1), 17),
        ("cifarnet", 4, (32, 32, 3), 32),
        ("cifarnet", 4, (28, 28, 1), 36),
    ],
)
def test_cifar_images_are_cropped_flipped_brightened_contrasted_and_standardized(
    name, border, shape, size, pixels, images
):
    raw, draws = images(COUNT, *shape), Draws(KEYS, 5)
    found = pixels(name, shape, image_size=size).training(raw, KEYS).numpy()
    for number, image in enumerate(raw.numpy()):
        expected = like_the_tutorial(image, draws, number, border, size)
        assert found[number] == pytest.approx(expected, abs=2e-5)


def test_a_crop_that_is_larger_than_the_image_has_black_around_it(pixels, images):
    raw = images(COUNT, 8, 8, 1)
    found = pixels("cifar10_tutorial", (8, 8, 1), image_size=11).training(raw, KEYS).numpy()
    padded = np.pad(raw.numpy(), [(0, 0), (1, 2), (1, 2), (0, 0)])
    expected = like_the_tutorial(padded[3], Draws(KEYS, 5), 3, 0, 11)
    assert found[3] == pytest.approx(expected, abs=2e-5)


def test_standard_images_are_moved_flipped_and_have_a_hole(pixels, images):
    raw, draws = images(COUNT, 32, 40, 3), Draws(KEYS, 5)
    found = pixels("standard", (32, 40, 3)).training(raw, KEYS).numpy()
    for number, image in enumerate(raw.numpy() / np.float32(127.5) - 1):
        top, left = (int(draws.integers(basic.TOP, 9)[number]), int(draws.integers(basic.LEFT, 11)[number]))
        padded = np.pad(image, [(4, 4), (5, 5), (0, 0)], mode="reflect")
        expected = flipped(padded[top : top + 32, left : left + 40], draws.coin(basic.FLIP)[number]).copy()
        row = int(draws.integers(basic.HOLE_ROW, 32)[number])
        column = int(draws.integers(basic.HOLE_COLUMN, 40)[number])
        expected[max(row - 4, 0) : row + 4, max(column - 5, 0) : column + 5] = 0
        assert found[number] == pytest.approx(expected, abs=1e-6)


def test_shifted_images_are_moved_and_nothing_else(pixels, images):
    raw, draws = images(COUNT, 32, 48, 3), Draws(KEYS, 2)
    found = pixels("shifted", (32, 48, 3)).training(raw, KEYS).numpy()
    for number, image in enumerate(raw.numpy() / np.float32(127.5) - 1):
        top, left = int(draws.integers(basic.TOP, 5)[number]), int(draws.integers(basic.LEFT, 7)[number])
        padded = np.pad(image, [(2, 2), (3, 3), (0, 0)], mode="reflect")
        assert found[number] == pytest.approx(padded[top : top + 32, left : left + 48], abs=1e-6)


def test_an_alternating_flip_mirrors_each_image_in_every_second_epoch(pixels, images):
    raw, way = images(200, 8, 8, 3), pixels("lenet", (8, 8, 3))
    plain, numbers = way.evaluation(raw).numpy(), tf.range(200, dtype=tf.int64)
    mirrored = []
    for epoch in range(3):
        turned = alternating(keys(1, epoch, numbers), 1, tf.constant(epoch, tf.int64), numbers)
        found = way.training(raw, turned, AugmentationConfig(alternating_flip=True)).numpy()
        same = [np.array_equal(*pair) for pair in zip(found, plain, strict=True)]
        flips = [np.array_equal(*pair) for pair in zip(found, plain[:, :, ::-1], strict=True)]
        assert np.logical_xor(same, flips).all()
        mirrored.append(np.array(flips))
    assert 70 < mirrored[0].sum() < 130
    assert (mirrored[0] != mirrored[1]).all()
    assert (mirrored[0] == mirrored[2]).all()


def resized(image, shape, resize, method="bilinear"):
    """As TF-Slim does with TensorFlow 1 (legacy), or as TensorFlow 2 does."""
    if resize == "exact":
        return tf.image.resize(image, shape, method=method).numpy()
    methods = tf.compat.v1.image.ResizeMethod
    return tf.compat.v1.image.resize_images(image, shape, method=getattr(methods, SLIM_NAMES[method])).numpy()


SLIM_NAMES = {"bilinear": "BILINEAR", "nearest": "NEAREST_NEIGHBOR", "bicubic": "BICUBIC", "area": "AREA"}


def as_by_vgg(image, draws, number, size, resize):
    smallest, largest = round(256 * size / 224), round(512 * size / 224)
    side = smallest + int(draws.integers(inception_and_vgg.VGG_SIDE, largest - smallest + 1)[number])
    shape = [int(length * side / min(image.shape[:2]) + 0.5) for length in image.shape[:2]]
    whole = resized(image, shape, resize)
    top = int(draws.integers(inception_and_vgg.VGG_TOP, shape[0] - size + 1)[number])
    left = int(draws.integers(inception_and_vgg.VGG_LEFT, shape[1] - size + 1)[number])
    return flipped(whole[top : top + size, left : left + size], draws.coin(inception_and_vgg.VGG_FLIP)[number])


@pytest.mark.fast_rows("shape0-32-exact", "shape1-48-legacy")
@pytest.mark.parametrize("resize", ["exact", "legacy"])
@pytest.mark.parametrize(("shape", "size"), [((60, 40, 3), 32), ((37, 91, 3), 48), ((300, 260, 3), 224)])
def test_vgg_images_are_resized_cropped_flipped_and_less_the_means(shape, size, resize, pixels, images):
    raw, draws = images(4, *shape), Draws(KEYS[:4], 4)
    found = pixels("vgg", shape, image_size=size, resize=resize).training(raw, KEYS[:4]).numpy()
    for number, image in enumerate(raw.numpy()):
        expected = as_by_vgg(image, draws, number, size, resize) - np.array(
            [123.68, 116.78, 103.94], np.float32
        )
        assert found[number] == pytest.approx(expected, abs=2e-3)  # of 0..255


METHODS = ("bilinear", "nearest", "bicubic", "area")
ORDERS = {True: ("bs", "sb", "sb", "sb"), False: ("bshc", "sbch", "chbs", "hscb")}


def as_by_inception(image, draws, number, size, *, fast, resize):
    high, wide = image.shape[:2]
    height, width = (int(side[number]) for side in inception_and_vgg.random_sides(draws, (high, wide)))
    top = int(draws.integers(inception_and_vgg.TOP, high - height + 1)[number])
    left = int(draws.integers(inception_and_vgg.LEFT, wide - width + 1)[number])
    part = image[top : top + height, left : left + width] / np.float32(255)
    method = METHODS[0 if fast else int(draws.integers(inception_and_vgg.METHOD, 4)[number])]
    part = flipped(resized(part, (size, size), resize, method), draws.coin(inception_and_vgg.FLIP)[number])
    changes = {
        "b": (tf.image.adjust_brightness, inception_and_vgg.BRIGHTNESS, -32 / 255, 32 / 255),
        "s": (tf.image.adjust_saturation, inception_and_vgg.SATURATION, 0.5, 1.5),
        "h": (tf.image.adjust_hue, inception_and_vgg.HUE, -0.2, 0.2),
        "c": (tf.image.adjust_contrast, inception_and_vgg.CONTRAST, 0.5, 1.5),
    }
    for letter in ORDERS[fast][int(draws.integers(inception_and_vgg.ORDER, 4)[number])]:
        change, draw, low, high = changes[letter]
        part = change(part, float(draws.uniform(draw, low, high)[number]))
    return (np.clip(part, 0, 1) - 0.5) * 2


@pytest.mark.fast_rows("True-legacy", "False-exact")
@pytest.mark.parametrize("resize", ["exact", "legacy"])
@pytest.mark.parametrize("fast", [True, False])
def test_inception_images_are_parts_in_other_colours(fast, resize, pixels, images):
    raw, draws = images(COUNT, 48, 64, 3), Draws(KEYS, inception_and_vgg.DRAWS)
    way = pixels("inception", (48, 64, 3), image_size=24, fast=fast, resize=resize)
    found = way.training(raw, KEYS).numpy()
    for number, image in enumerate(raw.numpy()):
        expected = as_by_inception(image, draws, number, 24, fast=fast, resize=resize)
        assert found[number] == pytest.approx(expected, abs=2e-5 if fast else 5e-3)


@pytest.mark.parametrize("shape", [(375, 500), (32, 32), (120, 30)])
def test_inception_draws_parts_as_often_as_tensorflow_does(shape):
    draws = Draws(keys(5, 1, tf.range(3000)), inception_and_vgg.DRAWS)
    sides = np.stack(inception_and_vgg.random_sides(draws, shape), axis=1)
    box = tf.constant([[[0.0, 0.0, 1.0, 1.0]]])

    def by_tensorflow(seed):
        _, size, _ = tf.image.stateless_sample_distorted_bounding_box(
            (*shape, 3),
            box,
            seed,
            0.1,
            aspect_ratio_range=(0.75, 1.33),
            area_range=(0.05, 1.0),
            max_attempts=100,
        )
        return size[:2]

    seeds = tf.stack([tf.range(3000), tf.range(3000)], axis=1)
    expected = tf.function(lambda: tf.map_fn(by_tensorflow, seeds), autograph=False)().numpy()
    for ours, theirs in zip(sides.T, expected.T, strict=True):
        shares = [np.quantile(side, np.linspace(0.05, 0.95, 10)) for side in (ours, theirs)]
        assert shares[0] == pytest.approx(shares[1], abs=max(0.03 * max(shape), 1))
    assert (sides >= 1).all()
    assert (sides <= shape).all()
    assert (sides.prod(axis=1) >= 0.1 * np.prod(shape)).all()


def test_grayscale_inception_loses_its_colours_last(pixels, images):
    raw = images(COUNT, 20, 20, 3)
    coloured = pixels("inception", (20, 20, 3)).training(raw, KEYS)
    grey = pixels("inception", (20, 20, 3), grayscale=True).training(raw, KEYS)
    expected = tf.image.rgb_to_grayscale(coloured / 2 + 0.5) * 2 - 1
    assert grey.numpy() == pytest.approx(expected.numpy(), abs=1e-5)
