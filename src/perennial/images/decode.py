"""Decode images to pixels and check every byte of the file."""

import io
import re
import struct
import zlib

import numpy as np
import PIL.Image
import PIL.ImageOps
from numpy.typing import NDArray

from perennial.images import check_size, header, png

DECODERS = ("PNG", "JPEG")  # Pillow's decoders for the formats that a record may hold
ORIENTATION = 0x0112  # EXIF tag
# Pillow raises almost any type for a damaged file. MemoryError is missing: it says nothing about the file.
PILLOW_ERRORS = (
    OSError, SyntaxError, ValueError, TypeError, ArithmeticError, LookupError, EOFError, AttributeError,
    struct.error, zlib.error, RuntimeError, AssertionError, PIL.Image.DecompressionBombError,
)  # fmt: skip
Pixels = NDArray[np.uint8]  # [height, width, 1 or 3]


def decoded(encoded: bytes) -> Pixels | PIL.Image.Image:
    """Decode a PNG or JPEG file, grey or RGB, to an array, or to Pillow's image if Pillow decoded it.

    Raises:
        ValueError: it cannot be decoded.
    """
    pixels = png.stored_pixels(encoded)
    if pixels is not None:
        return pixels
    if encoded.startswith(png.SIGNATURE):
        png.check(encoded)
    elif encoded.startswith(header.JPEG_START):
        header.require_end(encoded)
    try:
        opened = PIL.Image.open(io.BytesIO(encoded), formats=DECODERS)
        check_size(*opened.size)
        opened.load()
    except PIL.UnidentifiedImageError:  # its message contains a memory address
        raise ValueError("it is neither PNG nor JPEG") from None
    except PILLOW_ERRORS as error:
        reason = re.sub(r"<.*? at 0x[0-9a-f]+>", "it", str(error)) or type(error).__name__
        raise ValueError(reason) from error
    return plain(opened)


def is_upright(image: PIL.Image.Image) -> bool:
    """Whether an image has no EXIF orientation other than the normal one; broken EXIF counts as none."""
    try:
        return image.getexif().get(ORIENTATION, 1) not in range(2, 9)
    except Exception:  # noqa: BLE001  Pillow's EXIF reader raises almost any type
        return True


def upright(image: PIL.Image.Image) -> PIL.Image.Image:
    """Apply EXIF orientation, as image viewers do."""
    return image if is_upright(image) else PIL.ImageOps.exif_transpose(image)


def plain(image: PIL.Image.Image) -> PIL.Image.Image:
    """Convert an image to 8-bit grey or RGB like TensorFlow: without alpha, upper byte of 16-bit samples."""
    if image.mode in {"L", "RGB"}:
        return image
    if image.mode.startswith("I;16"):
        return PIL.Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image.convert("L" if image.mode in {"1", "LA", "La"} else "RGB")


def array(image: Pixels | PIL.Image.Image) -> Pixels:
    """Return the pixels, uint8 [height, width, channels]."""
    if isinstance(image, np.ndarray):
        return image
    pixels = np.asarray(image)
    return pixels if pixels.ndim == 3 else pixels[..., None]
