"""Conversion: what becomes of the raw files, and what is kept when it fails."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from perennial import files
from perennial.errors import DataError
from perennial.records import checks, manifest
from perennial.tfrecord import example, framing
from perennial.stages.convert import convert

LAST_PIXEL = -21  # before the checksums and the final chunk of a PNG file
SOURCE = Path(files.__file__).parents[1]
KILLED_IN_THE_MIDDLE = """
import os, signal
from pathlib import Path
from perennial import config
from perennial.tfrecord import example
from perennial.stages import convert
serialize, left = example.serialize, iter(range(15))
def serialize_some(image, label):
    if next(left, None) is None:
        os.kill(os.getpid(), signal.SIGKILL)
    return serialize(image, label)
convert.example.serialize = serialize_some
convert.convert(config.load(Path("params.yaml")))
"""


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def images(folder, split):
    """The number that fills each image of a split, and its label, in record order."""
    shards = manifest.load(folder).splits[split].shards
    parsed = [
        example.parse(data) for shard in shards for _, data in framing.walk((folder / shard.file).read_bytes())
    ]
    return [(each.image.encoded[LAST_PIXEL], each.label) for each in parsed]


@pytest.fixture
def converted(small):
    convert(small)
    return small.paths.records


def test_the_records_are_sound(converted):
    assert checks.check(converted).problems == []


def test_a_folder_holds_shards_labels_and_manifest(converted):
    assert sorted(content(converted)) == [
        "labels.txt",
        "manifest.json",
        "mnist_test_00000-of-00001.tfrecord",
        "mnist_train_00000-of-00001.tfrecord",
        "mnist_validation_00000-of-00001.tfrecord",
    ]


def test_the_manifest_counts_the_examples_of_each_class(converted):
    splits = manifest.load(converted).splits
    assert {split: (part.examples, part.per_class) for split, part in splits.items()} == {
        "train": (30, [3] * 10),
        "validation": (10, [1] * 10),
        "test": (20, [2] * 10),
    }


def test_the_manifest_names_the_raw_files_with_their_digests(small, converted):
    raw = {file.name: files.sha256(file) for file in small.paths.raw.iterdir()}
    assert manifest.load(converted).source == raw


def test_labels_are_those_of_the_data_set(converted):
    assert (converted / "labels.txt").read_text().splitlines()[::9] == ["0:zero", "9:nine"]


def test_the_test_split_is_the_original_one_in_its_order(converted):
    assert images(converted, "test") == [(number, number % 10) for number in range(20)]


def test_train_and_validation_share_the_training_examples_without_overlap(converted):
    together = images(converted, "train") + images(converted, "validation")
    assert sorted(together) == [(number, number % 10) for number in range(40)]


@pytest.mark.parametrize("split", ["train", "validation"])
def test_examples_stay_in_the_order_of_their_source(converted, split):
    assert images(converted, split) == sorted(images(converted, split))


def test_the_validation_split_has_its_share_of_every_class(converted):
    assert Counter(label for _, label in images(converted, "validation")) == dict.fromkeys(range(10), 1)


def test_another_seed_holds_others_out(load, small, converted):
    before = images(converted, "validation")
    convert(load(**{"dataset.seed": 1}))
    assert images(converted, "validation") != before


def test_the_same_files_give_the_same_bytes(small, converted):
    before = content(converted)
    convert(small)
    assert content(converted) == before


def test_each_split_has_as_many_shards_as_asked_for(load, small):
    config = load(**{"dataset.shards": 3})
    convert(config)
    splits = manifest.load(config.paths.records).splits
    assert {split: [shard.examples for shard in part.shards] for split, part in splits.items()} == {
        "train": [10, 10, 10],
        "validation": [3, 3, 4],
        "test": [6, 7, 7],
    }


def test_shard_names_say_which_of_how_many(load, small):
    config = load(**{"dataset.shards": 2})
    convert(config)
    assert [shard.file for shard in manifest.load(config.paths.records).splits["train"].shards] == [
        "mnist_train_00000-of-00002.tfrecord",
        "mnist_train_00001-of-00002.tfrecord",
    ]


@pytest.mark.parametrize("split", manifest.SPLITS)
def test_the_number_of_shards_does_not_change_the_examples(load, small, converted, split):
    before = images(converted, split)
    convert(load(**{"dataset.shards": 4}))
    assert images(converted, split) == before


def test_records_of_another_number_of_shards_are_sound(load, small):
    config = load(**{"dataset.shards": 7})
    convert(config)
    assert checks.check(config.paths.records).problems == []


def test_a_missing_raw_file_is_told_with_what_fetches_it(small):
    (small.paths.raw / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte\.gz does not exist; `dvc repro download`"):
        convert(small)


def test_a_damaged_raw_file_leaves_the_old_records(small, converted):
    before = content(converted)
    (small.paths.raw / "t10k-labels-idx1-ubyte.gz").write_bytes(b"damaged")
    with pytest.raises(DataError):
        convert(small)
    assert content(converted) == before


def test_a_class_of_one_example_is_a_data_error(small, write_idx):
    numbers = np.arange(11, dtype=np.uint8)  # class 0 comes twice, every other once
    write_idx(small.paths.raw / "train-images-idx3-ubyte.gz", numbers[:, None, None])
    write_idx(small.paths.raw / "train-labels-idx1-ubyte.gz", numbers % 10)
    with pytest.raises(DataError, match="class 1 has 1 example, too few to hold one out"):
        convert(small)


def test_an_error_in_the_middle_leaves_the_old_records(small, converted, monkeypatch):
    before, left = content(converted), iter(range(15))

    def some(image, label):
        next(left)
        return b""

    monkeypatch.setattr(example, "serialize", some)
    with pytest.raises(StopIteration):
        convert(small)
    assert content(converted) == before


@pytest.fixture
def killed(small):
    """What a process that is killed in the middle of a conversion leaves of the old records."""
    convert(small)
    before = content(small.paths.records)
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", KILLED_IN_THE_MIDDLE], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    return before


def test_a_kill_in_the_middle_leaves_the_old_records(small, killed):
    assert content(small.paths.records) == killed


def test_a_conversion_after_a_kill_gives_the_same_bytes(small, killed):
    convert(small)
    assert (content(small.paths.records), len(list(small.paths.records.parent.iterdir()))) == (killed, 2)
