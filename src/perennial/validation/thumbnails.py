"""Images as parts of a page: a data URI each, equal images as equal text."""

import base64
import io
from dataclasses import dataclass

import PIL.Image

from perennial.images import Image
from perennial.images.decode import Pixels, decoded
from perennial.images.header import header

SIDE = 128  # pixels that a thumbnail has at most
SHOWN, SHOWN_SMALL = 112, 84  # pixels on the page: at most, and about, where a small image is enlarged
SMALL_BYTES = 1 << 15  # up to here an image is embedded as it is
QUALITY = 80  # of the JPEG that a thumbnail is; a PNG would be ten times as large
MIME = {"png": "image/png", "jpg": "image/jpeg"}


@dataclass(frozen=True)
class Thumbnail:
    """What stands on the page for an image; `uri` is None where the image does not decode."""

    uri: str | None
    width: int  # pixels on the page
    height: int
    pixelated: bool = False  # whether it is shown enlarged, its pixels as squares


def thumbnail(image: Image) -> Thumbnail:
    """An image as it is where it is small, else at most 128 pixels a side; a placeholder where broken."""
    try:
        pixels = decoded(image.encoded)
    except ValueError:
        return Thumbnail(None, SHOWN_SMALL, SHOWN_SMALL)
    found = header(image.encoded)
    height, width = pixels.shape[:2] if not isinstance(pixels, PIL.Image.Image) else pixels.size[::-1]
    if found and max(height, width) <= SIDE and len(image.encoded) <= SMALL_BYTES:
        factor = max(round(SHOWN_SMALL / max(height, width)), 1)
        return Thumbnail(_uri(MIME[found.format], image.encoded), factor * width, factor * height, factor > 1)
    small = _reduced(pixels)
    stream = io.BytesIO()
    small.save(stream, "JPEG", quality=QUALITY)
    width, height = (max(side * SHOWN // SIDE, 1) for side in small.size)
    return Thumbnail(_uri("image/jpeg", stream.getvalue()), width, height)


def _reduced(pixels: Pixels | PIL.Image.Image) -> PIL.Image.Image:
    """The image at most 128 pixels a side, its sides in proportion."""
    if not isinstance(pixels, PIL.Image.Image):
        pixels = PIL.Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[..., 0])
    scale = min(SIDE / max(pixels.size), 1)
    size = (max(round(pixels.width * scale), 1), max(round(pixels.height * scale), 1))
    return pixels.resize(size, PIL.Image.Resampling.BOX)


def _uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
