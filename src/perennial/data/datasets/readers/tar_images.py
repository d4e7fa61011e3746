"""Images in a plain tar file, with annotations (text, boxes, areas) where a data set has them."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perennial.base.choices import Transparency
from perennial.data import archives
from perennial.data.archives import Member
from perennial.data.datasets.dataset import Examples
from perennial.data.images import Annotations, BadImage, Box, Image, Refused
from perennial.data.images.accept import accepted
from perennial.data.tfrecord.label_arrays import LabelArray

Annotate = Callable[[int], Annotations]  # of an example, by its index; Refused: they cannot be read
Read = Callable[[Sequence[int]], Iterator[bytes]]  # the content of files, by index


def order(names: Sequence[str]) -> list[int]:
    """The indices of names, sorted by the SHA-256 of these, so that each shard has all classes."""
    return sorted(range(len(names)), key=lambda index: hashlib.sha256(names[index].encode()).digest())


def examples(
    tar: Path,
    members: Sequence[Member],
    names: Sequence[str],
    labels: LabelArray,
    *,
    above: str = "",
    annotate: Annotate | None = None,
) -> Examples:
    """Build examples from files in a tar file, in the given order; `above`: before their names in messages."""
    spans = np.array([(member.offset, member.size) for member in members], np.int64).reshape(-1, 2)
    read = partial(_contents, tar, spans, names, above)
    return Examples(
        labels=labels,
        images=partial(_images, read, names, above, annotate),
        image_bytes=spans[:, 1],
        names=names,
        alpha=True,
        originals=read,
    )


def _contents(
    tar: Path, spans: NDArray[np.int64], names: Sequence[str], above: str, indices: Sequence[int]
) -> Iterator[bytes]:
    return archives.read_members(tar, (Member(above + names[i], *spans[i].tolist()) for i in indices))


def _images(
    read: Read,
    names: Sequence[str],
    above: str,
    annotate: Annotate | None,
    indices: Sequence[int],
    transparency: Transparency = "drop",
) -> Iterator[Image | BadImage]:
    """Yield images by index; one that EXIF rotates gets no boxes, because they refer to the unrotated image."""
    for index, content in zip(indices, read(indices), strict=True):
        image = accepted(content, names[index], transparency)
        if isinstance(image, BadImage):
            yield replace(image, filename=above + image.filename)
        elif annotate is None:
            yield image
        else:
            try:
                notes = annotate(index)
            except Refused as error:
                yield BadImage(filename=above + names[index], reason=str(error))
            else:
                yield image._replace(annotations=Annotations(text=notes.text) if image.turned else notes)


def box(ends: Sequence[float], width: float, height: float) -> Box | None:
    """Clip the box between two corners x, y, x, y (pixels) to the image; None if its area becomes 0."""
    (left, right), (top, bottom) = (
        sorted(min(max(value / side, 0.0), 1.0) for value in values)
        for values, side in (((ends[0], ends[2]), width), ((ends[1], ends[3]), height))
    )
    return Box(left, top, right, bottom) if left < right and top < bottom else None
