"""Tables of labels: CSV and TSV files with a file, its label and further columns, as spreadsheets write them.

    labels.csv beside the images or beside images/    file,label[,split][,further columns]
    train.csv beside train/, val.csv beside val/      the name of the table gives the split

A file is named below the table, below the folder of all, or alone; also without its ending.
"""

import csv
import io
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from perennial.archives import Member
from perennial.archives.safety import folded
from perennial.choices import SPLIT_WORDS, Split, split_named
from perennial.datasets.own.class_lists import class_name, text_of
from perennial.errors import DataError, listed

log = logging.getLogger(__name__)
Read = Callable[[Member], bytes]
# Names of columns, without their case, blanks and punctuation, in order of preference.
FILE = (
    "file", "filename", "filepath", "path", "image", "imagefile", "imagename", "imagepath", "imageid", "img",
    "imgname", "imgpath", "imgid", "photo", "picture", "id", "name",
)  # fmt: skip
LABEL = (
    "labelname", "classname", "categoryname", "label", "class", "category", "labels", "target", "species",
    "breed", "diagnosis", "labelid", "classid", "categoryid",
)  # fmt: skip
SPLIT = ("split", "set", "subset", "partition")
ENDINGS = (".csv", ".tsv")
DELIMITERS = ",;\t|"
MOST_BYTES = 1 << 28
SHOWN = 3


class Labelled(NamedTuple):
    """An image of a table."""

    name: str  # in the tree
    label: str
    split: Split
    further: tuple[str, ...]  # values of the further columns


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table whose columns name files and labels."""

    name: str
    columns: Sequence[str]
    rows: Sequence[tuple[int, Sequence[str]]]  # number of the line that a row ends in, and its values
    file: int  # columns
    label: int
    split: int | None

    @property
    def further(self) -> list[int]:
        """The columns that are not used."""
        return [
            number for number in range(len(self.columns)) if number not in (self.file, self.label, self.split)
        ]

    def described(self) -> str:
        """Describe the columns in a line."""
        further = ", ".join(repr(self.columns[number]) for number in self.further)
        return (
            f"{self.name!r} (files in {self.columns[self.file]!r}, labels in {self.columns[self.label]!r}"
            + (f", further columns {further})" if further else ")")
        )


class Images:
    """The files that rows may name, up to case and Unicode normalization, and without their endings."""

    def __init__(self, images: Mapping[str, Member]) -> None:
        self._images = images
        self._by_name, self._by_stem = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
        for name, member in images.items():
            file = folded(member.name.rpartition("/")[2])
            self._by_name[file].append(name)
            self._by_stem[file.rpartition(".")[0] or file].append(name)

    def of(self, value: str, table: str, split: Split | None) -> list[str]:
        """Return the files that a value of a table may mean: one, or several, or none."""
        wanted = value.strip().replace("\\", "/").removeprefix("./")
        for above in (table.rpartition("/")[0], ""):
            if (name := f"{above}/{wanted}".lstrip("/")) in self._images:
                return [name]
        last, end = folded(wanted.rpartition("/")[2]), folded(f"/{wanted}")
        found = [name for name in self._by_name.get(last, ()) if self._full(name).endswith(end)]
        if not found:
            stems = self._by_stem.get(last, ())
            found = [name for name in stems if self._full(name).rpartition(".")[0].endswith(end)]
        exact = [name for name in found if f"/{self._images[name].name}".endswith(f"/{wanted}")]
        found = exact or found
        inside = [name for name in found if split and split_named(name.partition("/")[0]) == split]
        return inside or found

    def _full(self, name: str) -> str:
        return folded(f"/{self._images[name].name}")


def candidates(tree: Mapping[str, Member]) -> list[str]:
    """Return the names that a table of labels may have, in order."""
    return sorted(
        name
        for name, member in tree.items()
        if (lower := name.lower()).endswith(ENDINGS)
        and not member.folder
        and name.count("/") <= 1
        and "submission" not in lower
    )


def find(
    names: Sequence[str], tree: Mapping[str, Member], images: Mapping[str, Member], read: Read
) -> tuple[list[Table], list[str]]:
    """Find the tables that give labels of images, and why others do not."""
    tables, problems = list[Table](), list[str]()
    index = Images(images)
    for name in names:
        try:
            tables.append(_parsed(name, tree[name], read, index))
        except DataError as error:
            problems.append(str(error))
    return tables, problems


def labelled(images: Mapping[str, Member], tables: Sequence[Table], where: Path) -> dict[str, Labelled]:
    """Return the rows of all tables by the file that they name.

    Raises:
        DataError: rows name no file, several or one outside, contradict each other, or lack a label.
    """
    wrong, index = defaultdict[str, list[str]](list), Images(images)
    found, repeated = dict[str, Labelled](), 0
    splits: dict[str, Split | None] = {}
    columns = further_columns(tables)
    for table in tables:
        for place, row, name in _rows(table, index, wrong):
            label = class_name(row[table.label].strip())
            split = _split(table, row, name)
            if not label:
                wrong["rows without a label"].append(place)
            elif table.split is not None and split is None:
                wrong[f"rows whose split is none of {', '.join(SPLIT_WORDS)}"].append(
                    f"{place}: {row[table.split]!r}"
                )
            elif (other := found.get(name)) and other.label != label:
                wrong["images with two labels"].append(f"{place}: {name!r} is {label!r} and {other.label!r}")
            elif other and splits[name] != split:
                wrong["images in two splits"].append(f"{place}: {name!r}")
            else:
                repeated += other is not None
                values = {table.columns[number]: row[number].strip() for number in table.further}
                further = tuple(values.get(column, "") for column in columns)
                found[name] = Labelled(name, label, split or "train", further)
                splits[name] = split
    if any(splits.values()) and (lost := [name for name, split in splits.items() if split is None]):
        wrong["images of no split, though others have one"] += map(repr, lost)
    if wrong:
        kinds = "".join(f"\n  {len(each)} {kind}: {listed(each, SHOWN)}" for kind, each in wrong.items())
        raise DataError(f"{where}: the labels cannot be used:{kinds}\nCorrect the table, or move it away.")
    if repeated:
        log.warning("%s: %d rows of the tables repeat others", where, repeated)
    return found


def further_columns(tables: Sequence[Table]) -> tuple[str, ...]:
    """Return the further columns of all tables, each once."""
    return tuple(dict.fromkeys(table.columns[number] for table in tables for number in table.further))


def in_order(labels: Iterable[str]) -> tuple[str, ...]:
    """Sort labels by name, or by value if all are numbers."""
    found = sorted(labels)
    if all(label.isascii() and label.isdecimal() for label in found):
        found.sort(key=int)
    return tuple(found)


def _rows(table: Table, index: Images, wrong: dict[str, list[str]]) -> Iterator[tuple[str, Sequence[str], str]]:
    """Yield the place, the values and the file of each row that names exactly one; collect the others."""
    named = _split_of_name(table.name)
    for line, row in table.rows:
        place = f"{table.name} line {line}"
        if len(row) != len(table.columns):
            wrong[f"rows without {len(table.columns)} columns"].append(place)
            continue
        value = row[table.file].strip()
        if not value:
            wrong["rows without a file"].append(place)
        elif re.match(r"[/\\]|[A-Za-z]:", value) or ".." in re.split(r"[/\\]", value):
            wrong["rows whose file is not named below the folder"].append(f"{place}: {value!r}")
        elif len(files := index.of(value, table.name, named)) == 1:
            yield place, row, files[0]
        elif files:
            meant = listed(map(repr, files), SHOWN)
            wrong["rows whose file is ambiguous"].append(f"{place}: {value!r} may be {meant}")
        else:
            wrong["rows whose file does not exist"].append(f"{place}: {value!r}")


def _split(table: Table, row: Sequence[str], name: str) -> Split | None:
    """Return the split of a row: by its column, else by the table's name or the file's folder."""
    if table.split is not None:
        return split_named(row[table.split])
    return _split_of_name(table.name) or split_named(name.partition("/")[0])


def _split_of_name(name: str) -> Split | None:
    """Return the split that the words of a table's name mean, if it is one."""
    words = re.split(r"[^a-z]+", name.lower().rpartition(".")[0])
    found = {split for word in words if (split := split_named(word))}
    return found.pop() if len(found) == 1 else None


