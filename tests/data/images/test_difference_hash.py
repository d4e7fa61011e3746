import io

import numpy as np
import PIL.Image
import pytest

from perennial.data.images import statistics


def scene(size=(200, 150), seed=0):
    """A soft coloured picture: a few random patches, enlarged."""
    patches = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), np.uint8)
    return PIL.Image.fromarray(patches).resize(size, PIL.Image.Resampling.BICUBIC)


def as_jpeg(image, quality):
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=quality)
    return PIL.Image.open(stream)


def difference_hash(image):
    return int(statistics.of_image(image)[1].hashes[0])


def bits_between(one, other):
    return (difference_hash(one) ^ difference_hash(other)).bit_count()


CHANGES = {
    "quality 50": lambda image: as_jpeg(image, 50),
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
def test_one_image_has_the_fingerprint_that_it_has_in_a_batch(shape):
    pixels = np.random.default_rng(0).integers(0, 256, (20, *shape), np.uint8)
    images = [PIL.Image.fromarray(image.squeeze(2) if shape[2] == 1 else image) for image in pixels]
    assert statistics.of_batch(pixels)[1].hashes.tolist() == [*map(difference_hash, images)]


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
