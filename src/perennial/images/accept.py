"""Convert images of common formats to those that records hold.

    8-bit JPEG (also MPO), grey or RGB         kept byte for byte
    the same with an EXIF orientation          rotated upright, re-encoded with its own quantization tables
    8-bit PNG, grey or RGB                     kept byte for byte
    other JPEG, PNG, WebP, BMP, GIF            upright 8-bit grey or RGB, as PNG; transparency is dropped
    animations, other formats, damaged files   BadImage

TensorFlow's decoder ignores EXIF orientation, so it is applied here. As in TensorFlow, transparency is dropped,
and 16-bit samples keep their upper byte. The content determines the format of an image, never the file name.
"""

import io
import re
import warnings

import numpy as np
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from perennial.images import BadImage, Image, Refused, check_size, header, png
from perennial.images.decode import PILLOW_ERRORS, is_upright, plain, upright

DRAFT = 8  # libjpeg shrinks by 8 where it transforms only the first of each 64 coefficients

_JPEG, _GIF = b"\xff\xd8\xff", (b"GIF87a", b"GIF89a")


def accepted(content: bytes, filename: str) -> Image | BadImage:
    """Decode a file completely and convert it to an image for a record, or return the reason for rejection."""
    try:
        # Pillow warns about broken EXIF, which is ignored here.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _readable(_image(content, filename))
    except Refused as error:
        return BadImage(filename=filename, reason=str(error))
    except PILLOW_ERRORS as error:
        reason = re.sub(r" at 0x[0-9a-f]+", "", str(error)) or type(error).__name__
        return BadImage(filename=filename, reason=f"it cannot be decoded: {reason}")


def is_kept(content: bytes) -> bool:
    """Whether a record keeps an image file byte for byte; detects damage only in the header."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if content.startswith(png.SIGNATURE):
                return png.check(content).kept and is_upright(PngImageFile(io.BytesIO(content)))
            if content.startswith(_JPEG):
                image = JpegImageFile(io.BytesIO(content))
                return image.mode in {"L", "RGB"} and is_upright(image)
    except PILLOW_ERRORS:
        pass
    return False


def _readable(image: Image) -> Image:
    """Reject an image whose header the checks of records cannot read."""
    found = header.header(image.encoded)
    if found is None or (found.format, found.height, found.width) != (image.format, image.height, image.width):
        raise Refused("it is damaged: its header cannot be read")
    return image


def _image(content: bytes, filename: str) -> Image:
    if content.startswith(_JPEG):
        return _jpeg(content, filename)
    if content.startswith(png.SIGNATURE):
        return _png(content, filename)
    if content.startswith(_GIF):
        # Without this check, an animation cut after its first frame would look like a still image.
        if not content.rstrip(b"\0").endswith(b";"):
            raise Refused("it is incomplete: a GIF without an end")
        return _converted(GifImageFile(io.BytesIO(content)), filename)
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        check_size(*webp_size(content))
        return _converted(WebPImageFile(io.BytesIO(content)), filename)
    if content.startswith(b"BM"):
        return _converted(BmpImageFile(io.BytesIO(content)), filename)
    raise Refused(
        f"not a JPEG, PNG, WebP, BMP or GIF: it starts with {content[:8]!r}" if content else "it is empty"
    )


def _jpeg(content: bytes, filename: str) -> Image:
    header.require_end(content)
    image = JpegImageFile(io.BytesIO(content))
    check_size(*image.size)
    if image.mode not in {"L", "RGB"}:
        return _converted(image, filename)
    if not is_upright(image):
        return _upright_jpeg(image, filename)
    width, height = image.size
    # The complete file is still decoded down to coefficients, where damage shows.
    image.draft("L", (max(1, width // DRAFT), max(1, height // DRAFT)))
    image.load()
    return Image(encoded=content, format="jpg", height=height, width=width, filename=filename)


def _upright_jpeg(image: JpegImageFile, filename: str) -> Image:
    """Rotate a photograph and encode it as JPEG of similar file size; a PNG would be ten times as large."""
    image.load()
    # Each table is a row-major list of 64 values; a rotation by 90 degrees swaps rows and columns.
    tables = [np.reshape(table, (8, 8)) for table in image.quantization.values()]
    rotated = upright(image)
    if rotated.size != image.size:
        tables = [table.T for table in tables]
    stream = io.BytesIO()
    rotated.save(stream, "JPEG", qtables=[table.ravel().tolist() for table in tables], subsampling=0, exif=b"")
    width, height = rotated.size
    return Image(encoded=stream.getvalue(), format="jpg", height=height, width=width, filename=filename)


def _png(content: bytes, filename: str) -> Image:
    found = png.check(content)
    image = PngImageFile(io.BytesIO(content))
    if not found.kept or not is_upright(image):
        return _converted(image, filename)
    image.load()
    return Image(encoded=content, format="png", height=found.height, width=found.width, filename=filename)


def webp_size(content: bytes) -> tuple[int, int]:
    """Read width and height from the header, before a decoder allocates memory for them (RFC 9649)."""
    kind, bits = content[12:16], int.from_bytes(content[21:25], "little")
    if kind == b"VP8X":
        return 1 + int.from_bytes(content[24:27], "little"), 1 + int.from_bytes(content[27:30], "little")
    if kind == b"VP8L":
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = (int.from_bytes(content[start : start + 2], "little") & 0x3FFF for start in (26, 28))
    return width, height


def _converted(image: ImageFile, filename: str) -> Image:
    """Convert the image to PNG."""
    check_size(*image.size)
    if getattr(image, "is_animated", False):
        raise Refused("it is an animation")
    image.load()
    pixels = np.asarray(plain(upright(image)))
    height, width = pixels.shape[:2]
    return Image(encoded=png.encode(pixels), format="png", height=height, width=width, filename=filename)
