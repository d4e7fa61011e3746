"""Read COCO's object annotations element by element, because the files are too large to load at once.

Source: https://cocodataset.org/#format-data.
"""

import codecs
import json
from array import array
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perennial.base import files
from perennial.base.errors import DataError
from perennial.data.archives import Member
from perennial.data.datasets.readers import tar_images
from perennial.data.images import Annotations

CHUNK_BYTES = 1 << 20
LARGEST_ELEMENT = 64 << 20  # characters
SPACE = " \t\r\n"
AFTER_VALUE = {*SPACE, ",", ":", "]", "}"}


class Picture(NamedTuple):
    """An image of the file."""

    name: str
    width: int  # pixels
    height: int


@dataclass(frozen=True)
class Objects:
    """Objects of one category in the images; those of image N are rows bounds[N] to bounds[N + 1]."""

    bounds: NDArray[np.int64]  # [images + 1]
    rows: NDArray[np.float64]  # [objects, 5]: area in pixels, then x, y, width and height
    sizes: NDArray[np.int64]  # [images, 2], width and height

    def of(self, index: int) -> NDArray[np.float64]:
        """Return the rows of an image."""
        return self.rows[self.bounds[index] : self.bounds[index + 1]]

    def __call__(self, index: int) -> Annotations:
        """Return the boxes and areas of an image, without objects whose box is outside the image."""
        (width, height), found = self.sizes[index].tolist(), self.of(index).tolist()
        made = [(tar_images.box((x, y, x + w, y + h), width, height), area) for area, x, y, w, h in found]
        kept = [(box, area) for box, area in made if box is not None]
        return Annotations(boxes=tuple(box for box, _ in kept), areas=tuple(area for _, area in kept))


def read(tar: Path, member: Member, category: str, least_share: float) -> tuple[list[Picture], Objects]:
    """Read the images in file order, and their objects of a category that exceed a share of the image area."""
    where = tar / member.name
    pictures: dict[int, Picture] = {}
    categories: dict[str, int] = {}
    kept = array("d")  # image, category, area and box of each object
    try:
        for key, each in elements(tar, member, ("images", "annotations", "categories")):
            if key == "images":
                pictures[each["id"]] = Picture(each["file_name"], int(each["width"]), int(each["height"]))
            elif key == "categories":
                categories[each["name"]] = each["id"]
            else:
                x, y, width, height = each["bbox"]
                kept.extend((each["image_id"], each["category_id"], each["area"], x, y, width, height))
    except (LookupError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise DataError(f"{where} is damaged or not in COCO's format: {error!r}") from error
    if category not in categories:
        raise DataError(f"{where} has no category {category!r}")
    table = np.frombuffer(kept, np.float64).reshape(-1, 7)
    position = {image: index for index, image in enumerate(pictures)}
    owners = np.array([position.get(image, -1) for image in table[:, 0].astype(np.int64).tolist()], np.int64)
    if lost := np.flatnonzero(owners < 0).tolist():
        raise DataError(f"{where}: an annotation of image {table[lost[0], 0]:.0f}, which is not listed")
    sizes = np.array([(each.width, each.height) for each in pictures.values()], np.int64).reshape(-1, 2)
    if (sizes <= 0).any():
        raise DataError(f"{where} lists an image without pixels")
    large = table[:, 2] > least_share * sizes.prod(axis=1)[owners]
    chosen = np.flatnonzero((table[:, 1] == categories[category]) & large)
    chosen = chosen[np.argsort(owners[chosen], kind="stable")]
    bounds = np.searchsorted(owners[chosen], np.arange(len(pictures) + 1))
    return list(pictures.values()), Objects(bounds, table[chosen, 2:], sizes)


def ordered(objects: Objects, order: list[int]) -> Objects:
    """Return the objects of the same images in another order."""
    counts = np.diff(objects.bounds)[order]
    rows = [objects.of(index) for index in order] or [objects.rows]
    return Objects(np.append(0, np.cumsum(counts)), np.concatenate(rows), objects.sizes[order])


def elements(tar: Path, member: Member, keys: Collection[str]) -> Iterator[tuple[str, Any]]:
    """Yield the elements of the arrays with these keys in a JSON object, in file order."""
    text = _Text(tar, member)
    text.expect("{")
    while text.next() != "}":
        key = text.value()
        text.expect(":")
        if key in keys:
            text.expect("[")
            while text.next() != "]":
                yield key, text.value()
                text.skip_comma("]")
            text.expect("]")
        else:
            text.value()
        text.skip_comma("}")


class _Text:
    """The text of a JSON file; only a part of it is in memory."""

    def __init__(self, tar: Path, member: Member) -> None:
        self._decoder, self._json = codecs.getincrementaldecoder("utf-8")(), json.JSONDecoder()
        self._chunks = self._read(tar, member)
        self._buffer, self._position = "", 0

    def next(self) -> str:
        """Return the next character that is not a space, without consuming it."""
        while True:
            while self._position < len(self._buffer) and self._buffer[self._position] in SPACE:
                self._position += 1
            if self._position < len(self._buffer):
                return self._buffer[self._position]
            if not self._more():
                raise ValueError("it ends too early")

    def expect(self, character: str) -> None:
        """Skip the next character, which must be this one."""
        if (found := self.next()) != character:
            raise ValueError(f"{found!r} where {character!r} is expected")
        self._position += 1

    def skip_comma(self, closing: str) -> None:
        """Skip the comma after an element, unless the closing bracket follows."""
        if self.next() != closing:
            self.expect(",")

    def value(self) -> Any:
        """Parse the next value."""
        self.next()
        while True:
            try:
                value, end = self._json.raw_decode(self._buffer, self._position)
            except json.JSONDecodeError:
                if not self._more():
                    raise
                continue
            # At the end of the buffer, a number may be incomplete: 23 or 23. of 23.5.
            if self._buffer[end : end + 1] not in AFTER_VALUE and self._more():
                continue
            self._position = end
            return value

    def _more(self) -> bool:
        self._buffer, self._position = self._buffer[self._position :], 0
        if len(self._buffer) > LARGEST_ELEMENT:
            raise ValueError(f"an element of more than {LARGEST_ELEMENT} characters")
        chunk = next(self._chunks, None)
        self._buffer += chunk or ""
        return chunk is not None

    def _read(self, tar: Path, member: Member) -> Iterator[str]:
        left = member.size
        with files.naming(tar), tar.open("rb") as stream:
            stream.seek(member.offset)
            while left and (content := stream.read(min(left, CHUNK_BYTES))):
                left -= len(content)
                yield self._decoder.decode(content, final=not left)
