"""Decode files of formats that a model classifies, but convert does not accept: TIFF, JPEG 2000, AVIF and PPM.

Pillow reads the structure of these formats in Python, so that it is checked before, in linear time: it must be
small, and small enough in memory.
"""

import io
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import PIL.Image
from PIL.TiffImagePlugin import TILELENGTH, TILEWIDTH, TiffImageFile

from perennial.data.images import Refused, check_size, orientation

FORMATS = ("TIFF", "JPEG2000", "AVIF", "PPM")  # Pillow's names; none of them starts another program
MOST_PARTS = 4096  # entries of a TIFF directory, boxes or segments of a JPEG 2000
TIFF = (b"II", b"MM")
# The size of a TIFF value by its type (TIFF 6.0, section 2, and BigTIFF).
VALUE_BYTES = {
    1: 1,
    2: 1,
    3: 2,
    4: 4,
    5: 8,
    6: 1,
    7: 1,
    8: 2,
    9: 4,
    10: 8,
    11: 4,
    12: 8,
    13: 4,
    16: 8,
    17: 8,
    18: 8,
}
DIRECTORIES = {34665, 34853, 40965}  # tags whose value is the offset of another directory, which Pillow reads
JP2, JP2_HEADER, CODESTREAM = b"\0\0\0\x0cjP  \r\n\x87\n", b"jp2h", b"\xff\x4f\xff\x51"
TILE_PART = 0xFF90  # the marker that ends the header of a JPEG 2000 codestream
PPM = re.compile(rb"P[1-6][\s#]")
# Magic, width, height and maximum, between which are spaces and comments.
PPM_HEADER = re.compile(rb"P[1-6](?:(?:\s|#[^\r\n]*+[\r\n])++\d{1,10}+){2,3}")
PPM_HEADER_BYTES = 4096
PLAIN_PPM, MOST_PLAIN_BYTES = (b"P1", b"P2", b"P3"), 4 << 20  # which Pillow decodes in Python


def opened(content: bytes) -> PIL.Image.Image | None:
    """Open a file with one image; None if it has none of the formats.

    Raises:
        Refused: it is damaged, has several pages or too many pixels.
    """
    _check_structure(content)
    try:
        with pillow_errors():
            image = PIL.Image.open(io.BytesIO(content), formats=FORMATS)
    except PIL.UnidentifiedImageError:
        return None
    if not isinstance(image, TiffImageFile) and getattr(image, "is_animated", False):
        raise Refused("it has several frames, expected one image")
    check_size(*largest_part(image))
    return image


def upright(image: PIL.Image.Image) -> PIL.Image.Image:
    """Load an image of `opened` and turn it upright; Pillow turns a TIFF itself."""
    with pillow_errors():
        image.load()
    return (
        image if isinstance(image, TiffImageFile) else orientation.applied(image, orientation.of_image(image))
    )


def largest_part(image: PIL.Image.Image) -> tuple[int, int]:
    """Width and height of the largest part that is decoded at once: a tile of a TIFF may exceed the image."""
    if not isinstance(image, TiffImageFile):
        return image.size
    width, height = (image.tag_v2.get(tag, 1) for tag in (TILEWIDTH, TILELENGTH))
    if not isinstance(width, int) or not isinstance(height, int):
        raise Refused("it is damaged: its tiles have no size")
    return max(width, image.width), max(height, image.height)


@contextmanager
def pillow_errors() -> Iterator[None]:
    """Convert any error of Pillow in the block to Refused; its plugins raise almost any type."""
    try:
        yield
    except PIL.UnidentifiedImageError:
        raise
    except Exception as error:
        raise Refused(f"it cannot be decoded: {str(error) or type(error).__name__}") from error


def _check_structure(content: bytes) -> None:
    try:
        if content[:2] in TIFF:
            _check_tiff(content)
        elif content.startswith(JP2):
            _check_boxes(content)
        elif content.startswith(CODESTREAM):
            _check_codestream(content, 0)
        elif PPM.match(content):
            _check_ppm(content)
    except (struct.error, IndexError, OverflowError):
        raise Refused("it is incomplete: it ends within its header") from None


class _Directory(NamedTuple):
    """The form of a TIFF's directories."""

    order: str  # of bytes
    big: bool

    def read(self, content: bytes, start: int) -> tuple[int, Sequence[int]]:
        """Check a directory; return the offset of the next one, and of those that its entries name."""
        number, entry, offset = ("Q", "HHQQ", "Q") if self.big else ("H", "HHII", "I")
        (count,) = struct.unpack_from(self.order + number, content, start)
        at, size = start + struct.calcsize(number), struct.calcsize(self.order + entry)
        if count > MOST_PARTS:
            raise Refused(f"it is damaged: a directory of {count} entries")
        entries = [struct.unpack_from(self.order + entry, content, at + n * size) for n in range(count)]
        if sum(VALUE_BYTES.get(kind, 1) * values for _, kind, values, _ in entries) > len(content):
            raise Refused("it is damaged: its directory holds more values than the file")
        (following,) = struct.unpack_from(self.order + offset, content, at + count * size)
        return following, [value for tag, _, _, value in entries if tag in DIRECTORIES]


def _check_tiff(content: bytes) -> None:
    order = "<" if content[:2] == b"II" else ">"
    form = _Directory(order, big=struct.unpack_from(order + "H", content, 2)[0] == 43)
    (first,) = struct.unpack_from(order + ("Q" if form.big else "I"), content, 8 if form.big else 4)
    following, others = form.read(content, first)
    if following:
        raise Refused("it has several pages, expected one image")
    for _ in range(len(DIRECTORIES)):  # EXIF's directory names another one
        others = [deeper for each in others[: len(DIRECTORIES)] for deeper in form.read(content, each)[1]]


def _check_boxes(content: bytes, at: int = 0, stop: int | None = None) -> None:
    """Check the boxes of a JP2 file (ISO 15444-1, annex I), up to the codestream."""
    stop = len(content) if stop is None else min(stop, len(content))
    for _ in range(MOST_PARTS):
        if at + 8 > stop:
            return
        length, kind = struct.unpack_from(">I4s", content, at)
        if kind == JP2_HEADER:
            _check_boxes(content, at + 8, at + length)
        elif kind == b"jp2c":
            _check_codestream(content, at + 8)
            return
        if length == 1:
            (length,) = struct.unpack_from(">Q", content, at + 8)
        if length < 8:
            return  # up to the end, or damaged
        at += length
    raise Refused(f"it is damaged: it has more than {MOST_PARTS} boxes")


def _check_codestream(content: bytes, at: int) -> None:
    """Check the segments of a JPEG 2000 codestream (ISO 15444-1, annex A), up to its first tile."""
    at += 2
    for _ in range(MOST_PARTS):
        marker, length = struct.unpack_from(">HH", content, at)
        if marker == TILE_PART:
            return
        at += 2 + max(length, 2)
    raise Refused(f"it is damaged: it has more than {MOST_PARTS} segments")


def _check_ppm(content: bytes) -> None:
    if not PPM_HEADER.match(content[:PPM_HEADER_BYTES]):
        raise Refused("it is damaged: its header cannot be read")
    if content.startswith(PLAIN_PPM) and len(content) > MOST_PLAIN_BYTES:
        raise Refused(f"it is a plain PPM of {len(content)} bytes, expected at most {MOST_PLAIN_BYTES}")
