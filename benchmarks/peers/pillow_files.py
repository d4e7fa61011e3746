"""Every JPEG file under a folder decoded once with Pillow, on every core: `pillow_files FOLDER`."""

import sys
from multiprocessing import Pool
from pathlib import Path

from PIL import Image


def pixels(file: Path) -> int:
    """How many pixels an image has, all of them decoded."""
    with Image.open(file) as image:
        image.load()
        return image.width * image.height


if __name__ == "__main__":
    files = sorted(Path(sys.argv[1]).rglob("*.jpg"))
    with Pool() as pool:
        counted = list(pool.imap_unordered(pixels, files, chunksize=16))
    print(len(counted), sum(counted))
