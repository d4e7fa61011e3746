"""The order of the examples of an epoch."""

import hashlib
from itertools import pairwise

import numpy as np
import pytest

from perennial.data.records.manifest import Shard
from perennial.model.training.shuffle import MEGABYTE, Shuffle, Slices

UNEVEN = (5, 4, 5, 4, 4, 5, 4)


def order(*sizes: int, memory_mb: int = 1000, seed: int = 0, shard_mb: int = 1) -> Shuffle:
    shards = [
        Shard(file=f"{number}.tfrecord", examples=size, bytes=shard_mb * MEGABYTE, sha256="")
        for number, size in enumerate(sizes)
    ]
    return Shuffle(shards, seed, memory_mb)


@pytest.mark.parametrize("memory_mb", [1, 2, 3, 6, 7])
@pytest.mark.parametrize("epoch", [0, 1, 1000])
def test_every_example_comes_once_an_epoch(memory_mb: int, epoch: int) -> None:
    found = order(*UNEVEN, memory_mb=memory_mb).epoch(epoch)
    assert sorted(found) == list(range(sum(UNEVEN)))


@pytest.mark.parametrize("memory_mb", [2, 1000])
def test_the_order_is_a_function_of_seed_and_epoch(memory_mb: int) -> None:
    first, second = (order(*UNEVEN, memory_mb=memory_mb, seed=3).epoch(4).tolist() for _ in range(2))
    assert first == second


@pytest.mark.parametrize("memory_mb", [2, 1000])
def test_no_two_seeds_and_epochs_have_the_same_order(memory_mb: int) -> None:
    orders = {
        order(*UNEVEN, memory_mb=memory_mb, seed=seed).epoch(epoch).tobytes()
        for seed in range(10)
        for epoch in range(10)
    }
    assert len(orders) == 100


def test_how_a_split_that_fits_is_cut_into_shards_does_not_change_the_order() -> None:
    assert order(20).epoch(1).tolist() == order(*[1] * 20).epoch(1).tolist()


def test_a_full_shuffle_takes_every_example_anywhere() -> None:
    whole = order(*[10] * 4)
    places = np.array([np.argsort(whole.epoch(epoch)) for epoch in range(2000)])
    # Of 2,000 draws from 0 to 39 the mean is 19.5 with a standard deviation of 0.26.
    assert np.abs(places.mean(0) - 19.5).max() < 5 * 0.26


def test_a_group_is_examples_of_its_shards_alone() -> None:
    grouped = order(*UNEVEN, memory_mb=3)
    for group in grouped.groups(2):
        part = grouped.epoch(2)[group.first : group.first + group.examples]
        assert sorted(part) == grouped.ordinals(group).tolist()


def test_groups_stand_one_after_the_other() -> None:
    groups = order(*UNEVEN, memory_mb=2).groups(5)
    ends = [0, *(group.first + group.examples for group in groups)]
    assert [group.first for group in groups] + [sum(UNEVEN)] == ends


def test_the_shards_of_a_group_change_with_the_epoch() -> None:
    grouped = order(*[3] * 12, memory_mb=4)
    assert len({tuple(group.shards for group in grouped.groups(epoch)) for epoch in range(20)}) == 20


@pytest.mark.parametrize(("memory_mb", "largest"), [(1, 1), (2, 2), (3, 3), (5, 4), (6, 4)])
def test_a_group_fits_the_memory(memory_mb: int, largest: int) -> None:
    groups = order(*UNEVEN, memory_mb=memory_mb).groups(0)
    assert max(len(group.shards) for group in groups) == largest


def test_groups_are_as_large_as_each_other_to_a_shard() -> None:
    sizes = sorted(len(group.shards) for group in order(*UNEVEN, memory_mb=5).groups(0))
    assert all(larger - smaller <= 1 for smaller, larger in pairwise(sizes))


def test_a_shard_that_is_larger_than_the_memory_is_a_group() -> None:
    assert [len(group.shards) for group in order(3, 3, memory_mb=1, shard_mb=5).groups(0)] == [1, 1]


def test_the_log_names_a_full_shuffle() -> None:
    assert order(54_000, 1).quality() == "full shuffle of 54,001 examples"


def test_the_log_says_how_large_groups_are() -> None:
    text = order(*UNEVEN, memory_mb=3).quality()
    assert text == "shuffled within groups of at least 8 of 31 examples (2 of 7 shards)"


@pytest.mark.parametrize(
    ("memory_mb", "digest"),
    [
        (1000, "ffc7eecbb943dcf55f67da60ef31d1f9d7daf44acc5e6e2e3f40f19ff6318e86"),
        (3, "90d4f5dd06fe3aca19586570da08cc8d70613701528a6748fb1e3aa80846f0d3"),
    ],
)
def test_the_orders_never_change(memory_mb: int, digest: str) -> None:
    # A run that was started with one version of NumPy and of this project is continued with another.
    found = order(*[250, 251, 249, 250], memory_mb=memory_mb, seed=7).epoch(3)
    assert hashlib.sha256(found.astype("<i8").tobytes()).hexdigest() == digest


EXAMPLES, BATCH = 23, 5


def slices(replicas: range = range(1), of: int = 1) -> Slices:
    return Slices(examples=EXAMPLES, batch_size=BATCH, replicas=replicas, of=of)


@pytest.mark.parametrize("of", [1, 2, 3])
def test_the_slices_of_all_replicas_are_the_batch(of: int) -> None:
    every = np.arange(EXAMPLES)
    parts = [slices(range(replica, replica + 1), of).own(every) for replica in range(of)]
    batches = [np.concatenate([part[part // BATCH == step] for part in parts]) for step in range(5)]
    assert np.concatenate(batches).tolist() == every.tolist()


@pytest.mark.parametrize("of", [1, 2, 3, 4, 5])
def test_slices_of_a_batch_differ_by_one_example_at_most(of: int) -> None:
    sizes = slices(range(of), of).sizes(0).reshape(-1, of)
    assert (np.ptp(sizes, axis=1) <= 1).all()


@pytest.mark.parametrize("of", [3, 4])
def test_sizes_are_of_what_the_replicas_own(of: int) -> None:
    own = slices(range(1, 3), of)
    counts = np.bincount(own.own(np.arange(EXAMPLES)) // BATCH)
    assert own.sizes(0).reshape(-1, 2).sum(1).tolist() == counts.tolist()


def test_a_last_batch_too_short_to_be_cut_goes_whole_to_every_replica() -> None:
    both = slices(range(2), 4)
    assert both.sizes(0)[-2:].tolist() == [3, 3]
    assert both.own(np.arange(EXAMPLES))[-6:].tolist() == [20, 21, 22, 20, 21, 22]


def test_the_sizes_go_round_from_the_first_batch_that_is_not_skipped() -> None:
    assert slices().sizes(3).tolist() == [5, 3, 5, 5, 5]
