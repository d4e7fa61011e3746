"""The columns of a table that may name files, labels and splits: their content decides, then their names."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from perennial.base.choices import Split, Task
from perennial.base.errors import ConfigError, DataError, listed
from perennial.data.datasets.own import label_table, tables
from perennial.data.datasets.own.side_tables import SideTable

SHOWN = 20  # columns in a message
IMAGE = re.compile(r"\.(?:jpe?g|png|webp|bmp|heic|avif|tiff?|gif)(?:\?.*)?\Z", re.IGNORECASE)
EMPTY = {"", *label_table.UNLABELLED}  # cells that say that there is no label
SEVERAL = re.compile(rf"{tables.LABEL.pattern}|\btags?\b|keyword", re.IGNORECASE)  # in names of columns


@dataclass(frozen=True, kw_only=True)
class Named:
    """What a person named on the command line."""

    table: str | None = None
    file: str | None = None
    label: Sequence[str] = ()
    split: str | None = None  # empty: none of the columns
    separator: str | None = None  # of several labels in a cell
    task: Task | None = None
    whole: Any = None  # the value of dataset.table

    @property
    def nothing(self) -> bool:
        """Whether no option is set."""
        several = self.separator or self.task == "multilabel"
        return not (self.table or self.file or self.label or self.split is not None or self.whole or several)


def columns(table: SideTable, named: Named, *, sure: bool) -> Iterator[dict[str, Any]]:
    """The values of file, label, split and separator of dataset.table; `sure`: several labels must show."""
    for file in _file_columns(table, named):
        for split, number in _split_columns(table, named):
            used = {file, number, *table.files, *table.splits()}
            if named.task == "multilabel":
                for label, separator in _several_columns(table, used, named, sure=sure):
                    yield {"file": table.columns[file], "label": label, "split": split, "separator": separator}
                continue
            for label in _label_columns(table, used, named):
                yield {"file": table.columns[file], "label": label, "split": split}


def _number(table: SideTable, option: str, name: str) -> int:
    """The column that an option names, or numbers from 1 in a table without a header."""
    columns = [str(each) for each in table.columns]
    if columns.count(name) != 1:
        shown = listed(map(repr, columns), SHOWN)
        raise ConfigError(
            f"{option} {name}: {table.path} has no such column, or several; its columns are {shown}"
        )
    return columns.index(name)


def _file_columns(table: SideTable, named: Named) -> list[int]:
    """The columns that name images, one of those that name the same; `file` alone if there is one."""
    if named.file:
        return [_number(table, "--file-column", named.file)]
    if "file" in table.columns and table.columns.index("file") in table.files:
        return [table.columns.index("file")]
    found: list[int] = []
    for column, files in sorted(table.files.items(), key=lambda pair: -pair[1].clear):
        clear = [(row, each) for row, each in enumerate(files.files) if len(each) == 1]
        if all(any(table.files[other].files[row] != each for row, each in clear) for other in found):
            found.append(column)
    for column in found:
        if all(map(str.isdecimal, table.values(column))):
            _require_names(table, column)
    return found


def _require_names(table: SideTable, numbers: int) -> None:
    """Check that no column names other files, where numbers name the images, which may number the rows."""
    for column in range(len(table.columns)):
        names = [value for value in table.values(column) if IMAGE.search(value)]
        if column not in table.files and 2 * len(names) > len(table.body):
            one, other = table.columns[column], table.columns[numbers]
            raise DataError(
                f"{table.name}: {one!r} has names such as {names[0]!r}, which are no files here, and {other!r} "
                f"has numbers of files, or of rows; correct {one!r}, or add --file-column {other}"
            )


def _split_columns(table: SideTable, named: Named) -> list[tuple[Any, int | None]]:
    """The values of dataset.table.split that differ, each with its column."""
    if named.split == "":
        return [(None, None)]
    labels = {table.columns.index(each) for each in named.label if each in table.columns}
    found = (
        sorted({*table.splits()} - labels)
        if named.split is None
        else [_number(table, "--split-column", named.split)]
    )
    different: dict[tuple[Split | None, ...], int] = {}
    for column in found:
        different.setdefault(tuple(table.split_values(column)), column)
    return [(table.split_option(column), column) for column in different.values()] or [(None, None)]


def _bits(table: SideTable, columns: Sequence[int]) -> tuple[list[int], bool]:
    """The columns of 0 and 1, and whether each row has a 1 in exactly one of them."""
    bits = [column for column in columns if all(map(tables.is_bit, table.values(column)))]
    rows = zip(*map(table.values, bits), strict=True)
    return bits, {sum(map(float, row)) for row in rows} == {1}


def _label_columns(table: SideTable, used: set[int | None], named: Named) -> list[Any]:
    """The values of dataset.table.label that content and names allow."""
    if named.label:
        chosen = [table.columns[_number(table, "--label-column", each)] for each in named.label]
        return [chosen if len(chosen) > 1 else chosen[0]]
    left = [column for column in range(len(table.columns)) if column not in used]
    if "label" in table.columns and table.columns.index("label") in left:
        return ["label"]
    found = [column for column in left if len(left) == 1 or _holds_labels(table.values(column))]
    if known := [column for column in found if tables.LABEL.search(str(table.columns[column]))]:
        return [table.columns[column] for column in _partitions(table, known)]
    hot: list[Any] = []
    bits, one_each = _bits(table, left)
    if len(bits) > 1 and (one_each or bits == left):
        hot = [[str(table.columns[column]) for column in bits]] if table.header else []
        found = [each for each in found if each not in bits]
    return hot + [table.columns[column] for column in _partitions(table, found)]


def _several_columns(
    table: SideTable, used: set[int | None], named: Named, *, sure: bool
) -> list[tuple[Any, str | None]]:
    """Columns of several labels, or of 0 and 1, each with what separates the labels of a cell."""
    left = [_number(table, "--label-column", each) for each in named.label]
    left = left or [column for column in range(len(table.columns)) if column not in used]
    bits, one_each = _bits(table, left)
    if len(named.label) > 1 or (len(bits) > 1 and bits == left and table.header):
        return [] if sure and one_each else [([str(table.columns[column]) for column in left], None)]
    found = [
        (table.columns[column], mark) for column in left for mark in _separators(table.values(column), named)
    ]
    strong = [each for each in found if each[1] is None or re.fullmatch(label_table.STRONG, each[1])]
    named_so = [each for each in strong or found if SEVERAL.search(str(each[0])) is not None]
    plain = [] if sure or found else [(table.columns[column], named.separator) for column in left]
    return named_so or strong or found or plain


def _separators(cells: Sequence[str], named: Named) -> list[str | None]:
    """What may separate labels: most of these are in several cells, and one is in different ones."""
    if named.separator is not None:
        return [named.separator]
    if any(map(label_table.LIST.fullmatch, cells)):
        return [None]
    found: list[str | None] = []
    for mark in label_table.SEPARATORS:
        parts = [labels_of(cell, mark) for cell in cells]
        counts = Counter(label for each in parts for label in each)
        shared = Counter(label for each in set(map(tuple, parts)) for label in each)
        once = list(counts.values()).count(1)  # such as a rare label, or a cell with another mark
        if any(mark in cell for cell in cells) and 4 * once <= len(counts) > 0 and max(shared.values()) > 1:
            found.append(mark)
    return found


def labels_of(cell: str, separator: str | None) -> list[str]:
    """The labels in a cell that may hold several; none in one that is not read."""
    try:
        return label_table.of_cell(cell, separator)
    except ValueError:
        return []


def _holds_labels(values: Sequence[str]) -> bool:
    """Whether values are those of classes: several, repeated, and no measures."""
    kept = [value for value in values if value.casefold() not in EMPTY]
    measures = any(re.fullmatch(r"[+-]?[0-9]*\.[0-9]*[1-9][0-9]*(?:e[+-]?[0-9]+)?", value) for value in kept)
    return 1 < len(set(kept)) < len(kept) and not measures


def _partitions(table: SideTable, columns: Sequence[int]) -> list[int]:
    """Leave out columns of ids that divide the rows as one of names does, and columns that repeat another."""
    cells = {
        column: ["" if value.casefold() in EMPTY else value for value in table.values(column)]
        for column in columns
    }
    names = [column for column in columns if not all(value.isdecimal() for value in cells[column] if value)]
    found: list[int] = []
    for column in [*names, *(each for each in columns if each not in names)]:
        for other in found:
            pairs = len(set(zip(cells[column], cells[other], strict=True)))
            is_id = column not in names and other in names
            if cells[column] == cells[other] or (
                is_id and pairs == len(set(cells[column])) == len(set(cells[other]))
            ):
                break
        else:
            found.append(column)
    return sorted(found)
