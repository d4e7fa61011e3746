"""Which example goes where."""

from collections import Counter

import numpy as np
import pytest

from perennial.data.records import splits


def held(labels, fraction, salt="0", names=()):
    """The numbers of the examples that are held out."""
    chosen = splits.held_out(np.array(labels, np.int64), fraction=fraction, salt=salt, names=names)
    return set(np.flatnonzero(chosen).tolist())


@pytest.mark.parametrize(
    ("members", "fraction", "held_out"),
    [(10, 0.1, 1), (10, 0.25, 2), (100, 0.1, 10), (2, 0.01, 1), (2, 0.99, 1), (3, 0.99, 2), (7, 0.5, 4)],
)
def test_each_class_gives_its_share_but_never_none_or_all(members, fraction, held_out):
    assert len(held(labels=[5] * members, fraction=fraction)) == held_out


def test_the_cut_is_stratified():
    labels = [0] * 50 + [1] * 30 + [2] * 20
    cut = held(labels, fraction=0.1)
    assert Counter(labels[index] for index in cut) == {0: 5, 1: 3, 2: 2}


def test_most_named_examples_keep_their_part_when_others_are_added():
    names = [f"{number}.jpg" for number in range(20)]
    more = [*(f"new-{number}.jpg" for number in range(10)), *names]
    before = {names[number] for number in held([0] * 20, fraction=0.2, names=names)}
    after = {more[number] for number in held([0] * 30, fraction=0.2, names=more)}
    assert len(before - after) <= 2, "six are held out now, of which at most the new ones take a place"


def test_a_class_of_one_example_cannot_be_cut():
    with pytest.raises(ValueError, match="class 1 has 1 example, too few to hold one out"):
        held([0, 0, 1], fraction=0.5)


def tagged(seed, examples=400, classes=12):
    """Labels uint8 [N, classes], from a label of half of the examples down to one of very few."""
    shares = 0.5 ** np.arange(1, classes + 1)
    return (np.random.default_rng(seed).random((examples, classes)) < shares).astype(np.uint8)


@pytest.mark.parametrize("fraction", [0.1, 0.25])
@pytest.mark.parametrize("seed", range(5))
def test_several_labels_are_cut_so_that_rare_ones_are_on_both_sides_and_counts_are_near(seed, fraction):
    labels = tagged(seed)
    names = [f"{seed}-{number}.jpg" for number in range(len(labels))]
    cut = splits.held_out_several(labels, fraction=fraction, salt="0", names=names)
    total, held_out = labels.sum(axis=0), labels[cut].sum(axis=0)
    several = total > 1
    assert (held_out[several] > 0).all()
    assert (held_out[total > 0] < total[total > 0]).all()
    assert np.abs(held_out - fraction * total)[several].max() <= max(2, 0.04 * len(labels) * fraction)
    without = ~labels.any(axis=1)
    assert cut[without].sum() == round(fraction * without.sum())


def test_a_cut_of_several_labels_is_that_of_one_where_each_example_has_one():
    one = np.random.default_rng(0).integers(0, 4, 200)
    several = splits.held_out_several(np.eye(4, dtype=np.uint8)[one], fraction=0.2, salt="s")
    assert np.flatnonzero(several).tolist() == sorted(held(one, fraction=0.2, salt="s"))


def test_a_cut_of_several_labels_depends_on_names_alone_and_most_keep_their_part():
    labels = tagged(1, examples=600)
    names = [f"{number}.jpg" for number in range(600)]
    order = np.random.default_rng(2).permutation(600)

    def cut(which):
        of = [names[number] for number in which]
        chosen = splits.held_out_several(labels[which], fraction=0.2, salt="0", names=of)
        return {of[number] for number in np.flatnonzero(chosen)}

    assert cut(order) == cut(np.arange(600))
    before, after = cut(np.arange(500)), cut(np.arange(600))
    assert len(before - after) <= 0.1 * len(before)


def test_labels_that_cannot_be_on_both_sides_stay_in_training():
    triangle = np.array([[1, 0, 1], [1, 1, 0], [0, 1, 1]], np.uint8)
    cut = splits.held_out_several(triangle, fraction=0.5, salt="0")
    assert (triangle[~cut].sum(axis=0) > 0).all()
    assert cut.sum() == 1


@pytest.mark.parametrize(
    ("examples", "shards", "sizes"),
    [
        (10, 1, [10]),
        (10, 2, [5, 5]),
        (10, 3, [3, 3, 4]),
        (3, 5, [1, 1, 1]),  # none is empty
        (1, 1, [1]),
        (0, 4, [0]),  # a split without examples still has its shard
    ],
)
def test_shards_are_as_even_as_can_be(examples, shards, sizes):
    assert [len(part) for part in splits.even(examples, shards)] == sizes
