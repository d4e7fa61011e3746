"""Tables of whole numbers as text: a line a row, the values between commas."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perennial.errors import DataError


def read(file: Path, *, rows: int, most: Sequence[int]) -> NDArray[np.int64]:
    """The table in a file, [rows, columns]; the values of column N are 0 .. most[N].

    Raises:
        DataError: it is no such table; says which value, in which line and column.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
        table = np.array([line.split(",") for line in lines], np.float64)
    except (OSError, ValueError) as error:
        raise DataError(f"{file} is no table of numbers: {error}") from error
    if table.shape != (rows, len(most)):
        raise DataError(f"{file}: table of {table.shape}, expected {(rows, len(most))}")
    wrong = np.argwhere(~((table >= 0) & (table <= np.array(most)) & (table == np.floor(table))))
    if wrong.size:
        line, column = wrong[0]
        raise DataError(
            f"{file}: {table[line, column]} in line {line + 1}, column {column + 1}; "
            f"expected a whole number from 0 to {most[column]}"
        )
    return table.astype(np.int64)
