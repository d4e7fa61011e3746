"""What of the images that people have goes into a record, and what does not.

    JPEG (also MPO) of 8 bits, grey or RGB     kept byte for byte; EXIF orientation is left alone
    PNG of 8 bits, grey or RGB                 kept byte for byte
    other JPEG, PNG, WebP, BMP, GIF            8-bit grey or RGB, as PNG; transparency is dropped
    animations, other formats, damaged files   BadImage

TensorFlow's decoder leaves EXIF orientation alone and drops transparency, too; the bytes of 16-bit samples
that it keeps are the upper ones. The content says what an image is, never the name of its file.
"""

import io
import re
import struct
import warnings
import zlib

import numpy as np
from numpy.typing import NDArray
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.Image import DecompressionBombError
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from perennial.images import BadImage, Image, png

MOST_PIXELS = 80_000_000  # fewer than Pillow warns of; a record of them holds 240 MB
PNG_CRITICAL = {b"IHDR", b"PLTE", b"IDAT", b"IEND"}
PNG_FILTERS = 4
PNG_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of a pixel, by the colour type in the header
PNG_KEPT = {0, 2}  # grey and RGB
# Column and row that each pass of an interlaced PNG begins with, and how far on the next ones are.
ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
DRAFT = 8  # libjpeg shrinks by 8 where it transforms only the first of each 64 coefficients

_JPEG, _GIF = b"\xff\xd8\xff", (b"GIF87a", b"GIF89a")
_WHAT_PILLOW_RAISES = (
    OSError, SyntaxError, ValueError, TypeError, ArithmeticError, LookupError, EOFError, AttributeError,
    struct.error, zlib.error, MemoryError, RuntimeError, AssertionError, DecompressionBombError,
)  # fmt: skip


class _Refused(Exception):
    """Why a file is not accepted."""


def accepted(content: bytes, filename: str) -> Image | BadImage:
    """The image as a record holds it, once its content has been decoded, or why there is none."""
    try:
        # Pillow warns of broken EXIF, which nothing here reads.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _image(content, filename)
    except _Refused as error:
        return BadImage(filename=filename, reason=str(error))
    except _WHAT_PILLOW_RAISES as error:
        told = re.sub(r" at 0x[0-9a-f]+", "", str(error)) or type(error).__name__
        return BadImage(filename=filename, reason=f"it cannot be decoded: {told}")


def _image(content: bytes, filename: str) -> Image:
    if content.startswith(_JPEG):
        return _jpeg(content, filename)
    if content.startswith(png.SIGNATURE):
        return _png(content, filename)
    if content.startswith(_GIF):
        # Cut after its first frame, an animation looks like a still but for this byte.
        if not content.rstrip(b"\0").endswith(b";"):
            raise _Refused("it is not whole: a GIF without an end")
        return _converted(GifImageFile(io.BytesIO(content)), filename)
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        _check_size(*_webp_size(content))
        return _converted(WebPImageFile(io.BytesIO(content)), filename)
    if content.startswith(b"BM"):
        return _converted(BmpImageFile(io.BytesIO(content)), filename)
    raise _Refused(
        f"no JPEG, PNG, WebP, BMP or GIF: it starts with {content[:8]!r}" if content else "it is empty"
    )


