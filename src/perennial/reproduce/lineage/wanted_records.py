"""Find the records of this checkout that were made of wanted images."""

import hashlib
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from perennial.base import files
from perennial.base.choices import SPLITS, Split
from perennial.base.config import Config
from perennial.base.errors import DataError
from perennial.data import datasets
from perennial.data.images import statistics
from perennial.data.records.random_access import Records
from perennial.data.validation import image_index
from perennial.data.validation.image_index import ImageIndex
from perennial.live.capture.same_image import TURNED, Found, Wanted

SAMPLE = 64  # records whose digests are compared with the index
BITS = 16  # of 64 in which the hashes of two encodings of an image may differ; its pixels decide


def find(config: Config, wanted: Wanted) -> Counter[tuple[Split, Found]] | None:
    """Count the records of each split; they and their source files are known to `wanted` from then on.

    An image that is known only by its digest is also looked for as its record shows it. None: this checkout has
    no records, or they were not validated since they were written.
    """
    if (validated := _validated(config)) is None:
        return None
    index, records = validated
    found = Counter[tuple[Split, Found]]()
    digests = [each.tobytes().hex() for each in index["sha256"]]
    for number in (number for number, digest in enumerate(digests) if wanted.lacks_pixels(digest)):
        if (content := _content(records, number)) is not None:
            wanted.add(wanted.digests[digests[number]], content)
    near, names = set(_near(index, wanted)), dict[str, int]()
    for number, digest in enumerate(digests):
        each = None
        if digest in wanted.digests:
            each = Found(image=wanted.digests[digest], how="file")
        elif number in near and (content := _content(records, number)) is not None:
            each = wanted.find(content)
        if each is not None:
            found[SPLITS[index["split"][number]], each] += 1
            if name := _name(records, number):
                names[name] = each.image
    if names:
        _add_files(config, wanted, names)
    return found


def _validated(config: Config) -> tuple[ImageIndex, Records] | None:
    """The index of images and the records; None if the numbers or sampled digests differ."""
    try:
        index = image_index.read(config.paths.index / image_index.FILE)
        records = Records(config.paths.records, config.paths.index)
    except DataError:
        return None
    splits = {split: part.examples for split, part in records.manifest.splits.items()}
    if any(splits.get(split, 0) != np.count_nonzero(index["split"] == n) for n, split in enumerate(SPLITS)):
        return None
    for number in np.linspace(0, len(index) - 1, min(len(index), SAMPLE), dtype=int).tolist():
        content = _content(records, number)
        if content is None or hashlib.sha256(content).digest() != index["sha256"][number].tobytes():
            return None
    return index, records


def _add_files(config: Config, wanted: Wanted, names: Mapping[str, int]) -> None:
    """Add the source files of records, whose digests stay the same if other parameters reduce them."""
    files.make_folder(config.paths.work)
    with tempfile.TemporaryDirectory(dir=config.paths.work, prefix="forget-") as folder, suppress(DataError):
        for examples in datasets.read(config.dataset, config.paths.raw, Path(folder)).splits.values():
            if examples.originals is None:
                continue
            there = [index for index, name in enumerate(examples.names) if name in names]
            for index, content in zip(there, examples.originals(there), strict=True):
                wanted.add(names[examples.names[index]], content)


def _name(records: Records, number: int) -> str | None:
    fields = None
    with suppress(DataError):
        fields = records.record(number).fields
    return fields.filename if fields else None


def _content(records: Records, number: int) -> bytes | None:
    try:
        return records.record(number).encoded
    except DataError:
        return None


def _near(index: ImageIndex, wanted: Wanted) -> Iterator[int]:
    """The numbers of records with equal pixels or a similar hash, however an image lies."""
    for picture in wanted.pictures():
        for way in TURNED:
            _, prints = statistics.of_image(picture if way is None else picture.transpose(way))
            alike = (np.bitwise_count(index["hash"] ^ prints.hashes[0]) <= BITS) & (index["tiny"] == 0)
            yield from np.flatnonzero(alike | (index["pixels"] == prints.digests[0]).all(axis=1)).tolist()