def _parsed(name: str, member: Member, read: Read, index: Images) -> Table:
    """Read a table; DataError if it is none of labels."""
    if member.size > MOST_BYTES:
        raise DataError(f"{name} has more than {MOST_BYTES} bytes")
    text = re.sub(r"\Asep=.\r?\n", "", text_of(read(member), name))  # a line of Excel
    first = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = "\t" if name.lower().endswith(".tsv") else max(DELIMITERS, key=first.count)
    csv.field_size_limit(MOST_BYTES)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    try:
        rows = [(reader.line_num, row) for row in reader if any(map(str.strip, row))]
    except csv.Error as error:
        raise DataError(f"{name} line {reader.line_num} is not CSV: {error}") from error
    if not rows:
        raise DataError(f"{name} is empty")
    return _with_columns(name, rows, index)


def _with_columns(name: str, rows: list[tuple[int, list[str]]], index: Images) -> Table:
    """Find the columns by their names, or by content if there are none."""
    header = [column.strip() for column in rows[0][1]]
    named = _split_of_name(name)
    files = [number for number, value in enumerate(header) if value and index.of(value, name, named)]
    if files:  # no header
        header, keys = [f"column {number + 1}" for number in range(len(header))], [""] * len(header)
    else:
        rows = rows[1:]
        keys = [re.sub(r"[^a-z0-9]", "", column.casefold()) for column in header]
    file = files[0] if files else _first(keys, FILE)
    label, split = _first(keys, LABEL), _first(keys, SPLIT)
    if len(header) == 2 and split is None:
        file = 1 - label if file is None and label is not None else file
        label = 1 - file if label is None and file is not None else label
    if file is None or label is None:
        shown = "no header" if files else f"the columns {listed(map(repr, header), 20)}"
        raise DataError(f"{name} has {shown}; a table of labels needs a header with file and label")
    table = Table(name=name, columns=_distinct(header), rows=rows, file=file, label=label, split=split)
    values = [row[file] for _, row in rows if len(row) == len(header)]
    if not any(index.of(value, name, named) for value in values):
        raise DataError(
            f"{name}: none of the {len(values)} files in it exists"
            + (f", such as {values[0]!r}" if values else "")
        )
    return table


def _distinct(header: Sequence[str]) -> list[str]:
    """Return column names that are not empty and differ."""
    found: list[str] = []
    for number, name in enumerate(header, 1):
        found.append(name if name and name not in found else f"{name} column {number}".strip())
    return found


def _first(keys: Sequence[str], names: Sequence[str]) -> int | None:
    return next((keys.index(name) for name in names if name in keys), None)
