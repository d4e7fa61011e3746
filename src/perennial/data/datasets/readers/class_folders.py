"""Read images from class folders or by a table of labels, in a plain tar file; `own.layout` decides which."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perennial.base.choices import Transparency
from perennial.base.config.table import TableConfig
from perennial.data import archives
from perennial.data.archives import Member
from perennial.data.datasets.dataset import Examples, Source
from perennial.data.datasets.own import image_assignment, understood
from perennial.data.datasets.own.split_folders import Item
from perennial.data.images import BadImage, Image
from perennial.data.images.accept import accepted


def read(tar: Path, classes: tuple[str, ...] = (), table: TableConfig | None = None) -> Source:
    """Read the classes, sorted by name, and the examples, sorted by the SHA-256 of their names.

    A name is `<class>/<image>`, or the path of an image in a table. If classes are given, the tar file must
    contain exactly those.
    """
    found = image_assignment.find(archives.contents(tar), partial(archives.content, tar), tar, classes, table)
    understood.log_found(found, tar)
    return Source(
        classes=found.classes,
        splits={split: examples(tar, items, found.folders[split]) for split, items in found.splits.items()},
        columns=found.columns,
    )


def examples(tar: Path, items: Sequence[Item], above: str) -> Examples:
    """The examples of files of a plain tar file, sorted by the SHA-256 of their names; `above`: in messages."""
    ordered = sorted(items, key=lambda item: hashlib.sha256(item.name.encode()).digest())
    names = tuple(item.name for item in ordered)
    spans = np.array([(item.member.offset, item.member.size) for item in ordered], np.int64).reshape(-1, 2)
    return Examples(
        labels=np.array([item.label for item in ordered], np.int64),
        images=partial(_images, tar, spans, names, above),
        image_bytes=spans[:, 1],
        names=names,
        alpha=True,
        originals=partial(_contents, tar, spans, names, above),
        further=tuple(item.further for item in ordered),
    )


def _images(
    tar: Path,
    spans: NDArray[np.int64],
    names: Sequence[str],
    above: str,
    indices: Sequence[int],
    transparency: Transparency = "drop",
) -> Iterator[Image | BadImage]:
    """Yield images by index, each read from its span (offset, bytes) of the tar file.

    The names of rejected files include the split's folder.
    """
    for index, content in zip(indices, _contents(tar, spans, names, above, indices), strict=True):
        image = accepted(content, names[index], transparency)
        yield image if isinstance(image, Image) else replace(image, filename=above + image.filename)


def _contents(
    tar: Path, spans: NDArray[np.int64], names: Sequence[str], above: str, indices: Sequence[int]
) -> Iterator[bytes]:
    return archives.read_members(tar, (Member(above + names[i], *spans[i].tolist()) for i in indices))
