"""An image file as a record of it would hold it, so that the model sees what it saw in training.

what convert takes                   exactly as `images.accept` has it, thus as it was trained on
TIFF, JPEG 2000, AVIF, PPM           8-bit grey or RGB, as PNG; transparency is dropped
animations, several pages, damage    Unusable
"""

import io
import struct
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from perennial.images import MOST_PIXELS, BadImage, decode, header, png, png_check
from perennial.images.accept import PNG_KEPT, accepted

MOST_BYTES = 512 << 20  # of a file; MOST_PIXELS of 16 bits without compression take less
FURTHER = ("TIFF", "JPEG2000", "AVIF", "PPM")  # Pillow's names; none of them runs another program
KEPT_CHANNELS = (1, 3)
# What Pillow does with warnings is for a whole process, and an image that is given twice is loaded once.
_pillow = threading.RLock()


class Unusable(Exception):
    """Why a file is no image that a model could judge."""


def encoded(content: bytes) -> bytes:
    """PNG or JPEG that the model decodes; whether it is whole may be seen only then.

    Raises:
        Unusable: says why.
    """
    return content if _kept(content) else checked(content)


def checked(content: bytes) -> bytes:
    """The same, decoded once to see that it is whole."""
    with _pillow, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = accepted(content, "")
        if isinstance(found, BadImage):
            return _converted(content, found.reason)
    return found.encoded


def of_pixels(pixels: NDArray[np.uint8]) -> bytes:
    """PNG of pixels uint8 [height, width] or [height, width, 1 or 3].

    Raises:
        Unusable: they are no such pixels.
    """
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    if pixels.dtype != np.uint8 or pixels.ndim not in {2, 3} or channels not in KEPT_CHANNELS:
        raise Unusable(
            f"it is {pixels.dtype} {list(pixels.shape)}, expected uint8 [height, width, 1 or 3], 0 to 255"
        )
    _check_size(pixels.shape[1], pixels.shape[0])
    return png.encode(np.ascontiguousarray(pixels))


def of_picture(picture: PIL.Image.Image) -> bytes:
    """PNG of the pixels of Pillow's image as it is, of whatever mode.

    Raises:
        Unusable: it does not load, or its values have no known range.
    """
    _check_size(*picture.size)
    if picture.mode in {"F", "I"}:
        raise Unusable(f"it has samples of 32 bits (mode {picture.mode}), expected 8 or 16")
    with _readable():
        with _pillow:
            picture.load()
        return png.encode(decode.array(decode.plain(picture)))


def _kept(content: bytes) -> bool:
    """Whether a record would hold these very bytes, as far as can be seen without decoding pixels.

    Raises:
        Unusable: it is a PNG that is damaged, or has too many pixels.
    """
    if content.startswith(png.SIGNATURE):
        try:
            found = png_check.check(content, MOST_PIXELS)
        except (ValueError, struct.error) as error:
            raise Unusable(str(error)) from error
        return found.bits == 8 and found.colour in PNG_KEPT and not {b"tRNS", b"acTL"} & found.kinds
    if not content.startswith(header.JPEG_START) or not header.has_end(content):
        return False
    said = header.header(content)
    if said is None:
        return False
    _check_size(said.width, said.height)
    return said.channels in KEPT_CHANNELS


def _converted(content: bytes, reason: str) -> bytes:
    """A file of a further format as PNG; `reason` is told of one that is of none of them."""
    try:
        with _readable():
            opened = PIL.Image.open(io.BytesIO(content), formats=FURTHER)
    except PIL.UnidentifiedImageError:
        raise Unusable(reason) from None
    with opened:
        with _readable():
            pages = getattr(opened, "n_frames", 1)
        if pages > 1:
            raise Unusable(f"it has {pages} pages or frames, expected one image")
        return of_picture(opened)


@contextmanager
def _readable() -> Iterator[None]:
    """Lets what Pillow raises in the block be the reason; its readers raise almost anything."""
    try:
        yield
    except PIL.UnidentifiedImageError:
        raise
    except Exception as error:
        raise Unusable(f"it cannot be decoded: {str(error) or type(error).__name__}") from error


def _check_size(width: int, height: int) -> None:
    if not 0 < width * height <= MOST_PIXELS:
        raise Unusable(f"it has {width} x {height} pixels, expected 1 to {MOST_PIXELS}")
