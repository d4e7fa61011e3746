"""The record index: offset and length of each record, for reading one without those before it."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from perennial import files


def write(folder: Path, records: Mapping[str, Sequence[tuple[int, int]]]) -> None:
    """Writes `<shard>.npy` for each shard: uint64 [records, 2], offset of the frame and bytes of the data."""
    with files.new_folder(folder) as new:
        for shard, places in records.items():
            content = io.BytesIO()
            np.save(content, np.array(places, np.uint64).reshape(-1, 2))
            files.write_bytes(new / f"{shard}.npy", content.getvalue())
