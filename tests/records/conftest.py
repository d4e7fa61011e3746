"""A small record folder for the tests of records."""

import numpy as np
import pytest
from support.records import datum, entry

from perennial.records import manifest
from perennial.tfrecord import framing

CLASSES = ["cat", "dog"]
EXAMPLES = {"train": 20, "validation": 2, "test": 2}


def record(number):
    """The framed record of an example: a 2x2 image of its number, the classes in turn."""
    return framing.frame(datum(np.full((2, 2), number, np.uint8), number % 2))


@pytest.fixture
def folder(tmp_path):
    """A sound record folder: one shard a split, 20 examples to train on, 2 each to validate and test."""
    splits = {}
    for split, examples in EXAMPLES.items():
        file = tmp_path / f"{split}.tfrecord"
        file.write_bytes(b"".join(record(number) for number in range(examples)))
        splits[split] = manifest.SplitManifest(
            examples=examples, per_class=[examples // 2] * 2, shards=[entry(file)]
        )
    (tmp_path / "labels.txt").write_text(manifest.labels_text(CLASSES))
    manifest.write(tmp_path, manifest.Manifest(dataset="pets", classes=CLASSES, source={}, splits=splits))
    return tmp_path
