"""Sums over images, and a fingerprint of each."""

import numpy as np
import PIL.Image
import pytest

from perennial.images import statistics
from perennial.images.statistics import Statistics, summarize

RNG = np.random.default_rng(0)
IMAGES = [RNG.integers(0, 256, shape, np.uint8) for shape in [(4, 4, 1), (5, 6, 3), (4, 4, 1), (7, 3, 3)]]
LARGE = RNG.integers(0, 256, (150, 130, 3), np.uint8)


def test_the_values_of_each_channel_are_counted():
    found, _ = summarize(IMAGES)
    grey = np.concatenate([image.ravel() for image in IMAGES if image.shape[2] == 1])
    assert np.array_equal(found.histograms[1][0], np.bincount(grey, minlength=256))


def test_colours_are_counted_apart_from_grey():
    found, _ = summarize(IMAGES)
    blue = np.concatenate([image[..., 2].ravel() for image in IMAGES if image.shape[2] == 3])
    assert np.array_equal(found.histograms[3][2], np.bincount(blue, minlength=256))


def test_each_image_is_counted_by_its_mean_brightness():
    found, _ = summarize(IMAGES)
    bins = [int(image.mean() * statistics.BINS / 256) for image in IMAGES]
    assert np.array_equal(found.brightness, np.bincount(bins, minlength=statistics.BINS))


@pytest.mark.parametrize(("value", "place"), [(0, 0), (7, 0), (8, 1), (255, 31)])
def test_brightness_goes_from_black_to_white(value, place):
    found, _ = summarize([np.full((3, 3, 1), value, np.uint8)])
    assert found.brightness.tolist().index(1) == place


def test_a_large_image_of_pillow_counts_as_its_pixels_do():
    one, _ = summarize([PIL.Image.fromarray(LARGE)])
    other, _ = summarize([LARGE])
    assert np.array_equal(one.histograms[3], other.histograms[3])
    assert np.array_equal(one.brightness, other.brightness)


def test_a_large_image_of_pillow_has_the_fingerprint_of_its_pixels():
    (_, one), (_, other) = summarize([PIL.Image.fromarray(LARGE)]), summarize([LARGE])
    assert (one.digests.tolist(), one.hashes.tolist()) == (other.digests.tolist(), other.hashes.tolist())


def test_fingerprints_come_in_the_order_of_the_images():
    _, together = summarize(IMAGES)
    alone = [summarize([image])[1] for image in IMAGES]
    assert together.digests.tolist() == [each.digests[0].tolist() for each in alone]
    assert together.hashes.tolist() == [each.hashes[0].tolist() for each in alone]


def test_images_of_equal_pixels_and_size_have_equal_digests():
    assert statistics.digest(IMAGES[1].copy()) == statistics.digest(IMAGES[1])


def test_a_view_of_an_image_has_the_digest_of_its_copy():
    assert statistics.digest(LARGE[::2, ::-1]) == statistics.digest(LARGE[::2, ::-1].copy())


@pytest.mark.parametrize("shape", [(2, 6, 1), (6, 2, 1), (3, 4, 1), (2, 2, 3), (1, 4, 3)])
def test_images_of_another_size_have_other_digests(shape):
    black = np.zeros((4, 3, 1), np.uint8)
    assert statistics.digest(np.zeros(shape, np.uint8)) != statistics.digest(black)


def test_any_other_pixel_is_another_digest():
    digests = set()
    for number in range(IMAGES[0].size):
        changed = IMAGES[0].copy()
        changed.ravel()[number] ^= 1
        digests.add(statistics.digest(changed))
    assert len(digests - {statistics.digest(IMAGES[0])}) == IMAGES[0].size


def test_no_images_have_no_fingerprints():
    found, fingerprints = summarize([])
    assert (found.histograms, fingerprints.digests.shape, fingerprints.hashes.shape) == ({}, (0, 2), (0,))


def test_sums_over_parts_add_up_to_the_sum_over_all():
    whole, _ = summarize(IMAGES)
    total = Statistics()
    for image in IMAGES:
        total.add(summarize([image])[0])
    assert np.array_equal(total.brightness, whole.brightness)
    assert {c: h.tolist() for c, h in total.histograms.items()} == {
        c: h.tolist() for c, h in whole.histograms.items()
    }
