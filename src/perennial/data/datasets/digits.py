"""UCI digits: 1,797 handwritten digits of 8x8 pixels, part of scikit-learn, so no network is needed.

Source: the test file of E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits (UCI). It has no
splits, so every fifth example, starting with the fifth, is in the test split.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perennial.data.datasets.dataset import Dataset, Examples, Source, SourceFile
from perennial.data.datasets.readers import fixed_size
from perennial.data.images import Image, png

EXAMPLES = 1797
TEST_EVERY = 5
SIDE = 8  # pixels
CLASSES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
INK_LEVELS = 16  # the original values are 0..16


def read(folder: Path) -> Source:
    """Read the digits in file order, with values of 0..16 scaled to pixels of 0..255."""
    maxima = [INK_LEVELS] * SIDE * SIDE + [len(CLASSES) - 1]
    table = fixed_size.read_csv(folder / "digits.csv", rows=EXAMPLES, maxima=maxima)
    ink, labels = table[:, :-1], table[:, -1]
    pixels = ((ink * 255 + INK_LEVELS // 2) // INK_LEVELS).astype(np.uint8).reshape(-1, SIDE, SIDE)
    in_test = np.arange(EXAMPLES) % TEST_EVERY == TEST_EVERY - 1

    def examples(chosen: NDArray[np.bool_]) -> Examples:
        return Examples(
            labels=labels[chosen],
            images=partial(_images, pixels[chosen]),
            image_bytes=np.full(chosen.sum(), png.encoded_bytes(SIDE, SIDE, 1)),
            shape=(SIDE, SIDE, 1),
        )

    return Source(classes=CLASSES, splits={"train": examples(~in_test), "test": examples(in_test)})


def _images(pixels: NDArray[np.uint8], indices: Sequence[int]) -> Iterator[Image]:
    for encoded in png.encode_all(pixels[list(indices)]):
        yield Image(encoded=encoded, format="png", height=SIDE, width=SIDE)


def _installed_at() -> tuple[str, ...]:
    """Find scikit-learn's folder of the file without importing it, which takes seconds."""
    spec = find_spec("sklearn")
    folders = spec.submodule_search_locations if spec is not None else None
    return tuple(f"{(Path(folder) / 'datasets' / 'data').as_uri()}/" for folder in folders or ())


DIGITS = Dataset(
    mirrors=_installed_at(),
    files=(
        SourceFile(
            name="digits.csv.gz",
            bytes=57_523,
            sha256="09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22",
            content_sha256="6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8",
        ),
    ),
    read=read,
)
