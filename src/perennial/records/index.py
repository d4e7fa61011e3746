"""The record index: offset and length of each record, for reading one without those before it."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from perennial import outputs
from perennial.tfrecord.framing import Places


def write(folder: Path, records: Mapping[str, Places]) -> None:
    """Writes `<shard>.npy` for each shard: uint64 [records, 2], offset of the frame and bytes of the data."""
    with outputs.new_folder(folder, "validate") as new:
        for shard, places in records.items():
            np.save(new / f"{shard}.npy", places)
