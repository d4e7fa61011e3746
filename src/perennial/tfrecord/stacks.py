"""Records of many images of one size, made at once: the bytes that they would be one by one."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from perennial.images import Image, png
from perennial.tfrecord import example, framing


def records(images: NDArray[np.uint8], labels: NDArray[np.int64]) -> bytes:
    """The framed records of images uint8 [N, height, width (, 1 or 3)], stored as PNG, with labels [N]."""
    height, width = images.shape[1:3]
    size = png.file_bytes(images.shape)
    kinds, which = np.unique(labels, return_inverse=True)
    around = [_around(label, height, width, size or 0) for label in kinds.tolist()]
    lengths = {(len(before), len(after)) for before, after in filter(None, around)}
    if size is None or None in around or len(lengths) != 1:
        return _one_by_one(images, labels)
    ((before, after),) = lengths
    rows = np.empty((len(labels), before + size + after), np.uint8)
    for part, columns in enumerate((slice(before), slice(before + size, None))):
        texts = b"".join(pair[part] for pair in around if pair is not None)
        rows[:, columns] = np.frombuffer(texts, np.uint8).reshape(len(kinds), -1)[which]
    png.encode_into(rows[:, before : before + size], images)
    framing.close_all(rows)
    return rows.tobytes()


@lru_cache(maxsize=1024)
def _around(label: int, height: int, width: int, size: int) -> tuple[bytes, bytes] | None:
    """What stands in a record before and after its image, the checksum of the data still to be filled in."""
    image = Image(b"\xff" * size, "png", height, width)
    data = example.serialize(image, label)
    fields = example.Fields(label=label, format="png", height=height, width=width)
    span = example.image_span(data, fields, image.encoded)
    if span is None:
        return None
    framed = framing.frame(data)
    start, stop = (framing.HEADER.size + at for at in span)
    return framed[:start], framed[stop:]


def _one_by_one(images: NDArray[np.uint8], labels: NDArray[np.int64]) -> bytes:
    height, width = images.shape[1:3]
    pairs = zip(png.encode_all(images), labels.tolist(), strict=True)
    return b"".join(
        framing.frame(example.serialize(Image(encoded, "png", height, width), label))
        for encoded, label in pairs
    )
