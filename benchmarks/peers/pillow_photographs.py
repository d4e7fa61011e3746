"""Photographs prepared by Pillow, a process for each core: `pillow_photographs RECORDS SECONDS CASE...`."""

import io
import math
import multiprocessing
import sys

import numpy as np
from PIL import Image, ImageEnhance

from benchmarks.peers.photographs import BATCH, CORES, SIZES, Batches, measure


def batches(case: str, files: list[bytes]) -> Batches:
    """Chunks of images by processes that do a share each."""
    starts = range(0, len(files), BATCH)
    with multiprocessing.get_context("fork").Pool(CORES) as pool:
        while True:
            yield from pool.imap(prepared, [(case, files[start : start + BATCH]) for start in starts])


def prepared(job: tuple[str, list[bytes]]) -> int:
    """Prepare some images; the result stays in this process."""
    case, files = job
    size, random, bilinear = SIZES[case], np.random.default_rng(), Image.Resampling.BILINEAR
    for encoded in files:
        with Image.open(io.BytesIO(encoded)) as opened:
            image = opened.convert("RGB")
        wide, high = image.size
        if case == "vgg":
            side = size * min(wide, high) / random.integers(256, 513)
            left, top = random.uniform(0, wide - side), random.uniform(0, high - side)
            image = image.resize((size, size), bilinear, (left, top, left + side, top + side))
        elif case in {"inception", "slow"}:
            area, aspect = random.uniform(0.05, 1) * wide * high, random.uniform(0.75, 1.33)
            width, height = (
                min(wide, round(math.sqrt(area * aspect))),
                min(high, round(math.sqrt(area / aspect))),
            )
            left, top = random.integers(wide - width + 1), random.integers(high - height + 1)
            image = image.resize((size, size), bilinear, (left, top, left + width, top + height))
        elif case == "evaluation":
            image = image.resize(
                (size, size), bilinear, (wide // 16, high // 16, wide - wide // 16, high - high // 16)
            )
        else:
            image = image.resize((size, size), bilinear)
        if case not in {"plain", "evaluation"} and random.integers(2):
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        if case in {"inception", "slow"}:
            image = ImageEnhance.Brightness(image).enhance(random.uniform(0.9, 1.1))
            image = ImageEnhance.Color(image).enhance(random.uniform(0.5, 1.5))
        np.asarray(image)
    return len(files)


if __name__ == "__main__":
    measure(batches, sys.argv[1:])
