"""UCI digits: 1,797 handwritten digits of 8x8 pixels, inside scikit-learn, so that no network is needed.

Source: E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits (UCI), its test file. The data
set has no splits of its own: every fifth example, counted from the fifth, is in the test split here.
"""

import gzip
import zlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perennial.images import png
from perennial.datasets.dataset import Dataset, Examples, SourceFile, SourceSplit
from perennial.errors import DataError
from perennial.images import Image

EXAMPLES = 1797
TEST_EVERY = 5
SIDE = 8  # pixels
INK_LEVELS = 16  # the original values are 0..16


def read(folder: Path, split: SourceSplit) -> Examples:
    """The digits of a split in file order, their ink of 0..16 stretched to pixels of 0..255."""
    file = folder / DIGITS.files[0].name
    table = _table(file)
    in_test = np.arange(EXAMPLES) % TEST_EVERY == TEST_EVERY - 1
    rows = table[in_test if split == "test" else ~in_test]
    ink, labels = rows[:, :-1], rows[:, -1]
    pixels = ((ink * 255 + INK_LEVELS // 2) // INK_LEVELS).astype(np.uint8)
    images = pixels.reshape(-1, SIDE, SIDE)

    def image(index: int) -> Image:
        return Image(encoded=png.encode(images[index]), format="png", height=SIDE, width=SIDE)

    return Examples(labels=labels, image=image)


def _table(file: Path) -> NDArray[np.int64]:
    """The lines of the file: 64 values of ink and a label each, all within their range."""
    try:
        lines = gzip.decompress(file.read_bytes()).decode().splitlines()
        table = np.array([line.split(",") for line in lines], np.float64)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(f"{file} is no gzipped table of digits: {error}") from error
    if table.shape != (EXAMPLES, SIDE * SIDE + 1):
        raise DataError(f"{file}: table of {table.shape}, expected {(EXAMPLES, SIDE * SIDE + 1)}")
    most = np.array([INK_LEVELS] * SIDE * SIDE + [len(DIGITS.classes) - 1])
    wrong = np.argwhere(~((table >= 0) & (table <= most) & (table == np.floor(table))))
    if wrong.size:
        line, column = wrong[0]
        raise DataError(
            f"{file}: {table[line, column]} in line {line + 1}, column {column + 1}; "
            f"expected a whole number from 0 to {most[column]}"
        )
    return table.astype(np.int64)


def _installed_at() -> tuple[str, ...]:
    """Where scikit-learn keeps the file, found without the seconds that importing it takes."""
    spec = find_spec("sklearn")
    folders = spec.submodule_search_locations if spec is not None else None
    return tuple(f"{(Path(folder) / 'datasets' / 'data').as_uri()}/" for folder in folders or ())


DIGITS = Dataset(
    classes=("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    mirrors=_installed_at(),
    files=(
        SourceFile(
            name="digits.csv.gz",
            sha256="09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22",
            content_sha256="6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8",
        ),
    ),
    read=read,
)
