"""Random numbers without state."""

import numpy as np
import pytest
import tensorflow as tf

from perennial.data.preprocessing.randomness import Draws, keys, threefry


def words(*values):
    first, second = (tf.constant([value], tf.int64) for value in values)
    return first, second


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_known_answers_of_its_authors(key, counter, expected):
    first, second = threefry(words(*key), words(*counter))
    assert (int(first[0]), int(second[0])) == expected


def test_a_draw_is_a_word_of_the_examples_key():
    (first, second), (example,) = threefry(words(11, 4), words(9, 0)), keys(11, 4, tf.constant([9])).numpy()
    assert example.tobytes() == np.array([first[0], second[0]], np.uint32).tobytes()
    pair = threefry((first, second), words(1, 0))  # draws 2 and 3
    drawn = Draws(example[None], 4)
    assert [int(drawn.integers(draw, 2**31)[0]) for draw in (2, 3)] == [int(word[0]) >> 1 for word in pair]


def test_every_seed_epoch_and_ordinal_has_a_key_of_its_own():
    ordinals = tf.constant([0, 1, 2, 2**31, 2**32, 2**40], tf.int64)
    every = [keys(seed, epoch, ordinals).numpy() for seed in (0, 1, 2**32 - 1) for epoch in (0, 1, 2**20)]
    assert len({key.tobytes() for key in np.concatenate(every)}) == 9 * 6


# Of fixed keys, so that they cannot fail by chance; five standard deviations are allowed.
def test_uniform_draws_are_even():
    drawn = Draws(keys(0, 0, tf.range(100_000)), 2)
    for draw in (0, 1):
        values = drawn.uniform(draw).numpy()
        counts = np.histogram(values, 64, (0, 1))[0]
        expected = len(values) / 64
        assert ((counts - expected) ** 2 / expected).sum() < 63 + 5 * np.sqrt(2 * 63)
        assert (values.min() >= 0, values.max() < 1) == (True, True)


def test_neighbouring_examples_epochs_and_draws_have_nothing_in_common():
    this, later = (Draws(keys(0, epoch, tf.range(100_000)), 2) for epoch in (0, 1))
    values = this.uniform(0).numpy()
    others = (this.uniform(1).numpy(), later.uniform(0).numpy(), np.roll(values, 1))
    correlations = [abs(np.corrcoef(values, other)[0, 1]) for other in others]
    assert max(correlations) < 5 / np.sqrt(100_000)


def test_integers_are_even_and_reach_both_ends():
    counts = np.bincount(Draws(keys(0, 0, tf.range(90_000)), 1).integers(0, 9).numpy())
    assert len(counts) == 9
    assert ((counts - 10_000) ** 2 / 10_000).sum() < 8 + 5 * np.sqrt(2 * 8)
