"""Which examples each shard holds."""

import random
from dataclasses import replace

import numpy as np
import pytest

from perennial.base.choices import SPLITS
from perennial.base.errors import DataError
from perennial.data.datasets.dataset import Examples, Source
from perennial.data.records import sharding


def examples(labels, image_bytes=100, names=()):
    return Examples(
        labels=np.array(labels, np.int64),
        images=lambda numbers: iter(()),
        image_bytes=np.full(len(labels), image_bytes),
        names=names,
    )


def source(**splits):
    return Source(classes=("cat", "dog"), splits=splits)


def planned(given, *, shards="auto", fraction=0.25, seed=0, group=None):
    return sharding.plan("pets", given, shards=shards, fraction=fraction, seed=seed, group=group)


def grouped(labels, owners):
    """A source with a column of owners."""
    names = tuple(f"{number:03}.png" for number in range(len(labels)))
    train = replace(examples(labels, names=names), further=tuple((owner, "") for owner in owners))
    return replace(source(train=train), columns=("owner", "site"))


def numbers(shards, split):
    return [number for shard in shards if shard.split == split for number in shard.indices.tolist()]


TWO = [0, 1] * 20
ALL = source(train=examples(TWO), validation=examples(TWO[:6]), test=examples(TWO[:10]))


def test_splits_that_the_source_has_stay_as_they_are_in_the_order_train_validation_test():
    shards = planned(source(**dict(reversed(ALL.splits.items()))))
    assert [shard.split for shard in shards] == ["train", "validation", "test"]
    assert [numbers([shard], shard.split) for shard in shards] == [[*range(40)], [*range(6)], [*range(10)]]


@pytest.mark.parametrize(("given", "sizes"), [({"test": examples(TWO)}, (10, 40)), ({}, (8, 4))])
def test_a_missing_split_is_cut_from_train(given, sizes):
    shards = planned(source(train=examples(TWO), **given))
    assert (len(numbers(shards, "validation")), len(numbers(shards, "test"))) == sizes
    cut = [numbers(shards, split) for split in ("train", "validation", "test") if split not in given]
    assert sorted(sum(cut, [])) == list(range(40))  # noqa: RUF017
    assert {shard.source for shard in shards} == {"train", *given}


def test_the_test_split_is_the_same_whatever_seed_and_fraction_cut_validation():
    cuts = [planned(source(train=examples(TWO)), fraction=0.1 * seed, seed=seed) for seed in range(1, 5)]
    assert len({tuple(numbers(shards, "test")) for shards in cuts}) == 1


def test_the_cut_is_the_same_for_ever():
    shards = planned(source(train=examples(TWO)))
    assert numbers(shards, "test") == [9, 10, 21, 38]
    assert numbers(shards, "validation") == [4, 7, 11, 17, 20, 23, 28, 36]


def test_a_file_keeps_its_split_when_another_class_is_added():
    names = [f"cat/{number}.jpg" for number in range(40)]
    more = [*names, *(f"dog/{number}.jpg" for number in range(40))]
    before = planned(source(train=examples([0] * 40, names=names)))
    after = planned(source(train=examples([0] * 40 + [1] * 40, names=more)))
    assert {names[number] for number in numbers(before, "test")} <= {
        more[number] for number in numbers(after, "test")
    }


@pytest.mark.parametrize(("labels", "split"), [([0, 0, 0, 1], "test"), ([0, 0, 0, 1, 1], "validation")])
def test_a_class_that_is_too_small_for_a_cut_is_named(labels, split):
    with pytest.raises(DataError, match=f"pets: no {split} split can be cut: class 'dog' has 1 example"):
        planned(source(train=examples(labels)))


