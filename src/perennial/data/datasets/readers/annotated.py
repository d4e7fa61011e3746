"""Images in a plain tar file with their annotations: text, boxes and areas of objects."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
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

Annotate = Callable[[int], Annotations]  # of an example, by its index; Refused: they cannot be read


def file_name(member: Member) -> str:
    """Return the name of a file without its folders."""
    return member.name.rpartition("/")[2]


def order(members: Sequence[Member]) -> list[int]:
    """Sort files by the SHA-256 of their names, so that each shard has all classes; return indices."""
    names = [file_name(member) for member in members]
    return sorted(range(len(names)), key=lambda index: hashlib.sha256(names[index].encode()).digest())


def examples(tar: Path, members: Sequence[Member], labels: NDArray[np.int64], annotate: Annotate) -> Examples:
    """Build examples from files in a tar file, in the given order; picklable if `annotate` is."""
    names = tuple(map(file_name, members))
    spans = np.array([(member.offset, member.size) for member in members], np.int64).reshape(-1, 2)
    return Examples(
        labels=labels,
        images=partial(_images, tar, spans, names, annotate),
        image_bytes=spans[:, 1],
        names=names,
        alpha=True,
        originals=partial(_contents, tar, spans, names),
    )


def _images(
    tar: Path,
    spans: NDArray[np.int64],
    names: Sequence[str],
    annotate: Annotate,
    indices: Sequence[int],
    transparency: Transparency = "drop",
) -> Iterator[Image | BadImage]:
    """Yield images by index, each with its annotations.

    A photograph with an EXIF rotation gets no boxes, because they refer to the unrotated image.
    """
    for index, content in zip(indices, _contents(tar, spans, names, indices), strict=True):
        image = accepted(content, names[index], transparency)
        if isinstance(image, BadImage):
            yield image
            continue
        try:
            annotations = annotate(index)
        except Refused as error:
            yield BadImage(filename=names[index], reason=str(error))
            continue
        if image.turned:
            annotations = Annotations(text=annotations.text)
        yield image._replace(annotations=annotations)


def _contents(
    tar: Path, spans: NDArray[np.int64], names: Sequence[str], indices: Sequence[int]
) -> Iterator[bytes]:
    return archives.read_members(tar, (Member(names[i], *spans[i].tolist()) for i in indices))


def box(ends: Sequence[float], width: float, height: float) -> Box | None:
    """Clip the box between two corners x, y, x, y (pixels) to the image; None if its area becomes 0."""
    (left, right), (top, bottom) = (
        sorted(min(max(value / side, 0.0), 1.0) for value in values)
        for values, side in (((ends[0], ends[2]), width), ((ends[1], ends[3]), height))
    )
    return Box(left, top, right, bottom) if left < right and top < bottom else None
