"""Further columns of a table of labels, such as a site or a camera, in a file beside the records.

They stand outside the records, so that these have the same bytes whatever a table says besides the labels.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from perennial.base import files
from perennial.base.choices import SPLITS, Split
from perennial.base.errors import DataError
from perennial.data.records import manifest
from perennial.data.tfrecord import example

FILE = "columns.csv"
KEYS = ("split", "image/filename", "class")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The further columns of a split, a row for each record in the order of the manifest."""

    names: tuple[str, ...]
    rows: list[tuple[str, ...]]  # N rows; empty texts for a record without a row in the file

    def values(self, name: str) -> list[str]:
        """The values of a column, [N]."""
        return [row[self.names.index(name)].strip() for row in self.rows]


def write(folder: Path, names: Sequence[str], rows: Sequence[tuple[str, ...]]) -> None:
    """Write the file: rows of split, file name, class and the further columns, sorted by the first two."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*KEYS, *names))
    ordered = sorted(rows, key=lambda row: (SPLITS.index(cast(Split, row[0])), row[1]))
    writer.writerows(ordered)
    files.write_bytes(folder / FILE, text.getvalue().encode("utf-8", "surrogateescape"))


def read(folder: Path, split: Split) -> Columns | None:
    """Read the further columns of a split; None if no table gave the labels, or only them."""
    file = folder / FILE
    if not file.exists():
        return None
    try:
        with file.open(encoding="utf-8", errors="surrogateescape", newline="") as stream:
            rows = list(csv.reader(stream, strict=True))
        names = tuple(rows[0][len(KEYS) :])
        known = {row[1]: tuple(row[len(KEYS) :]) for row in rows[1:] if row[0] == split}
    except (OSError, ValueError, IndexError, csv.Error) as error:
        raise DataError(f"{file} is damaged: {error}; `dvc checkout {folder}` restores it") from error
    if tuple(rows[0][: len(KEYS)]) != KEYS or any(len(values) != len(names) for values in known.values()):
        raise DataError(f"{file} is damaged: it has other columns; `dvc checkout {folder}` restores it")
    empty = ("",) * len(names)
    records = examples(folder, manifest.load(folder), split)
    found = [known.get(fields.filename or "", empty) for fields, _ in records]
    return Columns(names=names, rows=found)


def examples(folder: Path, data: manifest.Manifest, split: Split) -> Iterator[tuple[example.Fields, bytes]]:
    """Yield the fields and the encoded image of each record of a split, in the order of the manifest."""
    for shard in data.splits[split].shards:
        yield from example.in_order(folder / shard.file)
