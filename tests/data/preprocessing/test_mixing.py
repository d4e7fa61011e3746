"""Random erasing, MixUp and CutMix, against NumPy."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from perennial.data.preprocessing import mixing
from perennial.data.preprocessing.randomness import Draws, keys

COUNT, HEIGHT, WIDTH = 200, 24, 16


@pytest.fixture
def batch(images):
    made = tf.cast(images(COUNT, HEIGHT, WIDTH, 3), tf.float32) / 127.5 - 1
    return made, keys(3, 1, tf.range(COUNT))


def rows_and_columns(changed):
    """The bounds of the rectangle around all changed pixels, and whether all in it have changed."""
    rows, columns = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
    if not rows.size:
        return None
    whole = changed[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all()
    return (rows[0], rows[-1] + 1), (columns[0], columns[-1] + 1), whole


def test_a_rectangle_of_its_mean_color_is_erased_in_some_images(batch):
    images, drawn = batch
    found = mixing.erase(images, drawn, probability=0.5).numpy()
    changed = [(a != b).any(axis=-1) for a, b in zip(images.numpy(), found, strict=True)]
    bounds = [rows_and_columns(each) for each in changed]
    assert 70 <= sum(each is not None for each in bounds) <= 130
    for image, result, each, mask in zip(images.numpy(), found, bounds, changed, strict=True):
        if each is not None:
            assert each[2]
            assert mask.mean() <= 0.4
            np.testing.assert_allclose(
                result[mask], np.broadcast_to(image.mean((0, 1)), result[mask].shape), atol=1e-5
            )


def test_the_erased_areas_and_sides_are_those_of_the_paper(batch):
    images, drawn = batch
    found = mixing.erase(images, drawn, probability=1.0).numpy()
    draws = Draws(drawn, 5, stream=2)
    share, aspect, top, left = (draws.uniform(number).numpy().astype(np.float64) for number in (1, 2, 3, 4))
    area = (0.02 + share * 0.31) * HEIGHT * WIDTH
    aspect = np.exp(np.log(0.3) + aspect * (np.log(1 / 0.3) - np.log(0.3)))
    for index in range(COUNT):
        high, wide = (
            min(np.sqrt(area[index] * aspect[index]), HEIGHT),
            min(np.sqrt(area[index] / aspect[index]), WIDTH),
        )
        y, x = top[index] * (HEIGHT - high), left[index] * (WIDTH - wide)
        expected = images[index].numpy().copy()
        expected[int(y) : int(y + high), int(x) : int(x + wide)] = images[index].numpy().mean((0, 1))
        np.testing.assert_allclose(found[index], expected, atol=1e-4)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 3.0])
def test_weights_are_distributed_like_beta(alpha):
    found = mixing.weights(alpha)
    # Rounded to 1 where alpha is small.
    assert stats.kstest(found, stats.beta(alpha, alpha).cdf).statistic < 0.02
    assert found.mean() == pytest.approx(0.5, abs=1e-4)


def test_mixup_is_the_weighted_mean(batch):
    images, drawn = batch
    found, own = mixing.mix(images, images[::-1], drawn, mixup=0.4, cutmix=None)
    own = own.numpy()[:, None, None, None].astype(np.float64)
    np.testing.assert_allclose(found, images.numpy() * own + images.numpy()[::-1] * (1 - own), atol=1e-5)
    assert 0.3 < own.mean() < 0.7


def test_cutmix_takes_a_rectangle_and_counts_its_pixels(batch):
    _, drawn = batch
    ours, others = tf.zeros((COUNT, HEIGHT, WIDTH, 3)), tf.ones((COUNT, HEIGHT, WIDTH, 3))
    found, own = mixing.mix(ours, others, drawn, mixup=None, cutmix=1.0)
    draws = Draws(drawn, 5, stream=3)
    wanted = mixing.weights(1.0)[draws.integers(1, 4096).numpy()]
    for index, image in enumerate(found.numpy()[..., 0]):
        assert float(own[index]) == pytest.approx(1 - image.mean(), abs=1e-6)
        bounds = rows_and_columns(image > 0)
        if bounds is None:
            assert wanted[index] > 0.9
            continue
        assert bounds[2]
        for (begin, end), length in zip(bounds[:2], (HEIGHT, WIDTH), strict=True):
            side = int(np.sqrt(1 - wanted[index].astype(np.float64)) * length)
            cut = begin == 0 or end == length
            assert end - begin == side or (cut and end - begin < side)


def test_with_both_half_of_the_images_are_cut(batch):
    _, drawn = batch
    ours, others = tf.zeros((COUNT, HEIGHT, WIDTH, 1)), tf.ones((COUNT, HEIGHT, WIDTH, 1))
    found, own = mixing.mix(ours, others, drawn, mixup=1.0, cutmix=1.0)
    np.testing.assert_allclose(1 - found.numpy().mean((1, 2, 3)), own, atol=1e-5)
    blended = sum(len(np.unique(image)) == 1 and 0 < image.min() < 1 for image in found.numpy())
    assert 70 <= blended <= 130


def test_a_mixed_image_does_not_depend_on_its_batch(batch):
    images, drawn = batch
    together = mixing.mix(images, images[::-1], drawn, mixup=0.4, cutmix=1.0)
    alone = mixing.mix(images[7:9], images[::-1][7:9], drawn[7:9], mixup=0.4, cutmix=1.0)
    np.testing.assert_array_equal(alone.images, together.images[7:9])
    np.testing.assert_array_equal(alone.own, together.own[7:9])


@pytest.mark.parametrize("gathered", [[0, 1, 2, 3, 4], [3, 4, -1, 0, 1, 2], [0, 1, 2] * 3, [0, 1, -1] * 2])
def test_the_other_image_is_as_far_from_the_end_of_the_global_batch(gathered):
    own = sorted(set(gathered) - {-1})
    found = mixing.partners(tf.constant(gathered), tf.constant(own))
    assert [gathered[index] for index in found.numpy()] == own[::-1]
