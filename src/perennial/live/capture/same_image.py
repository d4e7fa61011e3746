"""Recognize any file that was made of an image: by its bytes, by its pixels, or because it shows the same.

Files that this program makes of an image are known by their SHA-256: as it came, as `convert` encodes it,
reduced, and without metadata. What other programs make of it (another encoding, size or rotation) has a small
grey version that differs no more than by compression, which is not so for another photograph.
"""

import hashlib
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import PIL.Image
import PIL.ImageOps
from numpy.typing import NDArray

from perennial.base.choices import Transparency
from perennial.data.images import Image, Refused, accept, check_size, decode, orientation, png
from perennial.data.images.decode import PILLOW_ERRORS
from perennial.data.validation.inspection import TINY_PIXELS

SIDE = 16  # pixels of a small version
DRAFT = 8 * SIDE  # pixels at least, at which a JPEG is decoded for it
# Maximum difference of two small versions (root of the mean square): in grey levels, 0..255, and as a share of
# the image's contrast. JPEG of quality 30 or a quarter of the size differs less, a shift by 1 % of a side more.
MOST_LEVELS, MOST_SHARE = 2.0, 0.07
ROUNDED = 1.5  # pixels by which a side of a reduced image may differ
PLAIN = 3.0  # contrast in grey levels below which only equal pixels count
TURNED = (None, *orientation.TRANSPOSED.values())  # all eight ways in which an image may lie
ON_ITS_SIDE = 4  # from here on, width and height are exchanged
How = Literal["file", "pixels", "alike"]
Small = NDArray[np.float32]  # [16, 16]


@dataclass(frozen=True, kw_only=True)
class Found:
    """A file that was made of a wanted image."""

    image: int  # number of the image
    how: How


@dataclass
class _Shown:
    """What an image shows."""

    encoded: bytes  # upright PNG or JPEG
    size: tuple[int, int]  # width, height
    small: Small  # [8, 256], one for each way in which it may lie
    contrast: float


@dataclass
class Wanted:
    """Images that are looked for."""

    sides: Sequence[int] = ()
    digests: dict[str, int] = field(default_factory=dict)  # by SHA-256 of files: the image each was made of
    _shown: dict[int, list[_Shown]] = field(default_factory=dict)
    _same: dict[int, int] = field(default_factory=dict)

    def add_digest(self, image: int, sha256: str) -> None:
        """Add an image by the SHA-256 of a file of it."""
        self._same[image] = self.digests.setdefault(sha256, image)

    def of(self, image: int) -> int:
        """The number under which an image is found."""
        return self._same.get(image, image)

    def add(self, image: int, content: bytes) -> bool:
        """Add an image, or a file that shows the same as one; returns whether its pixels could be read."""
        encodings = list(dict.fromkeys(_encodings(content)))
        earlier = next((found.image for each in (content, *encodings) if (found := self.find(each))), image)
        self._same[image] = image = self.of(earlier)
        for form in (content, *(form for each in encodings for form in _forms(each, self.sides))):
            self.digests.setdefault(hashlib.sha256(form).hexdigest(), image)
        self._shown.setdefault(image, []).extend(map(_shown, encodings))
        return bool(encodings)

    @property
    def known(self) -> int:
        """The number of images whose pixels are known."""
        return len(self._shown)

    def lacks_pixels(self, sha256: str) -> bool:
        """Whether a file is one of a wanted image of which only digests are known: `add` learns more."""
        return sha256 in self.digests and self.digests[sha256] not in self._shown

    def find(self, content: bytes) -> Found | None:
        """Which of the images a PNG or JPEG was made of; its digest is known from then on."""
        sha256 = hashlib.sha256(content).hexdigest()
        if sha256 in self.digests:
            return Found(image=self.digests[sha256], how="file")
        for image, how in self._alike(content):
            self.digests[sha256] = image
            return Found(image=image, how=how)
        return None

    def pictures(self) -> Iterator[PIL.Image.Image]:
        """The upright images whose pixels are known."""
        for versions in self._shown.values():
            yield from (_picture(each.encoded) for each in versions)

    def _alike(self, content: bytes) -> Iterator[tuple[int, How]]:
        if not self._shown:
            return
        try:
            small, size = _small(content)
        except (Refused, *PILLOW_ERRORS):
            return
        for image, versions in self._shown.items():
            for each in versions:
                levels = np.sqrt(((each.small - small.ravel()) ** 2).mean(axis=1))
                if levels.min() > MOST_LEVELS:
                    continue
                on_its_side = int(levels.argmin()) >= ON_ITS_SIDE
                if sorted(size) == sorted(each.size) and _equal(each.encoded, content):
                    yield image, "pixels"
                elif levels.min() <= each.contrast * MOST_SHARE and _has_shape(each, size, on_its_side):
                    yield image, "alike"


