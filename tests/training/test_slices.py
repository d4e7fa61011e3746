"""Which examples of a batch a replica takes."""

import numpy as np
import pytest

from perennial.training.slices import Slices

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