@pytest.mark.parametrize(
    ("count", "image_bytes", "shards"),
    [(0, 100, 1), (10, 100, 1), (1000, 99_850, 1), (1999, 99_850, 1), (2000, 99_850, 2), (10_000, 99_850, 10)],
)
def test_shards_of_their_own_number_hold_100_to_200_mb(count, image_bytes, shards):
    given = source(train=examples([0] * count, image_bytes), validation=examples([0, 1]), test=examples([0, 1]))
    assert sum(shard.split == "train" for shard in planned(given)) == shards


@pytest.mark.parametrize("chunk_bytes", [1, 250, 251, 1000, 10**9])
def test_the_chunks_of_a_shard_hold_its_examples_in_their_order(chunk_bytes):
    given = source(train=examples(TWO), test=examples(TWO))
    for shard in planned(given, shards=3):
        chunks = sharding.parts(shard, given.splits[shard.source], chunk_bytes)
        assert [number for chunk in chunks for number in chunk.tolist()] == shard.indices.tolist()


def flowers(count=1001):
    names = [f"roses/{number * 7 % count:05}.jpg" for number in range(count)]  # in an order of their own
    source = Source(classes=("roses",), splits={"train": examples([0] * count, names=names)})
    return names, sharding.plan_slim("flowers", source, fraction=0.5)


@pytest.mark.parametrize("dataset", ["mnist", "cifar10", "digits"])
def test_each_split_is_one_file(dataset):
    source = Source(classes=("a",), splits={"train": examples([0] * 7), "test": examples([0] * 3)})
    assert [
        (shard.name, shard.split, shard.indices.tolist())
        for shard in sharding.plan_slim(dataset, source, fraction=0.5)
    ] == [
        (f"{dataset}_train.tfrecord", "train", list(range(7))),
        (f"{dataset}_test.tfrecord", "test", list(range(3))),
    ]


def test_flowers_are_five_files_a_split():
    assert [shard.name for shard in flowers()[1]] == [
        f"flowers_{split}_{number:05}-of-00005.tfrecord"
        for split in ("train", "validation")
        for number in range(5)
    ]


def test_flowers_are_shuffled_as_slim_does_once_their_names_are_sorted():
    names, shards = flowers()
    expected = sorted(names)
    random.Random(0).shuffle(expected)
    found = [names[number] for shard in (*shards[5:], *shards[:5]) for number in shard.indices.tolist()]
    assert found == expected


