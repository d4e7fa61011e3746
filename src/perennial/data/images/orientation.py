"""Find the orientation of a photograph in its metadata, and turn it upright.

Pillow would copy every value of an EXIF block, up to 65,535 times the whole block.
Source: TIFF 6.0, section 2; CIPA DC-008 (EXIF); Adobe XMP specification, part 2.
"""

import re
import struct

import numpy as np
import PIL.Image

EXIF, XMP = b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0"  # beginnings of a JPEG's APP1 segments
NAMES = re.compile(b"|".join(map(re.escape, (EXIF, XMP))))
UPRIGHT = 1
TAG = 0x0112
ENTRY = 12  # bytes
TYPES = {3: "H", 4: "I"}  # of a TIFF value: SHORT and LONG
IN_XMP = re.compile(rb"tiff:Orientation(?:=\"|>)([0-9])")
TRANSPOSED = {
    2: PIL.Image.Transpose.FLIP_LEFT_RIGHT,
    3: PIL.Image.Transpose.ROTATE_180,
    4: PIL.Image.Transpose.FLIP_TOP_BOTTOM,
    5: PIL.Image.Transpose.TRANSPOSE,
    6: PIL.Image.Transpose.ROTATE_270,
    7: PIL.Image.Transpose.TRANSVERSE,
    8: PIL.Image.Transpose.ROTATE_90,
}


def of(exif: bytes | None, xmp: bytes | None) -> int:
    """The orientation, 1 to 8, by EXIF, else by XMP; broken or missing metadata mean upright."""
    found = _in_exif(exif.removeprefix(EXIF)) if exif else None
    if found is None and xmp and (match := IN_XMP.search(xmp)):
        found = int(match[1])
    return found if found in TRANSPOSED else UPRIGHT


def of_image(image: PIL.Image.Image) -> int:
    """The orientation of an opened image, by the metadata blocks that Pillow found."""
    exif, xmp = image.info.get("exif"), image.info.get("xmp")
    return of(exif if isinstance(exif, bytes) else None, xmp if isinstance(xmp, bytes) else None)


def applied(image: PIL.Image.Image, orientation: int) -> PIL.Image.Image:
    """Turn an image upright, as image viewers do."""
    return image.transpose(TRANSPOSED[orientation]) if orientation in TRANSPOSED else image


def _in_exif(block: bytes) -> int | None:
    """The value in the first directory of a TIFF block; None if there is no such entry."""
    order = {b"II": "<", b"MM": ">"}.get(block[:2])
    if order is None or len(block) < 8:
        return None
    (start,) = struct.unpack_from(f"{order}I", block, 4)
    if start + 2 > len(block):
        return None
    (count,) = struct.unpack_from(f"{order}H", block, start)
    count = min(count, (len(block) - start - 2) // ENTRY)
    entries = np.frombuffer(block, np.uint8, count * ENTRY, start + 2).reshape(count, ENTRY)
    tags = np.ascontiguousarray(entries[:, :2]).view(f"{order}u2")[:, 0]
    for row in np.flatnonzero(tags == TAG)[-1:]:
        kind, number = struct.unpack_from(f"{order}HI", entries[row].tobytes(), 2)
        if kind in TYPES and number == 1:
            return int(struct.unpack_from(f"{order}{TYPES[kind]}", entries[row].tobytes(), 8)[0])
        return UPRIGHT
    return None