def _has_shape(shown: _Shown, size: tuple[int, int], on_its_side: bool) -> bool:
    """Whether a size is that of an image, larger or smaller, whose contrast and pixels tell it from others."""
    width, height = reversed(shown.size) if on_its_side else shown.size
    shape = abs(size[0] * height / (size[1] * width) - 1)
    pixels = min(size[0] * size[1], width * height)
    return shown.contrast >= PLAIN and pixels >= TINY_PIXELS and shape <= ROUNDED / min(*size, width, height)


def _encodings(content: bytes) -> Iterator[bytes]:
    """The image as records hold it, or as Pillow reads it if records cannot."""
    found = [accept.accepted(content, "", each) for each in get_args(Transparency)]
    yield from (each.encoded for each in found if isinstance(each, Image))
    if not any(isinstance(each, Image) for each in found):
        with suppress(Refused, *PILLOW_ERRORS), PIL.Image.open(io.BytesIO(content)) as opened:
            check_size(*opened.size)
            yield png.encode(decode.array(decode.plain(PIL.ImageOps.exif_transpose(opened))))


def _forms(encoded: bytes, sides: Iterable[int]) -> Iterator[bytes]:
    """The files that convert and serve make of an image: whole and reduced, with metadata and without."""
    reduced = []
    with suppress(*PILLOW_ERRORS):
        reduced = [accept.smaller(encoded, side) for side in sides]
    for each in dict.fromkeys((encoded, *reduced)):
        yield each
        with suppress(Refused):
            yield accept.without_metadata(each)


def _shown(encoded: bytes) -> _Shown:
    small, size = _small(encoded)
    image = PIL.Image.fromarray(small)
    ways = [image if way is None else image.transpose(way) for way in TURNED]
    return _Shown(
        encoded=encoded,
        size=size,
        small=np.stack([np.asarray(each, np.float32).ravel() for each in ways]),
        contrast=float(small.std()),
    )


def _small(encoded: bytes) -> tuple[Small, tuple[int, int]]:
    """The grey version of a PNG or JPEG at 16 x 16 pixels, and the size of the whole."""
    opened = decode.opened(encoded)
    size = opened.size
    opened.draft("L", (DRAFT, DRAFT))
    opened.load()
    grey = decode.plain(opened).convert("L")
    small = grey.resize((SIDE, SIDE), PIL.Image.Resampling.BILINEAR)
    return np.asarray(small, np.float32), size


def _equal(one: bytes, other: bytes) -> bool:
    """Whether two images have equal pixels, however one of them lies."""
    image, pixels = _picture(one), np.asarray(_picture(other))
    return any(
        np.array_equal(np.asarray(image if way is None else image.transpose(way)), pixels) for way in TURNED
    )


def _picture(encoded: bytes) -> PIL.Image.Image:
    pixels = decode.array(decode.decoded(encoded))
    return PIL.Image.fromarray(pixels if pixels.shape[2] > 1 else pixels[..., 0])
