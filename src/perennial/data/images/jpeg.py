"""Read the structure of JPEG files of any origin in linear time, and prepare them for a decoder.

Source: ITU T.81, annexes B (markers) and G (progressive scans).
"""

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from perennial.data.images import MOST_PIXELS, Refused, check_size, orientation

START, MARK = b"\xff\xd8\xff", 0xFF
SCAN, END, EXIF, JFIF, ADOBE, COMMENT = 0xDA, 0xD9, 0xE1, 0xE0, 0xEE, 0xFE
JFIF_BYTES, ADOBE_BYTES = 14, 12  # of the shortest that libjpeg reads
METADATA = frozenset((*range(0xE0, 0xF0), COMMENT))  # APP0 to APP15 and COM
BARE, BEGIN = 0x01, 0xD8  # markers without a length
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # DHT, JPG and DAC share their range
BASELINE, EXTENDED, PROGRESSIVE = 0xC0, 0xC1, 0xC2  # the frames that TensorFlow decodes: Huffman-coded
# A marker: no zero, restart marker or fill byte follows 0xFF, as in scan data.
NEXT = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
MOST_SEGMENTS = 10_000
MOST_SCANS = 100
# Each scan of a progressive file passes over all pixels, even if it has no data; encoders write about ten.
MOST_SCANNED = 16 * MOST_PIXELS
# In place of the end marker: no Huffman code consists of ones, so a decoder that lacks data stops here with an
# error, while it would silently draw grey at an end marker. Libjpeg reads up to 8 bytes ahead.
PADDING = b"\xff\x00" * 8
COEFFICIENTS = 64


class Segment(NamedTuple):
    """A marker and the span of its segment, from the marker on; that of a scan includes its data."""

    marker: int
    start: int
    body: int  # after marker and length
    stop: int


@dataclass
class Jpeg:
    """What a file's segments say, and where they are."""

    frame: int  # marker
    bits: int
    height: int
    width: int
    factors: Sequence[tuple[int, int]]  # horizontal and vertical sampling factors of each component
    ids: bytes = b""  # of the components
    orientation: int = orientation.UPRIGHT  # as in EXIF, 1 to 8
    heads: list[tuple[int, int]] = field(default_factory=list)  # needed spans before the first scan
    scans: list[Segment] = field(default_factory=list)
    whole: bool = False  # whether the first scan has all components, so that the pixels end with it
    end: int = 0  # after the end marker

    @property
    def trained_on(self) -> bool:
        """Whether TensorFlow decodes files of this kind: Huffman-coded, 8 bits, samples at whole distances."""
        most = [max(sides) for sides in zip(*self.factors, strict=True)]
        regular = all(
            side and not top % side for pair in self.factors for side, top in zip(pair, most, strict=True)
        )
        return self.frame in {BASELINE, EXTENDED, PROGRESSIVE} and self.bits == 8 and regular

    def add(self, scan: Segment, count: bytes) -> None:
        """Add a scan; `count`: the number of its components, as a byte."""
        self.scans.append(scan)
        self.whole = self.frame in {BASELINE, EXTENDED} and count == bytes([len(self.ids)])
        if len(self.scans) > MOST_SCANS or len(self.scans) * self.width * self.height > MOST_SCANNED:
            raise Refused(f"it has more than {len(self.scans) - 1} scans of all its pixels")

    def for_decoder(self, jpeg: bytes) -> bytes:
        """The file without metadata and trailer; padded so that a decoder reports missing data."""
        first, content = self.scans[0], memoryview(jpeg)  # whose slices are no copies
        heads = (content[start:stop] for start, stop in self.heads if start < first.start)
        pieces: list[bytes | memoryview] = [START[:2], *heads]
        if self.whole:
            return b"".join((*pieces, content[first.start : first.stop], PADDING))
        return b"".join((*pieces, content[first.start : self.end]))


