"""Small raw data, as `download` leaves them."""

import functools
import gzip
import io
import struct
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from perennial.base import files
from perennial.base.config import Config

TEST_FROM = 100  # the number that fills the first test image: none is in both splits


def write_idx(file: Path, values: NDArray[np.uint8]) -> None:
    """Writes unsigned bytes as a gzipped IDX file."""
    header = struct.pack(f">{1 + values.ndim}I", 0x800 | values.ndim, *values.shape)
    files.write_bytes(file, gzip.compress(header + values.tobytes(), mtime=0))


def write_mnist(config: Config) -> None:
    """Writes raw files like MNIST's: 40 examples of 3x4 pixels to train and validate on, 20 to test.

    The classes come in turn, and an image is filled with its number, which for test images counts from 100.
    """
    for prefix, first, examples in (("train", 0, 40), ("t10k", TEST_FROM, 20)):
        numbers = np.arange(first, first + examples, dtype=np.uint8)
        images = np.broadcast_to(numbers[:, None, None], (examples, 3, 4))
        write_idx(config.paths.raw / f"{prefix}-images-idx3-ubyte.gz", images)
        write_idx(config.paths.raw / f"{prefix}-labels-idx1-ubyte.gz", numbers % 10)


def picture(seed: int, side: int = 40) -> NDArray[np.uint8]:
    """A picture like no other of another seed: blotches of colour, uint8 [side, side, 3]."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), np.uint8)
    image = PIL.Image.fromarray(coarse).resize((side, side), PIL.Image.Resampling.BICUBIC)
    return np.array(image)


def encoded(pixels: NDArray[np.uint8], kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    PIL.Image.fromarray(pixels).save(stream, kind, **options)
    return stream.getvalue()


def tar(files: Mapping[str, bytes], mode: str = "w") -> bytes:
    """A tar file, compressed as the mode says."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode, format=tarfile.GNU_FORMAT) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def write_files(folder: Path, contents: Mapping[str, bytes | str]) -> Path:
    """Writes files of these names below a folder, which it returns."""
    for name, content in contents.items():
        (file := folder / name).parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def write_pictures(
    folder: Path, classes: tuple[str, ...] = ("cat", "dog", "owl"), each: int = 12, side: int = 30
) -> None:
    """Writes a folder of PNG and JPEG files for each class, all different, of `side` pixels and more."""
    for label, name in enumerate(classes):
        for number in range(each):
            kind = ("PNG", "JPEG")[number % 2]
            file = folder / name / f"{number:02}.{kind.lower()}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(_drawn(1000 * label + number, side + number, kind))


@functools.cache
def _drawn(seed: int, side: int, kind: str) -> bytes:
    return encoded(picture(seed, side), kind)
