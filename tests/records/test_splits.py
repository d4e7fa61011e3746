"""Which example goes where."""

from collections import Counter

import pytest

from perennial.records import splits


@pytest.mark.parametrize(
    ("members", "fraction", "held_out"),
    [(10, 0.1, 1), (10, 0.25, 2), (100, 0.1, 10), (2, 0.01, 1), (2, 0.99, 1), (3, 0.99, 2), (7, 0.5, 4)],
)
def test_each_class_gives_its_share_but_never_none_or_all(members, fraction, held_out):
    assert len(splits.held_out([5] * members, fraction=fraction, seed=0)) == held_out


def test_the_cut_is_stratified():
    labels = [0] * 50 + [1] * 30 + [2] * 20
    cut = splits.held_out(labels, fraction=0.1, seed=0)
    assert Counter(labels[index] for index in cut) == {0: 5, 1: 3, 2: 2}


def test_the_cut_is_the_same_for_ever():
    assert splits.held_out([0] * 20, fraction=0.2, seed=0) == {18, 4, 15, 7}


def test_another_seed_holds_others_out():
    assert splits.held_out([0] * 20, fraction=0.2, seed=0) != splits.held_out([0] * 20, fraction=0.2, seed=1)


def test_a_class_of_one_example_cannot_be_cut():
    with pytest.raises(ValueError, match="class 1 has 1 example, too few to hold one out"):
        splits.held_out([0, 0, 1], fraction=0.5, seed=0)


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


@pytest.mark.parametrize(("examples", "shards"), [(10, 3), (1797, 7), (5, 5), (4, 9)])
def test_shards_hold_every_example_once_and_in_order(examples, shards):
    assert [index for part in splits.even(examples, shards) for index in part] == list(range(examples))
