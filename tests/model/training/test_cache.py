"""Decoded images in memory."""

from pathlib import Path

import numpy as np
import pytest
from support.records import datum, write_folder

from perennial.base.errors import DataError
from perennial.data.preprocessing import ImageSpec
from perennial.data.records import manifest
from perennial.model.training import cache

PIXELS = ImageSpec(
    preprocessing="rescale", height=4, width=6, channels=1, image_size=None, grayscale=False, fast=True
)
EXAMPLES = 50


@pytest.fixture
def pictures() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (EXAMPLES, 4, 6), dtype=np.uint8)


@pytest.fixture
def records(tmp_path: Path, pictures: np.ndarray) -> Path:
    """Two shards of images of one size; an example's label is 0 or 1 in turns."""
    data = [datum(picture, number % 2) for number, picture in enumerate(pictures)]
    write_folder(tmp_path / "records", {"train": [data[:20], data[20:]]}, ["cat", "dog"])
    return tmp_path / "records"


def test_records_that_became_fewer_since_they_were_checked_are_refused(load, records: Path) -> None:
    data = manifest.load(records)
    shard = records / data.splits["train"].shards[1].file
    shard.write_bytes(b"")
    with pytest.raises(DataError, match="20 training examples, expected 50"):
        cache.decoded(records, data, PIXELS, load(**{"train.cache": "memory"}).train)


@pytest.mark.parametrize(
    ("where", "side", "kept"),
    [("auto", 200, True), ("auto", 201, False), ("memory", 201, True), ("none", 1, False)],
)
def test_auto_takes_memory_where_the_images_fit(load, monkeypatch, records, where, side, kept) -> None:
    monkeypatch.setattr(cache, "_in_memory", lambda _, shape, __: shape)  # 50 images of 200 x 100 take 1 MB
    train = load(**{"train.cache": where, "train.memory_mb": 1}).train
    pixels = PIXELS.model_copy(update={"height": side, "width": 100})
    assert (cache.decoded(records, manifest.load(records), pixels, train) is not None) == kept
