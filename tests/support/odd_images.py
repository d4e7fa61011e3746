"""Image files in parts."""

import io
import struct
import zlib
from typing import Any

import numpy as np
import PIL.Image
import pillow_heif

from perennial.data.images import png

pillow_heif.register_heif_opener()
HEIGHT, WIDTH = 24, 36
ROWS, COLUMNS = np.mgrid[:HEIGHT, :WIDTH]
COLOURS = np.stack([ROWS * 10, COLUMNS * 7, (ROWS * COLUMNS) % 251], axis=-1).astype(np.uint8)
PHOTO = PIL.Image.fromarray(COLOURS)


def saved(image: PIL.Image.Image, kind: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.copy().save(stream, kind, **options)
    return stream.getvalue()


def chunks_of(content: bytes) -> list[tuple[bytes, bytes]]:
    """The chunks of a valid PNG, as pairs of kind and content."""
    found, at = [], len(png.SIGNATURE)
    while at < len(content):
        length, kind = struct.unpack_from(">I4s", content, at)
        found.append((kind, content[at + 8 : at + 8 + length]))
        at += 12 + length
    return found


def png_of(chunks: list[tuple[bytes, bytes]]) -> bytes:
    """A PNG file of chunks with valid checksums."""
    return png.SIGNATURE + b"".join(png.chunk(kind, body) for kind, body in chunks)


def png_without_pixels(width: int, height: int) -> bytes:
    """A PNG that says it has so many pixels."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return png_of([(b"IHDR", head), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")])
