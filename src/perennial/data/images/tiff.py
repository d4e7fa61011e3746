"""Check TIFF files of any origin in linear time, and prepare them for a decoder.

Source: TIFF 6.0 (Adobe), sections 2 to 8, 14 and 15.
"""

import struct

import numpy as np
from numpy.typing import NDArray

from perennial.data.images import Refused, check_size, orientation

STARTS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # the latter of BigTIFF
ENTRY = 12  # bytes
WHOLE = {1: "u1", 3: "u2", 4: "u4"}  # types of whole numbers
KIND, WIDTH, HEIGHT, BITS, COMPRESSION, COLOURS, STRIPS, SAMPLES = 254, 256, 257, 258, 259, 262, 273, 277
ROWS, STRIP_BYTES, PLANES, TILE_WIDTH, TILE_HEIGHT, TILES, TILE_BYTES = 278, 279, 284, 322, 323, 324, 325
FILL_ORDER, PREDICTOR, PALETTE, EXTRA, NUMBERS, DNG = 266, 317, 320, 338, 339, 50706
NEEDED = {
    WIDTH, HEIGHT, BITS, COMPRESSION, COLOURS, FILL_ORDER, STRIPS, SAMPLES, ROWS, STRIP_BYTES, PLANES,
    PREDICTOR, PALETTE, TILE_WIDTH, TILE_HEIGHT, TILES, TILE_BYTES, EXTRA, NUMBERS,
}  # fmt: skip
NOT_A_PAGE = 0b101  # bits of KIND: a smaller version of another image, a mask
UNCOMPRESSED, SEPARATE, UNSIGNED = 1, 2, 1  # values of COMPRESSION, PLANES and NUMBERS
COMPRESSIONS = {UNCOMPRESSED, 5, 8, 32773, 32946}  # LZW, Deflate, PackBits: missing bytes are noticed
# Bits of a sample where 0 is white, 0 is black, RGB, palette, CMYK.
KNOWN = {0: {1, 8}, 1: {1, 8, 16}, 2: {8, 16}, 3: {1, 2, 4, 8}, 5: {8, 16}}
MOST_PAGES, MOST_SAMPLES = 16, 8
SAVE = "save it as PNG or JPEG"
RAW = "a raw photo of a camera, such as DNG, NEF or ARW; export it as JPEG"
CANON = b"CR\2"  # in a CR2, from byte 8


def check(content: bytes) -> tuple[int, int, int, bytes]:
    """Check the only page and its pixels; return width, height, orientation, and the file for a decoder."""
    if content.startswith(STARTS[2:]):
        raise Refused(f"it is a BigTIFF; {SAVE}")
    try:
        pages = _pages(content)
        if pages[0].number(KIND) & NOT_A_PAGE or DNG in pages[0].entries or content[8:11] == CANON:
            raise Refused(f"it is {RAW}")
        if sum(not page.number(KIND) & NOT_A_PAGE for page in pages) > 1:
            raise Refused("it has several pages; save the one that is meant")
        width, height = pages[0].number(WIDTH), pages[0].number(HEIGHT)
        check_size(width, height)
        _check_kind(pages[0])
        _check_parts(pages[0], width, height, len(content))
    except (struct.error, OverflowError) as error:
        raise Refused("it is incomplete: its directory leads out of the file") from error
    return width, height, orientation.of(content, None), pages[0].alone()


