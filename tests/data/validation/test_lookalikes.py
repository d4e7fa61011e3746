"""Changed copies in different splits: they are found, other images are not."""

import numpy as np
import PIL.Image
import pytest
from support.odd_images import saved

from perennial.data.images import statistics
from perennial.data.validation import lookalikes


def scene(seed, size=(120, 90)):
    """A soft coloured picture with some detail: random patches of two sizes, enlarged."""
    rng = np.random.default_rng(seed)
    layers = [
        np.asarray(
            PIL.Image.fromarray(rng.integers(0, 256, (side, side, 3), np.uint8)).resize(
                size, PIL.Image.Resampling.BICUBIC
            )
        )
        for side in (5, 11)
    ]
    return PIL.Image.fromarray((0.7 * layers[0] + 0.3 * layers[1]).astype(np.uint8))


def as_jpeg(image, quality=85):
    return saved(image, "JPEG", quality=quality)


CHANGES = {
    "re-encoded": lambda image: image,
    "smaller": lambda image: image.resize((70, 52)),
    "larger": lambda image: image.resize((200, 150)),
    "brighter": lambda image: image.point(lambda value: min(round(1.25 * value), 255)),
    "cropped": lambda image: image.crop((4, 1, image.width - 2, image.height - 3)),
    "cropped and scaled back": lambda image: image.crop((4, 1, 116, 87)).resize(image.size),
}


def found(images, splits, beyond=4):
    """Pairs that are found among images, with the beginning that validation makes."""
    prints = [statistics.of_image(image)[1] for image in images]
    hashes = np.concatenate([each.hashes for each in prints])
    cells = np.concatenate([each.cells for each in prints])
    pairs, complete = lookalikes.candidates(hashes, np.array(splits, np.uint8), cells, beyond=beyond)
    small = [lookalikes.small_version(as_jpeg(image)) for image in images]
    assert complete
    return lookalikes.confirmed(pairs, small.__getitem__).tolist()


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_copy_in_another_split_is_found_and_nothing_else(change):
    originals = [scene(seed) for seed in range(10)]
    copies = [CHANGES[change](image) for image in originals]
    others = [scene(seed) for seed in range(20, 40)]
    pairs = found([*originals, *others, *copies], [0] * 30 + [2] * 10, beyond=-1)
    assert sorted(pairs) == [[number, 30 + number] for number in range(10)]


def test_copies_in_one_split_are_not_searched():
    image = scene(1)
    assert found([image, CHANGES["cropped"](image)], [1, 1], beyond=-1) == []


def test_pairs_with_closer_hashes_are_left_out():
    image = scene(1)
    assert found([image, CHANGES["re-encoded"](image)], [0, 1], beyond=4) == []


def test_plain_images_are_no_copies():
    images = [PIL.Image.new("RGB", (64, 64), (shade, shade, shade)) for shade in range(0, 250, 25)]
    assert found(images, [0, 1] * 5, beyond=-1) == []


@pytest.mark.parametrize(("comparisons", "complete"), [(5, False), (6, True)])
def test_too_many_comparisons_are_not_made(comparisons, complete):
    hashes, cells = np.zeros(5, np.uint64), np.zeros((5, 8, 9), np.uint8)
    splits = np.array([0, 0, 1, 1, 1], np.uint8)
    result = lookalikes.candidates(hashes, splits, cells, beyond=0, comparisons=comparisons)
    assert (len(result.pairs), result.complete) == (0, complete)


def test_few_images_and_none_have_no_pairs():
    for count in (0, 1):
        hashes, cells = np.zeros(count, np.uint64), np.zeros((count, 8, 9), np.uint8)
        result = lookalikes.candidates(hashes, np.zeros(count, np.uint8), cells, beyond=4)
        assert (result.pairs.shape, result.complete) == ((0, 2), True)
        assert lookalikes.confirmed(result.pairs, lambda number: np.zeros((24, 24))).shape == (0, 2)


def test_a_shift_and_a_stretch_leave_nothing_unexplained():
    image = np.asarray(scene(3).convert("L").resize((48, 48)), np.float64)
    one, other = image[None, 4:36, 4:36], image[None, 6:38, 3:35]
    assert lookalikes.unexplained(one, other, rounds=6)[0] < 0.02
    assert lookalikes.unexplained(one, 0.5 * one + 30, rounds=0)[0] < 1e-9
    assert lookalikes.unexplained(one, 255 - one, rounds=6)[0] > 0.5


@pytest.mark.parametrize("shade", [np.zeros, np.ones], ids=["plain", "evenly shaded"])
def test_images_without_details_can_be_fitted(shade):
    ramp = np.linspace(0, 255, 24, dtype=np.float32) * shade(24, np.float32)
    image = np.broadcast_to(ramp, (1, 24, 24)).copy()
    assert np.isfinite(lookalikes.unexplained(image, image.transpose(0, 2, 1), rounds=4)).all()
