"""Many records parsed at once: those that say the same of images of the same size in bytes.

A data set of small images holds few kinds of records: one a class, where all are equally large. What stands
around the encoded image, and the header of a PNG, is compared for all of them at once; only one of each kind is
parsed.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perennial.images.header import Header, header
from perennial.tfrecord import example
from perennial.tfrecord.example import Fields

FEWEST = 256  # records of a length that are worth the comparison
MOST = 65_536  # kinds that are remembered
PNG_HEADER = 26  # bytes that tell a PNG's size and colours


class Kind(NamedTuple):
    """What all records of a kind say, and where in their data the image stands."""

    fields: Fields
    header: Header
    start: int
    stop: int


class Finder:
    """Finds the kinds of records in block after block, and remembers those that it has parsed."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[int, int], bytes], Kind | None] = {}  # by what stands around the image

    def found(
        self, block: bytes, starts: NDArray[np.uint64], lengths: NDArray[np.uint64]
    ) -> Iterator[tuple[Kind, NDArray[np.int64]]]:
        """Kinds, and the indices of the records of each, ascending; a record is of one kind or of none.

        A record is `lengths[i]` bytes of data from `starts[i]` of the block.
        """
        every = np.frombuffer(block, np.uint8)
        sizes, counts = np.unique(lengths, return_counts=True)
        for size in sizes[counts >= FEWEST].tolist():
            members = np.flatnonzero(lengths == size)
            begins = starts[members]
            first = int(begins[0])
            span = _png_span(block[first : first + size])
            if span is None:
                continue
            windows = np.lib.stride_tricks.sliding_window_view(every, size)
            sides = windows[:, : span[0] + PNG_HEADER][begins], windows[:, span[1] :][begins]
            around = np.concatenate(sides, axis=1)
            rows = around.view(np.dtype((np.void, around.shape[1])))[:, 0]
            _, examples, which = np.unique(rows, return_index=True, return_inverse=True)
            for number, index in enumerate(examples.tolist()):
                begin = int(begins[index])
                kind = self._kind(around[index].tobytes(), block[begin : begin + size], span)
                if kind is not None:
                    yield kind, members[which == number]

    def _kind(self, around: bytes, data: bytes, span: tuple[int, int]) -> Kind | None:
        """The kind of a record whose image stands where the others' does."""
        key = (span, around)
        if key not in self._known:
            if len(self._known) == MOST:
                self._known.clear()
            self._known[key] = _parsed(data, span)
        return self._known[key]


def _png_span(data: bytes) -> tuple[int, int] | None:
    """Where the image of a record stands, if it is a PNG."""
    try:
        fields, encoded = example.parse(data)
    except ValueError:
        return None
    if fields.filename is not None or len(encoded) < PNG_HEADER or not encoded.startswith(b"\x89PNG"):
        return None
    return example.image_span(data, fields, encoded)


def _parsed(data: bytes, span: tuple[int, int]) -> Kind | None:
    if _png_span(data) != span:
        return None
    fields, encoded = example.parse(data)
    said = header(encoded)
    return None if said is None else Kind(fields, said, *span)
