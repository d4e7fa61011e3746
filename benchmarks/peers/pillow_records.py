"""Every image of a record folder decoded once with Pillow, and no more: `pillow_records FOLDER`.

An image is found in its record by the bytes it begins with; no checksum is looked at and no record parsed.
"""

import io
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from PIL import Image


def records(file: Path) -> Iterator[bytes]:
    """TFRecord: length uint64, its checksum uint32, the record, its checksum uint32."""
    with file.open("rb") as stream:
        while header := stream.read(12):
            yield stream.read(struct.unpack("<Q", header[:8])[0])
            stream.read(4)


decoded = pixels = 0
for file in sorted(Path(sys.argv[1]).glob("*.tfrecord")):
    for record in records(file):
        start = record.find(b"\x89PNG\r\n")
        if start < 0:  # asked second: stored pixels may hold JPEG's three bytes
            start = record.find(b"\xff\xd8\xff")
        with Image.open(io.BytesIO(record[start:])) as image:
            image.load()
            decoded += 1
            pixels += image.width * image.height
print(decoded, pixels)
