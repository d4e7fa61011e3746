"""TF-Slim's own file names, splits and shard counts."""

import random

import numpy as np
import pytest

from perennial.datasets.dataset import Examples, Source
from perennial.errors import ConfigError, DataError
from perennial.records import slim


def examples(count, names=()):
    return Examples(
        labels=np.zeros(count, np.int64), images=lambda numbers: iter(()), encoded_bytes=count, names=names
    )


def photographs(count):
    """Names in an order of their own, as `datasets.folder` gives them."""
    return [f"roses/{number * 7 % count:05}.jpg" for number in range(count)]


def flowers(count=1001):
    names = photographs(count)
    source = Source(classes=("roses",), splits={"train": examples(count, names)})
    return names, slim.plan("flowers", source)


@pytest.mark.parametrize("dataset", ["mnist", "cifar10"])
def test_each_split_is_one_file(dataset):
    source = Source(classes=("a",), splits={"train": examples(7), "test": examples(3)})
    assert [(shard.name, shard.split, shard.numbers.tolist()) for shard in slim.plan(dataset, source)] == [
        (f"{dataset}_train.tfrecord", "train", list(range(7))),
        (f"{dataset}_test.tfrecord", "test", list(range(3))),
    ]


def test_flowers_are_five_files_a_split():
    assert [shard.name for shard in flowers()[1]] == [
        f"flowers_{split}_{number:05}-of-00005.tfrecord"
        for split in ("train", "validation")
        for number in range(5)
    ]


def test_of_flowers_350_are_held_out():
    assert sum(len(shard.numbers) for shard in flowers()[1] if shard.split == "validation") == 350


def test_no_flower_is_in_both_splits_or_in_none():
    assert sorted(number for shard in flowers()[1] for number in shard.numbers.tolist()) == list(range(1001))


def test_flowers_are_shuffled_as_slim_does_once_their_names_are_sorted():
    names, shards = flowers()
    expected = sorted(names)
    random.Random(0).shuffle(expected)
    found = [names[number] for shard in (*shards[5:], *shards[:5]) for number in shard.numbers.tolist()]
    assert found == expected


@pytest.mark.parametrize("count", [351, 352, 1001, 3670])
def test_the_shards_of_flowers_are_cut_as_slim_cuts_them(count):
    _, shards = flowers(count)
    size = -(-(count - 350) // 5)
    expected = [min(size, max(count - 350 - number * size, 0)) for number in range(5)]
    assert [len(shard.numbers) for shard in shards if shard.split == "train"] == expected


@pytest.mark.parametrize("count", [0, 1, 350])
def test_too_few_flowers_are_refused(count):
    with pytest.raises(DataError, match=f"holds 350 photographs out for validation, the archive has {count}"):
        flowers(count or 1) if count else slim.plan(
            "flowers", Source(classes=(), splits={"train": examples(0)})
        )


@pytest.mark.parametrize("dataset", ["digits", "image_folder", "tfrecord"])
def test_a_data_set_that_slim_has_not_is_refused(dataset):
    with pytest.raises(ConfigError, match=rf"dataset\.layout: slim has no {dataset}"):
        slim.plan(dataset, Source(classes=(), splits={}))
