"""Records as batches."""

from pathlib import Path

import numpy as np
import pytest

from perennial.preprocessing import Pixels
from perennial.records import manifest, read
from perennial.stages.convert import convert
from perennial.stages.download import download

PIXELS = Pixels(preprocessing="rescale", height=8, width=8, channels=1, image_size=None)


@pytest.fixture
def records(load) -> Path:
    config = load(**{"dataset.shards": 3})
    download(config)
    convert(config)
    return config.paths.records


def images(records: Path, epoch_seed: int | None, batch_size: int = 100) -> np.ndarray:
    batches = read.batches(
        records, manifest.load(records), "train", PIXELS, batch_size=batch_size, epoch_seed=epoch_seed
    )
    return np.concatenate([images for images, _ in batches.as_numpy_iterator()])


def test_each_example_comes_once_whatever_the_order(records: Path) -> None:
    plain, shuffled = images(records, None), images(records, 1)
    assert sorted(image.tobytes() for image in plain) == sorted(image.tobytes() for image in shuffled)


def test_the_order_is_a_function_of_the_seed(records: Path) -> None:
    assert (images(records, 1) == images(records, 1)).all()


def test_another_seed_gives_another_order(records: Path) -> None:
    assert (images(records, 1) != images(records, 2)).any()


def test_the_batch_size_does_not_change_the_order(records: Path) -> None:
    assert (images(records, 1, batch_size=7) == images(records, 1, batch_size=100)).all()


def test_every_epoch_has_a_seed_of_its_own() -> None:
    assert len({read.epoch_seed(seed, epoch) for seed in range(20) for epoch in range(20)}) == 400