@pytest.mark.parametrize("count", [351, 352, 1001, 3670])
def test_the_shards_of_flowers_are_cut_as_slim_cuts_them(count):
    _, shards = flowers(count)
    size = -(-(count - 350) // 5)
    expected = [min(size, max(count - 350 - number * size, 0)) for number in range(5)]
    assert [len(shard.indices) for shard in shards if shard.split == "train"] == expected


@pytest.mark.parametrize("count", [0, 1, 350])
def test_too_few_flowers_are_refused(count):
    with pytest.raises(DataError, match=f"350 .* has {count}$"):
        flowers(count)


@pytest.mark.parametrize(("fraction", "held_out"), [(0.25, 5), (0.0, 0)])
def test_your_own_images_are_written_as_flowers_with_your_share_held_out(fraction, held_out):
    source = Source(classes=("a",), splits={"train": examples([0] * 20)})
    shards = sharding.plan_slim("image_folder", source, fraction=fraction)
    sizes = {split: [len(s.indices) for s in shards if s.split == split] for split in ("train", "validation")}
    assert {split: sum(each) for split, each in sizes.items()} == {
        "train": 20 - held_out, "validation": held_out,
    }  # fmt: skip
    assert len(sizes["train"]) == 5
    assert shards[0].name == "image_folder_train_00000-of-00005.tfrecord"
    assert sorted(number for shard in shards for number in shard.indices.tolist()) == list(range(20))


def test_your_own_splits_stay_in_slims_layout():
    source = Source(classes=("a",), splits={"train": examples([0] * 7), "test": examples([0] * 3)})
    shards = sharding.plan_slim("tfrecord", source, fraction=0.5)
    assert {(shard.split, shard.source) for shard in shards} == {("train", "train"), ("test", "test")}
    assert sum(len(shard.indices) for shard in shards) == 10


def numbered(train, test):
    """A source whose examples have names in the reverse of their order."""
    splits = {}
    for split, count in (("train", train), ("test", test)):
        names = tuple(f"{split}_{count - number:05d}.JPEG" for number in range(count))
        zeros = np.zeros(count, np.int64)
        splits[split] = Examples(labels=zeros, images=iter, image_bytes=zeros, names=names)
    return Source(classes=("background", "a", "b"), splits=splits)


def names_of(planned, source):
    return [[source.splits[shard.source].names[index] for index in shard.indices] for shard in planned]


def test_imagenet_is_shuffled_by_slims_seed_into_its_1024_and_128_files():
    source = numbered(2048, 300)
    planned = sharding.plan_slim("imagenet", source, fraction=0.5)
    assert [planned[number].name for number in (0, 1023, 1024)] == [
        "train-00000-of-01024", "train-01023-of-01024", "validation-00000-of-00128"
    ]  # fmt: skip
    assert {shard.split for shard in planned} == {"train", "validation"}
    expected = sorted(source.splits["train"].names)
    random.Random(12345).shuffle(expected)
    assert [name for part in names_of(planned[:1024], source) for name in part] == expected
    assert sum(len(shard.indices) for shard in planned[1024:]) == 300


def test_visual_wake_words_are_dealt_out_to_slims_files():
    source = numbered(250, 25)
    planned = sharding.plan_slim("visualwakewords", source, fraction=0.5)
    assert [planned[0].name, planned[100].name] == ["train.record-00000-of-00100", "val.record-00000-of-00010"]
    ordered = sorted(source.splits["train"].names)
    assert names_of(planned[:100], source) == [ordered[shard::100] for shard in range(100)]


def test_groups_stay_whole_and_keep_their_split_when_others_are_added():
    owners = [f"owner {number // 4}" for number in range(240)]
    labels = [number // 4 % 2 for number in range(240)]
    before, after = (planned(grouped(labels[:size], owners[:size]), group="owner") for size in (200, 240))
    split_of = [
        {owners[number]: split for split in SPLITS for number in numbers(shards, split)}
        for shards in (before, after)
    ]
    for shards, found, size in ((before, split_of[0], 200), (after, split_of[1], 240)):
        for split in SPLITS:
            own = numbers(shards, split)
            assert {owner for owner, of in found.items() if of == split} == {owners[number] for number in own}
            assert {labels[number] for number in own} == {0, 1}
        assert sum(len(numbers(shards, split)) for split in SPLITS) == size
        assert len(numbers(shards, "test")) == pytest.approx(size / 10, abs=4)
    assert sum(split_of[1][owner] == split for owner, split in split_of[0].items()) >= 45


def test_an_image_without_a_group_is_one_of_its_own():
    shards = planned(grouped(TWO, [""] * 40), group="owner")
    assert [len(numbers(shards, split)) for split in SPLITS] == [28, 8, 4]


def test_a_class_of_one_group_cannot_be_held_out():
    owners = ["ann" if label else f"owner {number}" for number, label in enumerate(TWO)]
    with pytest.raises(DataError, match="class 'dog' is in 1 groups of 'owner', too few to hold one out"):
        planned(grouped(TWO, owners), group="owner")


def test_groups_of_several_labels_stay_whole():
    owners = [f"owner {number // 4}" for number in range(40)]
    labels = np.array([[1, number % 8 == 0] for number in range(40)], np.uint8)
    given = grouped(labels, owners)
    train = replace(given.splits["train"], labels=labels)
    shards = planned(replace(given, splits={"train": train}, task="multilabel"), group="owner")
    found = {split: {owners[number] for number in numbers(shards, split)} for split in SPLITS}
    assert all(found.values())
    assert sum(map(len, found.values())) == 10
