"""Every JPEG file under a folder decoded once with Pillow, in tasks of a Ray cluster: `ray_files FOLDER`."""

import sys
from pathlib import Path

import ray
from PIL import Image

FILES = 64  # of a task


@ray.remote
def pixels(files: list[Path]) -> list[int]:
    """How many pixels each image has, all of them decoded."""
    found = []
    for file in files:
        with Image.open(file) as image:
            image.load()
            found.append(image.width * image.height)
    return found


if __name__ == "__main__":
    ray.init(log_to_driver=False)
    files = sorted(Path(sys.argv[1]).rglob("*.jpg"))
    parts = [pixels.remote(files[start : start + FILES]) for start in range(0, len(files), FILES)]
    counted = [each for part in ray.get(parts) for each in part]
    print(len(counted), sum(counted))
    ray.shutdown()
