"""Selection of the examples to convert: all except excluded images.

They are excluded before anything else is decided, so that splits, shards and order are those of a source that
never held them.
"""

import hashlib
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from perennial.base.choices import Split, Transparency
from perennial.base.config.data import ComputeConfig
from perennial.base.errors import DataError
from perennial.base.parallel import parallel_map
from perennial.base.project.pins import Exclusions
from perennial.data.datasets.dataset import Examples, Source
from perennial.data.images import Image, Refused, accept
from perennial.data.tfrecord import label_arrays

log = logging.getLogger(__name__)
CHUNK_BYTES = 8 << 20  # image bytes that a process digests at once
Search = tuple[Mapping[Split, Examples], frozenset[bytes]]  # where, and the digests that are looked for
Block = tuple[Split, range]  # consecutive examples of a split


def kept(
    compute: ComputeConfig, source: Source, excluded: Exclusions, *, small: bool = False
) -> dict[Split, NDArray[np.int64]]:
    """The indices of examples neither whose source file nor whose file in a record is excluded."""
    chosen = {split: np.ones(len(each.labels), np.bool_) for split, each in source.splits.items()}
    if excluded.digests:
        search = source.splits, frozenset(map(bytes.fromhex, excluded.digests))
        blocks = [each for split, found in source.splits.items() for each in _blocks(split, found)]
        results = parallel_map.map_ordered(compute, matching, search, blocks, small=small)
        for (split, _), found in zip(blocks, results, strict=True):
            chosen[split][found] = False
        left_out = sum(int((~mask).sum()) for mask in chosen.values())
        log.info("left out %d examples that %s lists", left_out, Exclusions.FILE)
        _require_examples(source, chosen)
    return {split: np.flatnonzero(mask) for split, mask in chosen.items()}


def without(source: Source, indices: Mapping[Split, NDArray[np.int64]]) -> Source:
    """Restrict a source to some examples; their images are still read by their original indices."""
    splits = {
        split: found
        if len(indices[split]) == len(found.labels)
        else replace(
            found,
            labels=found.labels[indices[split]],
            image_bytes=found.image_bytes[indices[split]],
            names=[found.names[index] for index in indices[split]] if found.names else (),
            kinds=None if found.kinds is None else found.kinds[indices[split]],
        )
        for split, found in source.splits.items()
    }
    return replace(source, splits=splits)


def matching(search: Search, block: Block) -> list[int]:
    """Find the indices of a block's excluded examples."""
    (splits, wanted), (split, indices) = search, block
    return sorted({index for index, digest in _digests(splits[split], indices) if digest in wanted})


def _digests(examples: Examples, indices: range) -> Iterator[tuple[int, bytes]]:
    """Yield the index and digests of each image: of its source file, and of the file in the record."""
    if examples.originals is None or examples.shape:
        for index, image in zip(indices, examples.images(indices), strict=True):
            if isinstance(image, Image):
                yield index, hashlib.sha256(image.encoded).digest()
    if examples.originals is None:
        return
    for index, content in zip(indices, examples.originals(indices), strict=True):
        yield index, hashlib.sha256(content).digest()
        with suppress(Refused):  # convert names it
            yield from ((index, hashlib.sha256(each).digest()) for each in _encoded(content, examples.max_side))


def _encoded(content: bytes, max_side: int | None) -> Iterator[bytes]:
    """What a record may hold of a file that it does not hold byte for byte."""
    large = max_side is not None and max(accept.size(content) or (0, 0)) > max_side
    if accept.is_kept(content) and not large:
        return
    for image in (accept.accepted(content, "", each) for each in get_args(Transparency)):
        if isinstance(image, Image):
            yield image.encoded
            reduced = accept.limited(image, max_side) if max_side is not None else image
            if isinstance(reduced, Image):
                yield reduced.encoded


def _blocks(split: Split, examples: Examples) -> Iterator[Block]:
    ends = examples.image_bytes.cumsum()
    first, count = 0, len(ends)
    while first < count:
        before = int(ends[first - 1]) if first else 0
        stop = min(max(int(np.searchsorted(ends, before + CHUNK_BYTES)), first + 1), count)
        yield split, range(first, stop)
        first = stop


def _require_examples(source: Source, chosen: Mapping[Split, NDArray[np.bool_]]) -> None:
    classes = len(source.classes)
    for split, found in source.splits.items():
        before = label_arrays.per_class(found.labels, classes)
        after = label_arrays.per_class(found.labels[chosen[split]], classes)
        for label in np.flatnonzero((before > 0) & (after == 0)):
            raise DataError(
                f"{Exclusions.FILE} leaves out all {before[label]} images of class {source.classes[label]} in "
                f"{split}; nothing was written; add others, or remove the class from the source"
            )
