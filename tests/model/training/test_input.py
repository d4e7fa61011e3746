"""What a training is fed."""

import tracemalloc
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from support.records import datum, write_folder
from tensorflow.python.ops import gen_experimental_dataset_ops

from perennial.base.config.training import TrainConfig
from perennial.base.errors import DataError
from perennial.data.preprocessing import ImageSpec, randomness
from perennial.data.records import manifest, pipeline
from perennial.model.training import input as training_input
from perennial.model.training.cache import Table
from perennial.model.training.input import Batch, Input
from perennial.model.training.shuffle import Shuffle

EXAMPLES, BATCH, STEPS = 23, 5, 5  # steps an epoch; the last batch has 3
CLASSES = ["none", "cat", "dog"]


def image(number: int, side: int = 4) -> np.ndarray:
    """One that says its number."""
    return np.full((side, side), number, np.uint8)


def pixels(*, same_size: bool = True) -> ImageSpec:
    side = 4 if same_size else None
    return ImageSpec(
        preprocessing="lenet", height=side, width=side, channels=1, image_size=4, grayscale=False, fast=True
    )


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Three shards of images of one size; their labels are 1 and 2 in turns."""
    return written(tmp_path / "records", [4] * EXAMPLES)


def written(folder: Path, sides: list[int]) -> Path:
    data = [datum(image(number, side), 1 + number % 2) for number, side in enumerate(sides)]
    write_folder(folder, {"train": [data[:8], data[8:16], data[16:]]}, CLASSES)
    return folder


@pytest.fixture
def opened(load, records: Path):
    """The input of those records, with some parameters of `train` changed."""

    def build(
        folder: Path = records, *, offset: int = 0, same_size: bool = True, answers=None, **values
    ) -> Input:
        train = configured(load, **values)
        data = manifest.load(folder)
        given = {"label_map": pipeline.LabelMap(offset), "answers": answers}
        return Input(folder, data, pixels(same_size=same_size), train, **given)

    return build


def configured(load, **values) -> TrainConfig:
    return load(**{f"train.{key}": value for key, value in {"batch_size": BATCH, **values}.items()}).train


def taken(
    source: Input, steps: int, epoch: int = 0, skip: int = 0, replicas=range(1), of: int = 1
) -> list[Batch]:
    """The first batches of some replicas, as arrays."""
    dataset = source.batches(epoch, skip, replicas=replicas, of=of)
    return list(islice(dataset.as_numpy_iterator(), steps * len(replicas)))


def joined(batches: list[Batch]) -> list[list]:
    """What comes, whoever gets it, without answers of a teacher."""
    parts = zip(*(batch[:4] for batch in batches), strict=True)
    return [np.concatenate(part).tolist() for part in parts]


def test_an_epoch_has_every_example_once_in_its_order_with_label_position_and_key(opened) -> None:
    batches = taken(opened(seed=3, offset=1), STEPS + 1, epoch=2)
    assert {batch.answers for batch in batches} == {()}  # there is no teacher
    assert [len(batch.labels) for batch in batches] == [5, 5, 5, 5, 3, 5]  # the last is short
    images, labels, keys, positions = joined(batches[:STEPS])
    ordinals = [image[0][0][0] for image in images]
    order = Shuffle(manifest.load(Path("records")).splits["train"].shards, 3, 1024)
    assert ordinals == order.epoch(2).tolist()
    assert labels == [ordinal % 2 for ordinal in ordinals]
    assert keys == randomness.keys(3, 2, tf.constant(ordinals, tf.int64)).numpy().tolist()
    assert positions == [*range(5)] * 4 + [*range(3)]


@pytest.mark.fast_rows("none-skips1")
@pytest.mark.parametrize(("cache", "skips"), [("memory", (1, 4)), ("none", (3,))])
def test_batches_begin_at_any_step(opened, cache: str, skips: Sequence[int]) -> None:
    source = opened(cache=cache)
    unbroken = list(map(shape_and_content, taken(source, STEPS + 2, epoch=1)))
    resumed = [taken(source, STEPS + 2 - skip, epoch=1, skip=skip) for skip in skips]
    assert [list(map(shape_and_content, batches)) for batches in resumed] == [unbroken[skip:] for skip in skips]


def shape_and_content(batch: Batch) -> list[tuple]:
    return [(part.dtype, part.shape, part.tobytes()) for part in batch[:4]]


@pytest.mark.fast_rows("none-workers1")
@pytest.mark.parametrize(("cache", "workers"), [("memory", (2, 1)), ("none", (1, 1))])
def test_all_workers_together_see_the_batches_of_one(opened, cache: str, workers: tuple[int, ...]) -> None:
    source, of = opened(cache=cache), sum(workers)
    ends = np.cumsum([0, *workers]).tolist()
    parts = [
        taken(source, STEPS + 1, skip=1, replicas=range(first, last), of=of) for first, last in pairwise(ends)
    ]
    steps = [
        [
            batch
            for part, own in zip(parts, workers, strict=True)
            for batch in part[step * own : (step + 1) * own]
        ]
        for step in range(STEPS + 1)
    ]
    assert [joined(slices) for slices in steps] == [
        joined([batch]) for batch in taken(source, STEPS + 1, skip=1)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("other", ["none", "auto"])
def test_where_images_are_kept_changes_nothing(opened, other: str) -> None:
    one, two = (taken(opened(cache=cache), STEPS + 2) for cache in ("memory", other))
    assert list(map(shape_and_content, one)) == list(map(shape_and_content, two))


def test_images_of_different_sizes_that_are_not_distorted_come_as_for_the_model(
    opened, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path / "sizes", [4 + number % 3 for number in range(EXAMPLES)])
    batch, *_ = taken(opened(folder, same_size=False, batch_size=20), 6)  # several blocks of decoded images
    assert "RefCount" not in capfd.readouterr().err
    ordinals = Shuffle(manifest.load(folder).splits["train"].shards, 0, 1024).epoch(0)[:20].tolist()
    expected = [
        pixels(same_size=False).evaluation_one(tf.constant(image(number, 4 + number % 3)[..., None]))
        for number in ordinals
    ]
    assert (batch.images == np.stack(expected)).all()


@pytest.mark.parametrize(("cache", "same_size"), [("memory", True), ("none", True), ("none", False)])
def test_all_examples_come_in_the_order_of_the_records(opened, tmp_path, cache, same_size) -> None:
    folder = written(tmp_path / "sizes", [4 if same_size else 4 + number % 3 for number in range(EXAMPLES)])
    found = list(opened(folder, cache=cache, same_size=same_size).in_order(10))
    images, labels = (np.concatenate(parts) for parts in zip(*found, strict=True))
    shown = images[:, 1, 1, 0] if same_size else images[:, 1, 1, 0] * 128 + 128  # as lenet gives them
    assert [len(each) for _, each in found] == [10, 10, 3]
    assert shown.tolist() == [*range(EXAMPLES)]
    assert labels.tolist() == [1 + number % 2 for number in range(EXAMPLES)]


def test_features_come_in_the_place_of_their_images(opened) -> None:
    source = opened()
    whole, labels = tf.range(EXAMPLES), np.arange(EXAMPLES) % 2 + 1
    features = Table((whole, tf.stack([whole, -whole], axis=1)), labels)
    images = [each for batch in taken(source, STEPS) for each in batch.images[:, 0, 0, 0].tolist()]
    found = list(islice(source.batches(0, 0, features).as_numpy_iterator(), STEPS))
    assert [each for batch in found for each in batch.images[0].tolist()] == images
    assert [each for batch in found for each in batch.images[1].tolist()] == [[each, -each] for each in images]
    assert [each for batch in found for each in batch.labels.tolist()] == [1 + each % 2 for each in images]


def test_synthetic_images_are_made_of_the_seed_with_labels_of_the_classes_that_the_model_has(opened) -> None:
    one, two, three = (joined(taken(opened(synthetic_data=True, seed=seed, offset=1), 1)) for seed in (1, 1, 2))
    assert one == two
    assert one[0] != three[0]
    assert set(one[1]) == {0, 1}
    (batch,) = taken(opened(synthetic_data=True, same_size=False), 1)
    assert (batch.images.dtype, batch.images.shape) == (np.float32, (BATCH, 4, 4, 1))  # as for the model


def test_a_label_that_the_model_leaves_out_is_refused(opened) -> None:
    with pytest.raises(DataError, match=r"00000-of-00003.tfrecord record 0: label 1, expected at least 2"):
        opened(offset=2)


def test_a_shard_that_vanishes_is_named(opened, large: Path) -> None:
    source = opened(large, memory_mb=1, cache="none")
    for file in large.glob("*.tfrecord"):
        file.unlink()
    with pytest.raises(DataError, match=r"00000-of-00012.tfrecord has vanished"), source.naming_shards():
        next(iter(source.batches(0, 0)))


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """Twelve shards of 0.3 MB, each of 20 examples."""
    data = [datum(np.full((1, 15_000), number, np.uint8), number % 2) for number in range(240)]
    folder = tmp_path / "large"
    write_folder(folder, {"train": [data[start : start + 20] for start in range(0, 240, 20)]}, CLASSES)
    return folder


def test_no_more_encoded_images_are_in_memory_than_a_group_may_have(large, monkeypatch) -> None:
    monkeypatch.setattr(training_input, "BLOCK", 4)
    order = Shuffle(manifest.load(large).splits["train"].shards, 0, 1)
    read = partial(pipeline.encoded, large)

    def images() -> int:
        return sum(len(block[0]) for block in training_input._blocks(read, order, chunks(order)))

    assert images() == 480  # what TensorFlow and Python make once is not counted
    tracemalloc.start()
    images()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # All images are 3.6 MB; the limit leaves 0.3 MB for the current block and for other objects.
    assert most < 1.3e6


def chunks(order: Shuffle) -> Iterator[training_input._Chunk]:
    """Of two epochs, and one more that shows what comes next."""
    for epoch in range(3):
        for group in order.groups(epoch):
            rows = order.rows(epoch, group)
            yield training_input._Chunk(epoch, group, rows, np.zeros(len(rows), np.int32))
            if epoch == 2:
                return


def test_no_thread_tunes_the_buffers_of_devices(opened) -> None:
    batches = opened().iterator(tf.distribute.OneDeviceStrategy("CPU"), 0, 0)
    next(batches)
    for buffer in batches._iterators[0]._iterator._device_iterators:
        with pytest.raises(tf.errors.NotFoundError, match="autotune"):
            gen_experimental_dataset_ops.iterator_get_model_proto(buffer._iterator_resource)


def test_a_flip_that_alternates_turns_the_last_bit_of_every_key(opened) -> None:
    batches = taken(opened(**{"augmentation.alternating_flip": True}), 2 * STEPS)
    bits = []
    for epoch in (batches[:STEPS], batches[STEPS:]):
        images, _, drawn, _ = map(np.array, joined(epoch))
        order = np.argsort(images[:, 0, 0, 0])
        bits.append(drawn[order, 1] & 1)
    assert (bits[0] != bits[1]).all()
    assert set(bits[0]) == {0, 1}


def test_a_sample_has_the_first_images_as_the_model_gets_them(opened) -> None:
    source = opened()
    whole = np.concatenate([batch.images for batch in taken(source, STEPS)])
    for examples, expected in ((6, 10), (1000, EXAMPLES)):
        shown = (whole[:expected].astype(np.float32) - 128) / 128
        np.testing.assert_array_equal(source.sample(examples), shown)


@pytest.mark.parametrize("source", ["memory", "records", "photographs"])
def test_each_image_comes_with_its_own_answers(opened, tmp_path, source) -> None:
    """Answer n is that to image n, which says n; from any step on, for a part of the devices."""
    answers = np.arange(EXAMPLES, dtype=np.float32)[:, None] + [0, 0.25, 0.5]
    options = {"cache": "none" if source == "records" else "auto", "answers": answers}
    if source == "photographs":
        folder = written(tmp_path / "photographs", [4 + number % 3 for number in range(EXAMPLES)])
        options |= {"folder": folder, "same_size": False}
    for batch in taken(opened(**options), 7, skip=3, replicas=range(1, 2), of=2):
        shown = batch.images[:, 0, 0, 0]
        numbers = shown if source != "photographs" else np.rint(shown * 128 + 128)  # as lenet takes them
        np.testing.assert_allclose(batch.answers, np.array(numbers)[:, None] + [0, 0.25, 0.5])