class _Page:
    """A directory: the fields of an image."""

    def __init__(self, content: bytes, order: str, at: int) -> None:
        self._content, self._order = content, order
        (count,) = struct.unpack_from(f"{order}H", content, at)
        (self.next,) = struct.unpack_from(f"{order}I", content, at + 2 + ENTRY * count)
        rows = np.frombuffer(content, np.uint8, ENTRY * count, at + 2).reshape(count, ENTRY)
        tags = np.ascontiguousarray(rows[:, :2]).view(f"{order}u2")[:, 0]
        found = np.flatnonzero(np.isin(tags, [*NEEDED, KIND, DNG]))
        self.entries = {int(tags[row]): at + 2 + ENTRY * int(row) for row in found}  # where each is

    def values(self, tag: int, most: int | None = None) -> NDArray[np.int64]:
        """The whole numbers of a field; none if the page does not have it."""
        at = self.entries.get(tag)
        if at is None:
            return np.empty(0, np.int64)
        kind, count = struct.unpack_from(f"{self._order}HI", self._content, at + 2)
        form = np.dtype(f"{self._order}{WHOLE.get(kind, 'u4')}")
        start = at + 8
        if form.itemsize * count > 4:
            (start,) = struct.unpack_from(f"{self._order}I", self._content, start)
        if kind not in WHOLE or start + form.itemsize * count > len(self._content):
            raise Refused(f"it is incomplete or damaged: its field {tag} leads out of the file")
        wanted = count if most is None else min(most, count)
        return np.frombuffer(self._content, form, wanted, start).astype(np.int64)

    def number(self, tag: int, default: int = 0) -> int:
        """The first number of a field."""
        return next(iter(self.values(tag, 1).tolist()), default)

    def alone(self) -> bytes:
        """The file with a directory of only the fields that a decoder needs, and no other page."""
        places = [at for tag, at in sorted(self.entries.items()) if tag in NEEDED]
        entries = (self._content[at : at + ENTRY] for at in places)
        even = self._content + bytes(len(self._content) % 2)
        head = even[:4] + struct.pack(f"{self._order}I", len(even))
        return b"".join((head, even[8:], struct.pack(f"{self._order}H", len(places)), *entries, bytes(4)))


def _pages(content: bytes) -> list[_Page]:
    order = "<" if content.startswith(b"II") else ">"
    (at,) = struct.unpack_from(f"{order}I", content, 4)
    pages: list[_Page] = []
    while at and len(pages) < MOST_PAGES:
        pages.append(_Page(content, order, at))
        at = pages[-1].next
    if not pages:
        raise Refused("it is damaged: a TIFF without an image")
    return pages


def _check_kind(page: _Page) -> None:
    """Check that a decoder reads the samples as they are meant."""
    compression, colours = page.number(COMPRESSION, UNCOMPRESSED), page.number(COLOURS, -1)
    bits, numbers = set(page.values(BITS, MOST_SAMPLES).tolist()) or {1}, page.values(NUMBERS, MOST_SAMPLES)
    if compression not in COMPRESSIONS:
        raise Refused(f"it is a TIFF of the compression {compression}, expected none, LZW or Deflate; {SAVE}")
    if len(bits) > 1 or not bits <= KNOWN.get(colours, set()) or set(numbers.tolist()) - {UNSIGNED}:
        found = f"it is a TIFF of {max(bits)} bits a sample and the colours {colours}"
        raise Refused(f"{found}, expected grey, RGB, CMYK or a palette of 8 bits, or 16 bits; {SAVE}")


def _check_parts(page: _Page, width: int, height: int, length: int) -> None:
    """Check that strips or tiles cover the image and are in the file; without compression, in full."""
    samples, tiled = page.number(SAMPLES, 1), TILES in page.entries
    wide, high = width, min(page.number(ROWS, height), height)
    if tiled:
        wide, high = page.number(TILE_WIDTH), page.number(TILE_HEIGHT)
    check_size(wide, high)
    across, down = -(-width // wide), -(-height // high)
    planes = samples if page.number(PLANES) == SEPARATE else 1
    starts, sizes = (page.values(tag) for tag in ((TILES, TILE_BYTES) if tiled else (STRIPS, STRIP_BYTES)))
    count = across * down * planes
    if not 0 < samples <= MOST_SAMPLES or not len(starts) == len(sizes) == count:
        raise Refused(f"it is damaged: it has {len(starts)} strips or tiles, expected {count}")
    if (starts + sizes).max() > length:
        raise Refused("it is incomplete: its pixels lead out of the file")
    if page.number(COMPRESSION, UNCOMPRESSED) == UNCOMPRESSED:
        line = -(-wide * page.number(BITS, 1) * samples // planes // 8)
        rows = np.full((planes, down, across), high)
        rows[:, -1] = high if tiled else height - high * (down - 1)
        if (sizes < rows.ravel() * line).any():
            raise Refused("it is damaged: its strips or tiles have too few bytes")
