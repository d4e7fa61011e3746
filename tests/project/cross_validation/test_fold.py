"""Which images a fold holds out, and which validate its training."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perennial.data.records import splits
from perennial.project.cross_validation import fold

CLASSES = ("ant", "bee", "cow")
ONE = st.lists(st.integers(0, 2), min_size=6, max_size=40).map(lambda each: np.array(each, np.int64))
SEVERAL = st.lists(st.tuples(*[st.integers(0, 1)] * 3), min_size=6, max_size=40).map(
    lambda each: np.array(each, np.uint8)
)


def digests(count, first=0):
    return [hashlib.sha256(str(first + number).encode()).hexdigest() for number in range(count)]


def groups_of(names, labels, pairs=()):
    return fold.grouped(names, labels, len(CLASSES), pairs)


def fold_of_images(groups, count=3, seed=0):
    return fold.assigned(groups, CLASSES, count, seed)[groups.of]


@settings(max_examples=50, deadline=None)
@given(labels=st.one_of(ONE, SEVERAL), count=st.integers(2, 5), data=st.data())
def test_a_fold_is_a_function_of_the_images_and_divides_no_group(labels, count, data):
    indices = st.integers(0, len(labels) - 1)
    pairs = data.draw(st.lists(st.tuples(indices, indices), max_size=8))
    order = np.array(data.draw(st.permutations(range(len(labels)))))
    place, names = np.argsort(order), digests(len(labels))
    groups = groups_of(names, labels, pairs)
    found = fold_of_images(groups, count)
    moved = groups_of(
        [names[index] for index in order], labels[order], [(place[one], place[other]) for one, other in pairs]
    )
    assert (fold_of_images(moved, count) == found[order]).all()
    assert all(found[one] == found[other] for one, other in pairs)
    for label in range(3 if labels.ndim == 1 else 0):
        own = [found[groups.of == group][0] for group in np.flatnonzero(groups.strata == label)]
        assert len(own) < 2 or len(set(own)) > 1, "all of a class would be held out at once"
    rest = np.flatnonzero(fold.assigned(groups, CLASSES, count, 0) != 0)
    validates = splits.held_out_groups(groups, rest, fraction=0.2, salt="salt")
    assert set(validates.tolist()) < set(rest.tolist()) or not len(rest)


@pytest.mark.parametrize("several", [False, True])
def test_folds_are_stratified_and_most_images_keep_theirs_when_others_are_added(several):
    random, names = np.random.default_rng(0), digests(600)
    labels = random.choice(3, 600, p=[0.1, 0.3, 0.6])
    if several:
        labels = (random.random((600, 3)) < [0.1, 0.3, 0.6]).astype(np.uint8)
    before, after = (fold_of_images(groups_of(names[:size], labels[:size]), count=5) for size in (500, 600))
    assert (before == after[:500]).mean() > 0.9
    shares = labels[:500].sum(axis=0) if several else np.bincount(labels[:500])
    for number in range(5):
        own = labels[:500][before == number]
        counts = own.sum(axis=0) if several else np.bincount(own, minlength=3)
        assert counts == pytest.approx(shares / 5, rel=0.25, abs=1)


def test_validation_in_a_fold_is_cut_as_convert_cuts_it():
    labels, names = np.repeat([0, 1], 20), digests(40)
    groups = groups_of(names, labels)
    rest = np.arange(40)
    chosen = splits.held_out(groups.strata, fraction=0.2, salt="salt", names=groups.names)
    found = splits.held_out_groups(groups, rest, fraction=0.2, salt="salt")
    assert set(found.tolist()) == set(np.flatnonzero(chosen).tolist())
    assert len(splits.held_out_groups(groups, rest, fraction=0.0, salt="salt")) == 0


def test_equal_values_are_connected_and_empty_texts_are_not():
    assert fold.equal_pairs(["b", "", "a", "b", "", "b"]) == [(0, 3), (3, 5)]
