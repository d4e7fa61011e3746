"""Read the headers of images; decode images to pixels and check every byte of the file.

Transparent pixels: drop the alpha channel, as TensorFlow does, or composite on white, as web pages do.
"""

import io
import re
import struct
import zlib
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import PIL.Image
from numpy.typing import NDArray
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile

from perennial.base.choices import Transparency
from perennial.data.images import Refused, jpeg, png, png_file

# Pillow raises almost any type for a damaged file. MemoryError is missing: it says nothing about the file.
PILLOW_ERRORS = (
    OSError, SyntaxError, ValueError, TypeError, ArithmeticError, LookupError, EOFError, AttributeError,
    struct.error, zlib.error, RuntimeError, AssertionError, PIL.Image.DecompressionBombError,
)  # fmt: skip
DRAFT = 8  # libjpeg shrinks by 8 where it transforms only the first of each 64 coefficients
WHITE = (255, 255, 255, 255)
KEY = "transparency"  # Pillow's name for the colour that is transparent, or the alpha of palette entries
GRAYS = {"1", "L", "LA", "La", "I;16", "I;16B", "I;16L", "I;16N"}
# A picture is lost with its alpha channel if its colours vary by at most FLAT levels and its alpha by CONTRAST.
FLAT, CONTRAST = 8, 64
PNG_START = png.SIGNATURE + b"\0\0\0\rIHDR"
PNG_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}  # by colour type; a palette stands for RGB
JPEG_CHANNELS = (1, 3, 4)
Pixels = NDArray[np.uint8]  # [height, width, 1 or 3]


class Header(NamedTuple):
    """Format, size in pixels and channels of an image file."""

    format: str  # png or jpg
    height: int
    width: int
    channels: int

    @property
    def size(self) -> tuple[int, int, int]:
        """Height, width and channels after decoding, which drops alpha and converts CMYK to RGB."""
        return self.height, self.width, 1 if self.channels < 3 else 3


def header(encoded: bytes) -> Header | None:
    """Read the header of a PNG or JPEG file; None if it is neither or its header is incomplete."""
    if encoded.startswith(jpeg.START):
        return _jpeg_header(encoded)
    return _png_header(encoded[:26])


@lru_cache(maxsize=4096)
def _png_header(start: bytes) -> Header | None:
    if len(start) != 26 or not start.startswith(PNG_START):
        return None
    width, height, _, colour = struct.unpack_from(">IIBB", start, len(PNG_START))
    return Header("png", height, width, PNG_CHANNELS[colour]) if colour in PNG_CHANNELS else None


def _jpeg_header(encoded: bytes) -> Header | None:
    with suppress(Refused):
        for segment in jpeg.segments(encoded):
            if segment.marker in jpeg.FRAMES:
                if segment.body + 6 > len(encoded):
                    return None
                height, width, channels = struct.unpack_from(">HHB", encoded, segment.body + 1)
                return Header("jpg", height, width, channels) if channels in JPEG_CHANNELS else None
    return None


def decoded(encoded: bytes) -> Pixels | PIL.Image.Image:
    """Decode a PNG or JPEG file, grey or RGB, to an array, or to Pillow's image if Pillow decoded it."""
    pixels = png.stored_pixels(encoded)
    if pixels is not None:
        return pixels
    try:
        image = opened(encoded)
        image.load()
    except PILLOW_ERRORS as error:
        reason = re.sub(r"<.*? at 0x[0-9a-f]+>", "it", str(error)) or type(error).__name__
        raise ValueError(reason) from error
    return plain(image)


def opened(encoded: bytes) -> PIL.Image.Image:
    """Open a PNG or JPEG file that TensorFlow decodes, without its metadata."""
    if encoded.startswith(png.SIGNATURE):
        found = png_file.check(encoded)
        if not found.window:
            raise Refused("its compressed data need a larger window than their header says (zlib, RFC 1950)")
        return PngImageFile(io.BytesIO(found.for_decoder(encoded)))
    if not encoded.startswith(jpeg.START):
        raise Refused("it is neither PNG nor JPEG")
    return JpegImageFile(io.BytesIO(photograph(encoded).for_decoder(encoded)))


def photograph(encoded: bytes) -> jpeg.Jpeg:
    """Read the structure of a JPEG file that TensorFlow decodes; raises Refused like `opened`."""
    found = jpeg.read(encoded)
    if not found.trained_on:
        raise Refused(f"it is a JPEG of a kind that TensorFlow does not decode (frame {found.frame:#x})")
    return found


def check_coefficients(encoded: bytes, found: jpeg.Jpeg) -> None:
    """Decode a JPEG file down to its coefficients, where damage shows."""
    content, size = found.for_decoder(encoded), (-(-found.width // DRAFT), -(-found.height // DRAFT))
    mode, order = ("CMYK", "CMYK;I") if len(found.factors) == len("CMYK") else ("L", "L")
    try:  # without Pillow's own reading of the segments, which takes a tenth of the time
        PIL.Image.frombytes(mode, size, content, "jpeg", order, "", DRAFT, 0)
    except ValueError:
        image = JpegImageFile(io.BytesIO(content))
        image.draft(mode, size)
        image.load()  # says what is wrong


def plain(image: PIL.Image.Image, transparency: Transparency = "drop") -> PIL.Image.Image:
    """Convert a loaded image to 8-bit grey or RGB, like TensorFlow: upper byte of 16-bit samples, no alpha."""
    if transparency == "white" and image.has_transparency_data:
        colours = _with_alpha(image)
        white = PIL.Image.new("RGBA", colours.size, WHITE)
        return PIL.Image.alpha_composite(white, colours).convert("L" if image.mode in GRAYS else "RGB")
    if image.mode in {"L", "RGB"}:
        return image
    if image.mode.startswith("I;16"):
        return PIL.Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    # Pillow warns where a palette with alpha becomes RGB at once; the colours are the same.
    colours = image.convert("RGBA") if image.mode == "P" and KEY in image.info else image
    return colours.convert("L" if image.mode in {"1", "LA", "La"} else "RGB")


def array(image: Pixels | PIL.Image.Image) -> Pixels:
    """Return the pixels, uint8 [height, width, channels]."""
    if isinstance(image, np.ndarray):
        return image
    pixels = np.asarray(image)
    return pixels if pixels.ndim == 3 else pixels[..., None]


def holds_the_picture(image: PIL.Image.Image, pixels: NDArray[np.uint8]) -> bool:
    """Whether the pixels of an image show nothing without its alpha channel, which shows something."""
    if not image.has_transparency_data or int(np.ptp(pixels, axis=(0, 1)).max()) > FLAT:
        return False
    least, most = _with_alpha(image).getchannel("A").getextrema()
    return most - least >= CONTRAST  # type: ignore[operator]  # one band has two numbers


def _with_alpha(image: PIL.Image.Image) -> PIL.Image.Image:
    """Convert an image of any mode to RGBA."""
    if image.mode == "1" or image.mode.startswith("I;16"):
        values, key = np.asarray(image).astype(np.uint16), image.info[KEY]
        if image.mode == "1":
            values, key = values * 255, 255 if key else 0
        upper = (values >> 8 if image.mode != "1" else values).astype(np.uint8)
        alpha = np.where(values == key, 0, 255).astype(np.uint8)
        return PIL.Image.fromarray(np.stack([upper, upper, upper, alpha], axis=-1), "RGBA")
    return image.convert("RGBA")
