"""Bulk parsing and writing of records that differ only in their images.

A data set of small images of one size has few record layouts: one for each class. The PNG header and the bytes
around the image are compared for many records at once; only one record of each layout is parsed.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perennial.data.images import Image, decode, png
from perennial.data.tfrecord import example, framing, label_arrays

MINIMUM = 256  # records of one length that make the comparison worthwhile
MAXIMUM = 65_536  # cached layouts
PNG_HEADER = 26  # bytes of a PNG up to its size and colour type


class Layout(NamedTuple):
    """The fields that all records of a layout share, and the span of the image in their data."""

    fields: example.Fields
    header: decode.Header
    start: int
    stop: int


class LayoutFinder:
    """Find the layouts of records, block by block, with a cache of parsed layouts."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[int, int], bytes], Layout | None] = {}  # by the bytes around the image

    def find(
        self, block: bytes, starts: NDArray[np.uint64], lengths: NDArray[np.uint64]
    ) -> Iterator[tuple[Layout, NDArray[np.int64]]]:
        """Yield layouts, each with the ascending indices of its records: `lengths[i]` bytes at `starts[i]`."""
        every = np.frombuffer(block, np.uint8)
        sizes, counts = np.unique(lengths, return_counts=True)
        for size in sizes[counts >= MINIMUM].tolist():
            members = np.flatnonzero(lengths == size)
            begins = starts[members]
            first = int(begins[0])
            typical = _layout(block[first : first + size])
            if typical is None:
                continue
            span = typical.start, typical.stop
            windows = np.lib.stride_tricks.sliding_window_view(every, size)
            sides = windows[:, : span[0] + PNG_HEADER][begins], windows[:, span[1] :][begins]
            around = np.concatenate(sides, axis=1)
            rows = around.view(np.dtype((np.void, around.shape[1])))[:, 0]
            _, examples, which = np.unique(rows, return_index=True, return_inverse=True)
            for number, index in enumerate(examples.tolist()):
                begin = int(begins[index])
                layout = self._remembered(around[index].tobytes(), block[begin : begin + size], span)
                if layout is not None:
                    yield layout, members[which == number]

    def _remembered(self, around: bytes, data: bytes, span: tuple[int, int]) -> Layout | None:
        key = (span, around)
        if key not in self._known:
            if len(self._known) == MAXIMUM:
                self._known.clear()
            found = _layout(data)
            self._known[key] = found if found is not None and (found.start, found.stop) == span else None
        return self._known[key]


def _layout(data: bytes) -> Layout | None:
    """Parse the layout of a record; None unless its image is a PNG without a file name."""
    try:
        fields, encoded = example.parse(data)
    except ValueError:
        return None
    found = decode.header(encoded)
    if fields.filename is not None or found is None or found.format != "png":
        return None
    span = example.image_span(data, fields, encoded)
    return None if span is None else Layout(fields, found, *span)


def frame_images(images: NDArray[np.uint8], labels: label_arrays.LabelArray) -> bytes:
    """Frame records of images uint8 [N, height, width (, 1 or 3)], stored as PNG, with their labels."""
    height, width = images.shape[1:3]
    size = png.file_bytes(images.shape)
    axis = 0 if labels.ndim == 2 else None  # slower
    kinds, which = np.unique(labels, return_inverse=True, axis=axis)
    around = [_framed_around(label, height, width, size or 0) for label in label_arrays.each(kinds)]
    lengths = {(len(before), len(after)) for before, after in around}
    if size is None or len(lengths) != 1:
        pairs = zip(png.encode_all(images), label_arrays.each(labels), strict=True)
        records = (example.serialize(Image(data, "png", height, width), label) for data, label in pairs)
        return b"".join(map(framing.frame, records))
    ((before, after),) = lengths
    rows = np.empty((len(labels), before + size + after), np.uint8)
    for part, columns in enumerate((slice(before), slice(before + size, None))):
        texts = b"".join(pair[part] for pair in around)
        rows[:, columns] = np.frombuffer(texts, np.uint8).reshape(len(kinds), -1)[which]
    png.encode_into(rows[:, before : before + size], images)
    framing.fill_checksums(rows)
    return rows.tobytes()


@lru_cache(maxsize=1024)
def _framed_around(label: label_arrays.Label, height: int, width: int, size: int) -> tuple[bytes, bytes]:
    """Return the bytes of a framed record before and after its image; the data checksum is not valid yet."""
    image = Image(bytes(size), "png", height, width)
    before, after = example.around(image, label)
    return framing.around(before, image.encoded, after)
