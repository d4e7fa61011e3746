"""Write a JPEG file again with only what decoding needs: frame, tables and scans, and what the components are.

Source: ITU T.81, annex B; JFIF 1.02; Adobe Technical Note 5116.
"""

from collections.abc import Iterator

import numpy as np

from perennial.data.images import Refused, decode, jpeg

QUANTIZATION, HUFFMAN, RESTARTS = 0xDB, 0xC4, 0xDD
COEFFICIENTS = 64
CODE_LENGTHS = 16
TABLES = 16  # that a class and a number name, in a byte
COMPONENTS_AT = 6  # in the body of a frame
JFIF = b"\xff\xe0\0\x10JFIF\0\1\1\0\0\1\0\1\0\0"  # without thumbnail; a decoder reads no resolution
ADOBE = b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0"  # the colour transform follows, a byte
END = bytes((jpeg.MARK, jpeg.END))
FEWEST = 16  # bytes behind the pixels that are noticed
TRANSFORM_AT = 11  # in the body of such a segment


def rewritten(content: bytes) -> bytes:
    """The same scans without metadata, thumbnails, unused tables, and bytes after the image's end."""
    found = decode.photograph(content)
    said: dict[int, bytes] = {}  # by the markers of JFIF and Adobe; the last before the first scan counts
    pieces, tables = list[bytes](), _Tables()
    for segment in jpeg.segments(content):
        marker, body = segment.marker, content[segment.body : segment.stop]
        if marker in jpeg.METADATA:
            if jpeg.is_needed(content, segment) and segment.start < found.scans[0].start:
                said[marker] = JFIF if marker == jpeg.JFIF else ADOBE + body[TRANSFORM_AT : TRANSFORM_AT + 1]
        elif marker in {QUANTIZATION, HUFFMAN}:
            tables.add(marker, body)
        elif marker in jpeg.FRAMES:
            tables.frame(body)
            pieces.append(_exactly(content, segment, COMPONENTS_AT + 3 * body[COMPONENTS_AT - 1]))
        elif marker == RESTARTS:
            pieces.append(_exactly(content, segment, 2))
        elif marker == jpeg.SCAN:
            pieces += tables.of_scan(body)
            pieces.append(content[segment.start : segment.stop].rstrip(b"\xff"))  # fill bytes
    written = b"".join((jpeg.START[:2], *said.values(), *pieces, END))
    if found.whole:
        _refuse_more(written)
    return written


def _refuse_more(written: bytes) -> None:
    """Refuse a file with bytes behind the pixels in its only scan, which decoders skip."""
    shorter = written[: -FEWEST - len(END)] + END
    try:
        decode.check_coefficients(shorter, jpeg.read(shorter))
        less, all_pixels = (decode.array(decode.decoded(each)) for each in (shorter, written))
    except (Refused, *decode.PILLOW_ERRORS):
        return
    if np.array_equal(less, all_pixels):
        raise Refused("it is damaged: bytes follow its pixels")


def _exactly(content: bytes, segment: jpeg.Segment, length: int) -> bytes:
    """A segment of the length that its fields have, as decoders demand."""
    if segment.stop - segment.body != length:
        raise Refused(f"it is damaged: the segment {segment.marker:#x} does not have {length} bytes")
    return content[segment.start : segment.stop]


class _Tables:
    """The tables that are in force, of which each scan gets those that it uses and that are new."""

    def __init__(self) -> None:
        self._new: dict[tuple[int, int], bytes] = {}  # by marker and number
        self._written: dict[tuple[int, int], bytes] = {}
        self._quantization: dict[int, int] = {}  # table of each component

    def add(self, marker: int, body: bytes) -> None:
        """Add the tables of a segment; a later one of a number replaces an earlier one."""
        for table in _split(marker, body):
            self._new[marker, table[0] % TABLES if marker == QUANTIZATION else table[0]] = table

    def frame(self, body: bytes) -> None:
        """Note which table each component has."""
        self._quantization = dict(zip(body[COMPONENTS_AT::3], body[COMPONENTS_AT + 2 :: 3], strict=False))

    def of_scan(self, body: bytes) -> Iterator[bytes]:
        """The segments of tables that a scan needs."""
        count = body[0] if body else 0
        if len(body) < 1 + 2 * count:
            raise Refused("it is damaged: the header of a scan is too short")
        components, numbers = body[1 : 1 + 2 * count : 2], body[2 : 2 + 2 * count : 2]
        used = [(QUANTIZATION, self._quantization[each]) for each in components if each in self._quantization]
        used += [(HUFFMAN, number) for each in numbers for number in (each >> 4, TABLES + each % TABLES)]
        for key in dict.fromkeys(used):
            table = self._new.get(key)
            if table is not None and table != self._written.get(key):
                self._written[key] = table
                yield bytes((jpeg.MARK, key[0])) + (2 + len(table)).to_bytes(2) + table


def _split(marker: int, body: bytes) -> Iterator[bytes]:
    """The single tables of a segment."""
    at = 0
    while at < len(body):
        if marker == QUANTIZATION:
            stop = at + 1 + COEFFICIENTS * (1 + bool(body[at] >> 4))
        else:
            stop = at + 1 + CODE_LENGTHS + sum(body[at + 1 : at + 1 + CODE_LENGTHS])
        if stop > len(body):
            raise Refused("it is damaged: a table of a JPEG is too short")
        yield body[at:stop]
        at = stop