def _jpeg(content: bytes, filename: str) -> Image:
    image = JpegImageFile(io.BytesIO(content))
    _check_size(*image.size)
    if image.mode not in {"L", "RGB"}:
        return _converted(image, filename)
    width, height = image.size
    # All of the file is still decoded down to coefficients, which is where damage shows.
    image.draft("L", (max(1, width // DRAFT), max(1, height // DRAFT)))
    image.load()
    return Image(encoded=content, format="jpg", height=height, width=width, filename=filename)


def _png(content: bytes, filename: str) -> Image:
    chunks = _png_chunks(content)
    kinds = [kind for kind, _ in chunks]
    _check_kinds(kinds)
    width, height, bits, colour, *methods, interlaced = struct.unpack(">IIBBBBB", chunks[0][1])
    _check_size(width, height)
    if methods != [0, 0] or interlaced > 1:
        raise _Refused(f"it is damaged: it has the methods {[*methods, interlaced]}")
    stream = b"".join(body for kind, body in chunks if kind == b"IDAT")
    _check_lines(stream, width, height, bits * PNG_SAMPLES.get(colour, 1), interlaced)
    image = PngImageFile(io.BytesIO(content))
    if bits != 8 or colour not in PNG_KEPT or {b"tRNS", b"acTL"}.intersection(kinds):
        return _converted(image, filename)
    if interlaced:
        image.load()
    return Image(encoded=content, format="png", height=height, width=width, filename=filename)


def _png_chunks(content: bytes) -> list[tuple[bytes, memoryview]]:
    """Kind and body of the chunks up to IEND. Pillow looks at some of the checksums only."""
    chunks: list[tuple[bytes, memoryview]] = []
    position, whole = len(png.SIGNATURE), memoryview(content)
    while not chunks or chunks[-1][0] != b"IEND":
        if len(content) < position + 12:
            raise _Refused("it is not whole: a PNG without an end")
        length, kind = struct.unpack_from(">I4s", content, position)
        body, position = whole[position + 8 : position + 8 + length], position + 12 + length
        if position > len(content):
            raise _Refused(f"it is not whole: it ends within the chunk {kind!r}")
        if struct.unpack_from(">I", content, position - 4)[0] != zlib.crc32(body, zlib.crc32(kind)):
            raise _Refused(f"it is damaged: the checksum of the chunk {kind!r} is wrong")
        if not chunks and (kind, length) != (b"IHDR", 13):
            raise _Refused(f"it is damaged: its first chunk is {kind!r} of {length} bytes")
        if kind == b"acTL" and bytes(body[:4]) != b"\0\0\0\1":
            raise _Refused("it is an animation")
        chunks.append((kind, body))
    return chunks


def _check_kinds(kinds: list[bytes]) -> None:
    """The chunks of pixels follow each other, and none is of a kind that a reader would have to know."""
    if unknown := [kind for kind in kinds if kind[:1].isupper() and kind not in PNG_CRITICAL]:
        raise _Refused(f"it is damaged: the chunk {unknown[0]!r} is unknown")
    count = kinds.count(b"IDAT")
    if not count or kinds[kinds.index(b"IDAT") :][:count] != [b"IDAT"] * count:
        raise _Refused("it is damaged: its chunks of pixels do not follow each other")


def _check_lines(stream: bytes, width: int, height: int, bits_per_pixel: int, interlaced: int) -> None:
    """All lines are there (Pillow takes missing ones for black), and each has a filter that is known.

    Nothing else can be wrong with the pixels of a PNG, so that they need not be made.
    """
    passes = ADAM7 if interlaced else ((0, 0, 1, 1),)
    sizes = [(-(-(width - x) // dx), -(-(height - y) // dy)) for x, y, dx, dy in passes]
    line_bytes = [1 + -(-wide * bits_per_pixel // 8) for wide, _ in sizes]
    expected = sum(high * line for (wide, high), line in zip(sizes, line_bytes, strict=True) if wide > 0)
    machine = zlib.decompressobj()
    lines = machine.decompress(stream, expected + 1)  # no more: it may be a bomb
    if len(lines) != expected or not machine.eof:
        raise _Refused(f"it is damaged: its lines have {len(lines)} bytes, expected {expected}")
    if not interlaced and max(lines[:: line_bytes[0]]) > PNG_FILTERS:
        raise _Refused(f"it is damaged: a line has the filter {max(lines[:: line_bytes[0]])}")


def _webp_size(content: bytes) -> tuple[int, int]:
    """Width and height in the header, to be looked at before a decoder makes room for them (RFC 9649)."""
    kind, bits = content[12:16], int.from_bytes(content[21:25], "little")
    if kind == b"VP8X":
        return 1 + int.from_bytes(content[24:27], "little"), 1 + int.from_bytes(content[27:30], "little")
    if kind == b"VP8L":
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = (int.from_bytes(content[start : start + 2], "little") & 0x3FFF for start in (26, 28))
    return width, height


def _check_size(width: int, height: int) -> None:
    if not 0 < width * height <= MOST_PIXELS:
        raise _Refused(f"it has {width} x {height} pixels, expected 1 to {MOST_PIXELS}")


def _converted(image: ImageFile, filename: str) -> Image:
    """The image as PNG."""
    _check_size(*image.size)
    if getattr(image, "is_animated", False):
        raise _Refused("it is an animation")
    pixels = _pixels(image)
    height, width = pixels.shape[:2]
    return Image(encoded=png.encode(pixels), format="png", height=height, width=width, filename=filename)


def _pixels(image: ImageFile) -> NDArray[np.uint8]:
    """Pixels uint8 [height, width], or [height, width, 3] where there are colours."""
    image.load()
    if image.mode.startswith("I"):  # 16 bits of grey
        return (np.asarray(image) >> 8).astype(np.uint8)
    return np.asarray(image.convert("L" if image.mode in {"1", "L", "LA"} else "RGB"))
