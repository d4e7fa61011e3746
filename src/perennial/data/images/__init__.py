"""Images on their way from a data set to a record."""

from dataclasses import dataclass
from typing import NamedTuple

BRIGHTNESS_BINS = 32  # of mean brightness, 0..255
MOST_PIXELS = 120_000_000  # a record of such an image holds 360 MB at most; TensorFlow decodes 178 million
MOST_SIDE = 1_000_000  # pixels; libpng in TensorFlow refuses more


class Box(NamedTuple):
    """Bounding box of an object, as fractions of the image's width and height, 0..1."""

    xmin: float
    ymin: float
    xmax: float
    ymax: float


class Annotations(NamedTuple):
    """Annotations of an image besides its class."""

    boxes: tuple[Box, ...] = ()  # of objects of the image's class
    areas: tuple[float, ...] | None = None  # of these objects, in pixels
    text: str | None = None  # description of the class


class Image(NamedTuple):
    """An image as stored in a record."""

    encoded: bytes
    format: str  # as in image/format: png or jpg
    height: int  # pixels
    width: int  # pixels
    filename: str | None = None  # if it was a file
    annotations: Annotations | None = None
    turned: bool = False  # whether it was rotated or mirrored
    hidden: bool = False  # whether its picture was in the alpha channel that was dropped
    original: bool = False  # whether the encoded bytes are those of the source's file


@dataclass(frozen=True, kw_only=True)
class BadImage:
    """A file that is not an image accepted for records."""

    filename: str
    reason: str


class Refused(ValueError):
    """The reason why a file is not accepted as an image, for a record or for a model."""


def check_size(width: int, height: int) -> None:
    """Check that an image has at least one pixel, and not too many for the decoder that trains."""
    if max(width, height) > MOST_SIDE:
        raise Refused(f"it has {width} x {height} pixels, expected at most {MOST_SIDE} a side")
    if not 0 < width * height <= MOST_PIXELS:
        raise Refused(f"it has {width} x {height} pixels, expected 1 to {MOST_PIXELS}; save it smaller")
