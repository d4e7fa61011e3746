"""Sums over images, and a fingerprint of each."""

import io

import numpy as np
import PIL.Image
import pytest
from support.odd_images import saved

from perennial.data.images import BRIGHTNESS_BINS, statistics

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


def scene(size=(200, 150), seed=0):
    """A soft coloured picture: a few random patches, enlarged."""
    patches = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), np.uint8)
    return PIL.Image.fromarray(patches).resize(size, PIL.Image.Resampling.BICUBIC)


def difference_hash(image):
    return int(statistics.of_image(image)[1].hashes[0])


def bits_between(one, other):
    return (difference_hash(one) ^ difference_hash(other)).bit_count()


CHANGES = {
    "quality 50": lambda image: PIL.Image.open(io.BytesIO(saved(image, "JPEG", quality=50))),
    "half as large": lambda image: image.resize((image.width // 2, image.height // 2)),
    "brighter": lambda image: image.point(lambda value: min(value + 10, 255)),
    "cropped": lambda image: image.crop((2, 1, image.width - 2, image.height - 1)),
    "grey": lambda image: image.convert("L"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("seed", range(5))
def test_a_changed_copy_differs_in_few_bits(change, seed):
    assert bits_between(scene(seed=seed), CHANGES[change](scene(seed=seed))) <= 4


def test_different_pictures_differ_in_many_bits():
    assert min(bits_between(scene(seed=0), scene(seed=seed)) for seed in range(1, 20)) > 8


@pytest.mark.parametrize("shape", [(28, 28, 1), (32, 32, 3), (8, 9, 1), (1, 1, 3), (5, 7, 3), (3, 40, 1)])
def test_one_image_counts_and_has_the_fingerprint_as_in_a_batch(shape):
    pixels = RNG.integers(0, 256, (20, *shape), np.uint8)
    counted, together = statistics.of_batch(pixels)
    total, alone = statistics.Statistics(), []
    for one, found in (statistics.of_image(pillow(image)) for image in pixels):
        total.add(one)
        alone.append(found)
    assert total.histograms[shape[2]].tolist() == counted.histograms[shape[2]].tolist()
    assert total.brightness.tolist() == counted.brightness.tolist()
    assert together.digests.tolist() == [each.digests[0].tolist() for each in alone]
    assert together.hashes.tolist() == [each.hashes[0] for each in alone]


@pytest.mark.fast_rows("shape0", "shape1", "shape4")
@pytest.mark.parametrize(
    "shape", [(150, 130, 3), (600, 500, 1), (1, 300_000, 1), (300_000, 1, 1), (3, 90_000, 3)]
)
def test_a_large_image_has_the_digest_of_its_pixels_and_about_their_brightness(shape):
    pixels = RNG.integers(0, 256, shape, np.uint8)
    counted, found = statistics.of_image(pillow(pixels))
    assert found.digests.tolist() == [digest(pixels)]
    assert abs(int(counted.brightness.argmax()) - int(pixels.mean() * BRIGHTNESS_BINS / 256)) <= 1


def test_bits_are_the_cells_whose_right_neighbour_is_brighter():
    pixels = np.zeros((8, 9), np.uint8)
    pixels[0, 1:] = 100  # the upper left pixel is darker than its neighbour
    pixels[7, 8] = 100  # and so is the one left of the lower right corner
    assert difference_hash(PIL.Image.fromarray(pixels)) == 1 << 63 | 1


@pytest.mark.parametrize(("rise", "bits"), [(0, 0), (2, 0), (3, 8)])
def test_a_rise_of_a_few_grey_levels_is_noise(rise, bits):
    pixels = np.full((16, 18), 50, np.uint8)
    pixels[:, 10:] += np.uint8(rise)
    assert difference_hash(PIL.Image.fromarray(pixels)).bit_count() == bits