def read(jpeg: bytes) -> Jpeg:
    """Read all segments up to the end marker, which TensorFlow requires; bytes after it are ignored."""
    metadata: dict[bytes, bytes] = {}
    heads: list[tuple[int, int]] = []
    found: Jpeg | None = None
    for segment in segments(jpeg):
        marker, start, body, stop = segment
        if marker == END:
            break
        if found is not None and found.whole and marker not in METADATA:
            raise Refused(f"it is damaged: the segment {marker:#x} follows its only scan")
        if marker in FRAMES and found is None:
            found = _frame(jpeg, segment)
        if found is not None and marker == SCAN:
            found.add(segment, jpeg[body : body + 1])
        elif is_needed(jpeg, segment):
            heads.append((start, stop))
        if marker == EXIF and (name := orientation.NAMES.match(jpeg, body)):
            metadata.setdefault(name[0], jpeg[body:stop])
    else:
        raise Refused("it is incomplete: a JPEG without an end")
    if found is None or not found.scans:
        raise Refused("it is damaged: a JPEG without pixels")
    if not found.whole:
        _check_scans(jpeg, found)
    turned = orientation.of(metadata.get(orientation.EXIF), metadata.get(orientation.XMP))
    found.heads, found.end, found.orientation = heads, stop, turned
    return found


def segments(jpeg: bytes) -> Iterator[Segment]:
    """Yield the segments of a JPEG file up to the end marker, or to the end of the file."""
    at = 2
    for _ in range(MOST_SEGMENTS):
        if (found := NEXT.search(jpeg, at)) is None:
            return
        start, at = found.span()
        marker, body = jpeg[start + 1], at + 2
        if marker == END:
            yield Segment(marker, start, at, at)
            return
        if marker == BEGIN:
            raise Refused("it is damaged: a JPEG that begins twice")
        if marker == BARE:
            continue
        at = min(at + max(int.from_bytes(jpeg[at:body]), 2), len(jpeg))
        if marker == SCAN:
            at = after.start() if (after := NEXT.search(jpeg, at)) else len(jpeg)
        yield Segment(marker, start, body, at)
    raise Refused(f"it is damaged: a JPEG of more than {MOST_SEGMENTS} segments")


def _frame(jpeg: bytes, segment: Segment) -> Jpeg:
    _, _, body, stop = segment
    if stop - body < 6 or stop - body < 6 + 3 * jpeg[body + 5]:
        raise Refused("it is damaged: the header of a JPEG is too short")
    bits, height, width, count = struct.unpack_from(">BHHB", jpeg, body)
    check_size(width, height)
    components = jpeg[body + 6 : body + 6 + 3 * count]
    factors = [(both >> 4, both & 15) for both in components[1::3]]
    return Jpeg(segment.marker, bits, height, width, factors, ids=components[::3])


def is_needed(jpeg: bytes, segment: Segment) -> bool:
    """Whether a decoder reads a segment; libjpeg ignores those of JFIF and Adobe that are too short."""
    marker, _, body, stop = segment
    if marker not in METADATA:
        return True
    return (marker == JFIF and stop - body >= JFIF_BYTES and jpeg.startswith(b"JFIF\0", body)) or (
        marker == ADOBE and stop - body >= ADOBE_BYTES and jpeg.startswith(b"Adobe", body)
    )


def _check_scans(jpeg: bytes, found: Jpeg) -> None:
    """Check that the scans bring every component in full precision; decoders draw what there is."""
    missing = {component: [-1] * COEFFICIENTS for component in found.ids}  # low bits; -1: the coefficient
    for scan in found.scans:
        count = jpeg[scan.body] if scan.body < len(jpeg) else 0
        spectrum = jpeg[scan.body + 1 + 2 * count : scan.body + 4 + 2 * count]
        if len(spectrum) < 3:
            raise Refused("it is damaged: the header of a scan is too short")
        first, last, low = (spectrum[0], spectrum[1], spectrum[2] & 15)
        if found.frame != PROGRESSIVE:
            first, last, low = 0, COEFFICIENTS - 1, 0
        for component in jpeg[scan.body + 1 : scan.body + 1 + 2 * count : 2]:
            if component in missing and first <= last < COEFFICIENTS:
                missing[component][first : last + 1] = [low] * (last + 1 - first)
    if any(any(bits) for bits in missing.values()):
        raise Refused("it is incomplete: its last scans are missing")
