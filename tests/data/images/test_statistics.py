"""Sums over images, and a fingerprint of each."""

import numpy as np
import PIL.Image
import pytest

from perennial.data.images import BRIGHTNESS_BINS, statistics
from perennial.data.images.statistics import Statistics

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (3, 4, 5, 1), np.uint8)
COLOURED = RNG.integers(0, 256, (4, 6, 5, 3), np.uint8)
each_kind = pytest.mark.parametrize("batch", [GREY, COLOURED], ids=["grey", "colour"])


def pillow(pixels):
    return PIL.Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[..., 0])


def digest(pixels):
    return statistics.of_batch(pixels[np.newaxis])[1].digests[0].tolist()


@each_kind
def test_the_values_of_each_channel_are_counted(batch):
    found, _ = statistics.of_batch(batch)
    channels = batch.shape[3]
    expected = [np.bincount(batch[..., channel].ravel(), minlength=256) for channel in range(channels)]
    assert np.array_equal(found.histograms[channels], expected)


@each_kind
def test_each_image_is_counted_by_its_mean_brightness(batch):
    found, _ = statistics.of_batch(batch)
    bins = [int(image.mean() * BRIGHTNESS_BINS / 256) for image in batch]
    assert np.array_equal(found.brightness, np.bincount(bins, minlength=BRIGHTNESS_BINS))


@each_kind
def test_an_image_of_pillow_counts_as_its_pixels_do(batch):
    one, _ = statistics.of_image(pillow(batch[0]))
    other, _ = statistics.of_batch(batch[:1])
    channels = batch.shape[3]
    assert np.array_equal(one.histograms[channels], other.histograms[channels])
    assert np.array_equal(one.brightness, other.brightness)


@pytest.mark.parametrize(
    "shape", [(6, 5, 1), (6, 5, 3), (150, 130, 3), (600, 500, 1), (1, 70_000, 1), (90_000, 2, 3)]
)
def test_an_image_of_pillow_has_the_digest_of_its_pixels(shape):
    pixels = RNG.integers(0, 256, shape, np.uint8)
    _, found = statistics.of_image(pillow(pixels))
    assert found.digests.tolist() == [digest(pixels)]


@pytest.mark.fast_rows("shape0", "shape1", "shape4")
@pytest.mark.parametrize(
    "shape", [(150, 130, 3), (600, 500, 1), (1, 300_000, 1), (300_000, 1, 1), (3, 90_000, 3)]
)
def test_a_large_image_is_about_as_bright_as_its_pixels(shape):
    pixels = RNG.integers(0, 256, shape, np.uint8)
    found, _ = statistics.of_image(pillow(pixels))
    assert abs(int(found.brightness.argmax()) - int(pixels.mean() * BRIGHTNESS_BINS / 256)) <= 1


@each_kind
def test_fingerprints_come_in_the_order_of_the_images(batch):
    _, together = statistics.of_batch(batch)
    alone = [statistics.of_batch(batch[number : number + 1])[1] for number in range(len(batch))]
    assert together.digests.tolist() == [each.digests[0].tolist() for each in alone]
    assert together.hashes.tolist() == [each.hashes[0].tolist() for each in alone]


@pytest.mark.parametrize("shape", [(2, 6, 1), (6, 2, 1), (3, 4, 1), (2, 2, 3), (1, 4, 3)])
def test_images_of_another_size_have_other_digests(shape):
    assert digest(np.zeros(shape, np.uint8)) != digest(np.zeros((4, 3, 1), np.uint8))


def test_any_other_pixel_is_another_digest():
    digests = set()
    for number in range(GREY[0].size):
        changed = GREY[0].copy()
        changed.ravel()[number] ^= 1
        digests.add(tuple(digest(changed)))
    assert len(digests - {tuple(digest(GREY[0]))}) == GREY[0].size


def test_equal_files_have_equal_digests_and_others_do_not():
    first, second, third = statistics.encoded_digests([b"one", b"two", b"one"]).tolist()
    assert first == third
    assert first != second


def test_grey_and_coloured_images_are_counted_apart():
    total = Statistics()
    for batch in (GREY, COLOURED):
        total.add(statistics.of_batch(batch)[0])
    assert {channels: histogram.shape for channels, histogram in total.histograms.items()} == {
        1: (1, 256),
        3: (3, 256),
    }
