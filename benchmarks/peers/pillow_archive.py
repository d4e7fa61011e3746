"""Every JPEG file in a .tgz archive decoded once with Pillow, on every core: `pillow_archive ARCHIVE`."""

import io
import sys
import tarfile
from collections.abc import Iterator
from multiprocessing import Pool

from PIL import Image


def contents(archive: str) -> Iterator[bytes]:
    """The files, in the archive's order."""
    with tarfile.open(archive, "r|gz") as members:
        for member in members:
            if member.name.endswith(".jpg") and (stream := members.extractfile(member)):
                yield stream.read()


def pixels(content: bytes) -> int:
    """How many pixels an image has, all of them decoded."""
    with Image.open(io.BytesIO(content)) as image:
        image.load()
        return image.width * image.height


if __name__ == "__main__":
    with Pool() as pool:
        counted = list(pool.imap_unordered(pixels, contents(sys.argv[1]), chunksize=16))
    print(len(counted), sum(counted))
