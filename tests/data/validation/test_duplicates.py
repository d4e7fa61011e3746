import itertools
import tracemalloc

import numpy as np
import PIL.Image
import pytest
from support.odd_images import saved
from support.raw import picture

from perennial.data.validation import duplicates


def digests(*values):
    """Digests whose first halves are all equal where the values are below 10."""
    return np.array([(value // 10, value) for value in values], np.uint64).reshape(-1, 2)


def splits(*values):
    return np.array(values, np.uint8)


def lists(groups):
    return [group.tolist() for group in groups]


def flipped(value, *bits):
    return value ^ sum(1 << bit for bit in bits)


def brute_force(hashes, parts, distance):
    return [
        (one, other)
        for one, other in itertools.combinations(range(len(hashes)), 2)
        if parts[one] != parts[other] and (int(hashes[one]) ^ int(hashes[other])).bit_count() <= distance
    ]


@pytest.mark.parametrize(
    ("values", "parts", "within", "across"),
    [
        ([], [], [], []),
        ([1, 2, 3], [0, 0, 1], [], []),
        ([5, 1, 5, 1], [0, 0, 0, 0], [[0, 2], [1, 3]], []),
        ([70, 1, 70, 1, 1], [0, 0, 1, 1, 2], [], [[0, 2], [1, 3, 4]]),
        ([3, 9, 3, 9, 3], [0, 0, 0, 1, 0], [[0, 2, 4]], [[1, 3]]),
    ],
)
def test_equal_digests_are_grouped_by_whether_their_splits_differ(values, parts, within, across):
    found = duplicates.exact(digests(*values), splits(*parts))
    assert (lists(found.within), lists(found.across)) == (within, across)


@pytest.mark.parametrize("distance", [0, 1, 3, 4, 8])
def test_exactly_the_pairs_of_different_splits_within_the_distance_are_found(distance):
    rng = np.random.default_rng(distance)
    hashes = rng.integers(0, 2**64, 20, np.uint64)[rng.integers(0, 20, 400)]
    for _ in range(5):  # none to five bits of each are flipped
        hashes ^= np.uint64(1) << rng.integers(0, 64, 400, np.uint64) * rng.integers(0, 2, 400, np.uint64)
    parts = rng.choice(splits(0, 1, 2), 400, p=[0.2, 0.7, 0.1])
    found = duplicates.near(hashes, parts, distance=distance, most=10**6)
    assert sorted(map(tuple, found.pairs.tolist())) == brute_force(hashes, parts, distance)
    assert found.complete


BASE = 0x0123456789ABCDEF


@pytest.mark.parametrize(
    ("others", "distance", "pairs"),
    [
        ([flipped(BASE, 1, 2), flipped(BASE, 7), BASE], 2, [[0, 3], [0, 2], [0, 1]]),
        ([flipped(BASE, 0, 21, 42, 63), flipped(BASE, 30, 31, 32, 33)], 4, [[0, 1], [0, 2]]),
    ],
)
def test_near_pairs_come_closest_first_wherever_their_bits_differ(others, distance, pairs):
    hashes, parts = np.array([BASE, *others], np.uint64), splits(0, *[1] * len(others))
    assert duplicates.near(hashes, parts, distance=distance, most=9).pairs.tolist() == pairs


def test_pairs_with_equal_digests_are_no_near_pairs():
    hashes, parts = np.array([5, 5, 5], np.uint64), splits(0, 1, 1)
    found = duplicates.near(hashes, parts, distance=0, most=9, digests=digests(1, 1, 2))
    assert (found.pairs.tolist(), found.complete) == ([[0, 2]], True)


@pytest.mark.parametrize(("most", "complete"), [(0, False), (5, False), (6, True), (7, True)])
def test_at_most_so_many_pairs_are_given(most, complete):
    found = duplicates.near(np.zeros(5, np.uint64), splits(0, 0, 1, 1, 1), distance=4, most=most)
    assert (len(found.pairs), found.complete) == (min(most, 6), complete)


@pytest.mark.parametrize("parts", [[], [1], [2, 2, 2]])
def test_fewer_than_two_splits_have_no_near_pairs(parts):
    found = duplicates.near(np.zeros(len(parts), np.uint64), splits(*parts), distance=4, most=9)
    assert (found.pairs.shape, found.complete) == ((0, 2), True)


def test_an_incomplete_search_is_marked(monkeypatch):
    monkeypatch.setattr(duplicates, "COMPARISONS", 300)
    hashes, alike, parts = np.zeros(8000, np.uint64), np.zeros((8000, 2), np.uint64), splits(*[0, 1] * 4000)
    found = duplicates.near(hashes, parts, distance=4, most=9, digests=alike)
    assert (len(found.pairs), found.complete) == (0, False)


def test_plain_images_do_not_hide_a_pair_among_the_others():
    rng = np.random.default_rng(3)
    plain = np.uint64(1) << rng.integers(0, 64, (2, 20_000), np.uint64)  # one run of zeros in every band
    hashes = np.append(plain[0] | plain[1], np.array([0x123456789ABCDEF0, 0x123456789ABCDEF2], np.uint64))
    parts = np.append(np.repeat(splits(0, 1), 10_000), splits(0, 1))
    found = duplicates.near(hashes, parts, distance=1, most=10**6)
    assert [20_000, 20_001] in found.pairs.tolist()


def test_a_search_takes_little_memory():
    hashes = np.random.default_rng(4).integers(0, 2**64, 100_000, np.uint64)
    parts = np.repeat(splits(0, 1, 2), (80_000, 10_000, 10_000))
    tracemalloc.start()
    duplicates.near(hashes, parts, distance=4, most=1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60 * len(hashes) + 4e6  # bytes


CHANGES = {
    "re-encoded": lambda image: image,
    "smaller": lambda image: image.resize((60, 60)),
    "brighter": lambda image: image.point(lambda value: min(round(1.25 * value), 255)),
    "cropped": lambda image: image.crop((3, 1, image.width - 2, image.height - 3)),
}


def small(image):
    return duplicates.small_version(saved(image, "JPEG", quality=85))


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_copy_is_like_its_original_alone(change):
    images = [PIL.Image.fromarray(picture(seed, 96)) for seed in range(10)]
    originals, copies = map(small, images), [small(CHANGES[change](image)) for image in images]
    found = [[duplicates.are_alike(one, copy) for copy in copies] for one in originals]
    assert found == np.eye(10, dtype=bool).tolist()


def test_plain_images_are_like_none():
    plain = [small(PIL.Image.new("RGB", (64, 64), (shade, shade, shade))) for shade in (0, 90, 255)]
    assert not any(duplicates.are_alike(one, other) for one in plain for other in plain)
