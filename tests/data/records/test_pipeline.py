"""Records as batches."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from support.records import datum, write_folder

from perennial.base.errors import DataError
from perennial.data.preprocessing import ImageSpec
from perennial.data.records import manifest, pipeline

CLASSES = ["none", "cat", "dog"]
EXAMPLES = 40


def pixels(side):
    return ImageSpec(
        preprocessing="rescale", height=side, width=side, channels=1, image_size=4, grayscale=False, fast=True
    )


def written(folder, sides):
    """Records in two shards, each image of one value, its number; labels 1 and 2 in turns."""
    data = [datum(np.full((side, side), number, np.uint8), 1 + number % 2) for number, side in enumerate(sides)]
    write_folder(folder, {"test": [data[:15], data[15:]]}, CLASSES)
    return folder


@pytest.fixture
def folder(tmp_path):
    return written(tmp_path / "records", [6] * EXAMPLES)


def batches(folder, side=6, **options):
    chosen = {"batch_size": 7, "label_map": pipeline.LabelMap(), **options}
    return pipeline.batches(folder, manifest.load(folder), "test", pixels(side), **chosen)


def images(dataset):
    return np.concatenate([images for images, _ in dataset.as_numpy_iterator()])


@pytest.mark.parametrize("batch_size", [1, 7, 100])
def test_each_example_comes_once_as_it_is_in_the_order_of_the_records(folder, batch_size):
    found = images(batches(folder, batch_size=batch_size))
    assert (found.dtype, found.shape) == (np.uint8, (EXAMPLES, 6, 6, 1))
    assert found[:, 0, 0, 0].tolist() == list(range(EXAMPLES))


def test_images_of_different_sizes_come_as_the_model_judges_them(tmp_path):
    sides = [3 + number % 4 for number in range(EXAMPLES)]
    found = images(batches(written(tmp_path, sides), None))
    expected = [
        pixels(None).evaluation_one(tf.fill((side, side, 1), tf.cast(number, tf.uint8)))
        for number, side in enumerate(sides)
    ]
    assert (found == np.stack(expected)).all()


def test_the_offset_is_taken_off_the_labels(folder):
    labels = np.concatenate(
        [labels for _, labels in batches(folder, label_map=pipeline.LabelMap(1)).as_numpy_iterator()]
    )
    assert labels.tolist() == [0, 1] * (EXAMPLES // 2)


def test_a_label_below_the_offset_names_its_record(tmp_path):
    data = [datum(np.zeros((6, 6), np.uint8), label) for label in (1, 2, 1, 0, 2)]
    write_folder(tmp_path, {"test": [data[:2], data[2:]]}, CLASSES)
    with pytest.raises(DataError, match=r"00001-of-00002.tfrecord record 1: label 0, expected at least 1"):
        batches(tmp_path, label_map=pipeline.LabelMap(1))


def test_images_that_fit_are_read_from_the_records_only_once(folder):
    kept = batches(folder, cache_mb=1)
    first = images(kept)
    for file in folder.glob("*.tfrecord"):
        file.unlink()
    assert (images(kept) == first).all()


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (Path.unlink, "00001-of-00002.tfrecord has vanished"),
        (lambda file: file.write_bytes(file.read_bytes()[:-100]), "00001-of-00002.tfrecord was changed"),
        (lambda file: file.write_bytes(file.read_bytes()[::-1]), "00001-of-00002.tfrecord was changed"),
    ],
    ids=["missing", "cut", "damaged"],
)
def test_a_shard_that_is_not_what_was_checked_is_named(folder, harm, message):
    dataset, data = batches(folder), manifest.load(folder)
    harm(folder / data.splits["test"].shards[1].file)
    with pytest.raises(DataError, match=message), pipeline.naming_shards(folder, data):
        images(dataset)


def test_an_image_that_does_not_decode_is_named(tmp_path):
    folder, data = tmp_path / "records", [datum(np.zeros((6, 6), np.uint8), 1) for _ in range(4)]
    data[3] = data[3].replace(b"IEND", b"IENX")  # of the same length
    write_folder(folder, {"test": [data[:1], data[1:]]}, CLASSES)
    shards = manifest.load(folder)
    message = "00001-of-00002.tfrecord record 2: the image does not decode: Invalid PNG"
    with pytest.raises(DataError, match=message), pipeline.naming_shards(folder, shards):
        images(batches(folder))


def test_other_tensorflow_errors_pass_through(folder):
    data = manifest.load(folder)
    with pytest.raises(tf.errors.InvalidArgumentError), pipeline.naming_shards(folder, data):
        tf.io.decode_png(b"no image")


@pytest.mark.parametrize(
    ("count", "kept"),
    [(4, [9, 19, 29, 39]), (3, [13, 26, 39]), (38, [*range(1, 20), *range(21, 40)]), (41, [*range(40)])],
)
def test_elements_are_spread_at_equal_distances(count, kept):
    found = pipeline.spread(tf.data.Dataset.range(EXAMPLES), EXAMPLES, count)
    assert list(found.as_numpy_iterator()) == kept
