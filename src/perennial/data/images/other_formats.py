"""Formats that no record holds: sizes of BMP and WebP from their headers, and HEIC and AVIF opened.

BMP and WebP are read in linear time, before a decoder allocates memory. HEIC, in which phones save photos,
and AVIF give the primary image, upright, without metadata. Neither of the two has checksums: a file that was
cut off is noticed, other changed bytes often are not. HEIC needs the extra `heic`: hostile images have used
faults of its decoder, and its wheel holds GPL code. Source: ISO/IEC 14496-12 (boxes), ISO/IEC 23008-12 (HEIF).
"""

import io
import re
import struct

import PIL.Image

from perennial.data.images import Refused

RUN_LENGTH = (1, 2)  # compression methods of a BMP, which Pillow decodes in Python
MOST_RUN_LENGTH_PIXELS = 1_000_000
INFO_HEADER = 40  # bytes; the older header of 12 bytes has no compression
TYPE = b"ftyp"  # the first box of the container: its length, this, a brand
HEIC, AVIF = {b"heic", b"heix", b"heim", b"heis"}, {b"avif"}
EITHER = b"mif1"  # then further brands say which
SEQUENCES = {b"hevc", b"hevx", b"hevm", b"hevs", b"msf1", b"avis"}
MOST_BOXES, MOST_BRANDS = 100, 256  # on the top level; bytes of the first box that are read
METADATA = re.compile(rb"\0\0(?:Exif|mime)")  # types of items; Pillow takes quadratic time for an EXIF block


def bmp_size(content: bytes) -> tuple[int, int]:
    """Read width and height of a BMP from its header."""
    try:
        (header,) = struct.unpack_from("<I", content, 14)
        width, height = struct.unpack_from("<HH" if header < INFO_HEADER else "<ii", content, 18)
        (compression,) = (0,) if header < INFO_HEADER else struct.unpack_from("<I", content, 30)
    except struct.error:
        raise Refused("it is incomplete: a BMP without a header") from None
    width, height = abs(width), abs(height)
    pixels = width * height
    if compression in RUN_LENGTH and (pixels > MOST_RUN_LENGTH_PIXELS or len(content) > 4 * pixels + 2**16):
        raise Refused(
            f"it is a run-length encoded BMP of {width} x {height} pixels and {len(content)} bytes, expected "
            f"at most {MOST_RUN_LENGTH_PIXELS} pixels of 4 bytes"
        )
    return width, height


def webp_size(content: bytes) -> tuple[int, int]:
    """Read width and height of a WebP from its header (RFC 9649)."""
    kind, bits = content[12:16], int.from_bytes(content[21:25], "little")
    if kind == b"VP8X":
        return 1 + int.from_bytes(content[24:27], "little"), 1 + int.from_bytes(content[27:30], "little")
    if kind == b"VP8L":
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = (int.from_bytes(content[start : start + 2], "little") & 0x3FFF for start in (26, 28))
    return width, height


def format_name(content: bytes) -> str | None:
    """Which of the two formats a file has, if it has one of them."""
    brand, others = content[8:12], content[16 : min(int.from_bytes(content[:4]), MOST_BRANDS)]
    brands = {others[at : at + 4] for at in range(0, len(others), 4)} if brand == EITHER else {brand}
    if content[4:8] != TYPE or not brands & (HEIC | AVIF):
        return None
    return "HEIC" if brands & HEIC else "AVIF"


def refusal(content: bytes) -> str | None:
    """Why another file of the same container is not read."""
    others = dict.fromkeys(SEQUENCES, "an animation") | {b"crx ": "a raw photo (CR3); export it as JPEG"}
    video = f"a video ({content[8:12].decode('latin-1').strip()}), such as that of a Live Photo; remove it"
    return f"it is {others.get(content[8:12], video)}" if content[4:8] == TYPE else None


def opened(content: bytes) -> PIL.Image.Image:
    """Open the primary image; it is decoded when it is loaded."""
    plain = io.BytesIO(_without_metadata(content))
    try:  # few data sets have such files, and the import takes 0.1 s
        if format_name(content) == "AVIF":
            from PIL.AvifImagePlugin import AvifImageFile  # noqa: PLC0415

            return AvifImageFile(plain)
        from pillow_heif import HeifImageFile  # noqa: PLC0415

        return HeifImageFile(plain)  # type: ignore[no-untyped-call]
    except ImportError as error:  # of an extra
        raise Refused("it is HEIC, and no decoder is installed: `perennial add heic` installs one") from error
    except (SyntaxError, ValueError, RuntimeError, EOFError) as error:  # the decoders raise all of them
        raise Refused(f"it is incomplete or damaged: {str(error).strip()}") from error


def _without_metadata(content: bytes) -> bytes:
    """The file with other types of the items that hold metadata, so that no decoder reads them."""
    at = 0
    for _ in range(MOST_BOXES):
        length = int.from_bytes(content[at : at + 4])
        if content[at + 4 : at + 8] == b"meta":
            meta = METADATA.sub(b"\0\0skip", content[at : at + length])
            return b"".join((content[:at], meta, content[at + length :]))
        at += max(length, len(TYPE) * 2)
    raise Refused("it is incomplete or damaged: its description of the image is missing")
