"""What the columns of a table mean: which one names files, which give labels and splits."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from perennial.base.choices import Split, split_named
from perennial.base.errors import DataError, listed
from perennial.data.archives import Member
from perennial.data.archives.safety import folded
from perennial.data.datasets.own import table_rows
from perennial.data.datasets.own.table_rows import Rows

# Names of columns, without their case, blanks and punctuation, in order of preference.
FILE = (
    "file", "filename", "fname", "filepath", "path", "image", "imagefile", "imagefilename", "imagename",
    "imagepath", "imageid", "imageindex", "img", "imgfile", "imgname", "imgpath", "imgid", "photo", "photoid",
    "picture", "id", "name",
)  # fmt: skip
LABEL = (
    "labelname", "classname", "categoryname", "label", "class", "category", "labels", "classlabel", "target",
    "species", "breed", "diagnosis", "choice", "tag", "tags", "labelid", "classid", "categoryid",
)  # fmt: skip
SPLIT = ("split", "set", "subset", "partition")
# Columns of yes or no, and the splits that they mean.
SPLIT_FLAGS: dict[str, tuple[Split, Split]] = {
    "isvalid": ("validation", "train"), "isvalidation": ("validation", "train"),
    "isval": ("validation", "train"),
    "istest": ("test", "train"), "istrain": ("train", "test"), "istraining": ("train", "test"),
}  # fmt: skip
UNASSIGNED = {"unassigned"}  # in a column of splits, if all rows have it
YES, NO = {"1", "true", "yes"}, {"0", "false", "no"}
SHOWN, SAMPLED = 20, 20
CLASS = "class"  # name of the column that is made from one for each class


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table whose columns name files and labels."""

    name: str
    columns: Sequence[str]
    rows: Sequence[tuple[int, Sequence[str]]]  # number of the line that a row ends in, and its values
    file: int  # columns
    label: int
    split: int | None
    root: str = ""  # folder elsewhere that was removed from the names of files

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
            f"{self.name!r} (files in {self.columns[self.file]!r}"
            + (f" below {self.root!r}" if self.root else "")
            + f", labels in {self.columns[self.label]!r}"
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

    def has_name(self, value: str, *, whole: bool) -> bool:
        """Whether an image has the last part of a path as its name; `whole`: with its ending."""
        last = folded(re.split(r"[/\\]", value.strip())[-1])
        return last in self._by_name or (not whole and last in self._by_stem)

    def _full(self, name: str) -> str:
        return folded(f"/{self._images[name].name}")


def table_of(name: str, rows: Rows, index: Images, *, whole: bool) -> Table:
    """Find the columns of a table by their names, or by content; `whole`: files have their endings.

    Raises:
        DataError: it is no table of labels of these images.
    """
    header = [column.strip() for column in rows[0][1]]
    first = header[:1] if name.lower().endswith(".txt") else header  # which is a class in labels of YOLO
    named = [n for n, value in enumerate(first) if value and index.has_name(value, whole=True)]
    if not named and not whole:
        named = [n for n, value in enumerate(first) if value and index.has_name(value, whole=False)]
    bare = bool(named)  # no header
    columns = [f"column {number + 1}" for number in range(len(header))] if bare else _distinct(header)
    rows = rows if bare else rows[1:]
    keys = ["" if bare else re.sub(r"[^a-z0-9]", "", column.casefold()) for column in header]
    file = named[0] if bare else _file_column(keys, rows, index, whole=whole)
    label = _first(["" if number == file else key for number, key in enumerate(keys)], LABEL)
    split = _first(keys, SPLIT)
    if bare and len(header) == 3:
        label, split = _of_three(rows, named[0])
    elif split is None and (split := _first(keys, tuple(SPLIT_FLAGS))) is not None:
        rows = _with_splits(rows, split, SPLIT_FLAGS[keys[split]])
    if len(header) == 2 and split is None:
        file = 1 - label if file is None and label is not None else file
        label = 1 - file if label is None and file is not None else label
    table = Table(name=name, columns=columns, rows=rows, file=file or 0, label=label or 0, split=split)
    if file is not None and label is None:
        table = _of_classes(table)
    elif file is None or label is None:
        shown = "no header" if bare else f"the columns {listed(map(repr, header), SHOWN)}"
        raise DataError(
            f"{name} has {shown}; a table of labels needs a header with file and label, or with file and a "
            "column of 0 and 1 for each class"
        )
    return _below_root(table, index, whole=whole)


def _of_three(rows: Rows, file: int) -> tuple[int | None, int | None]:
    """Return the columns of labels and splits of three without a header, beside that of files.

    The third column is one of splits, as in tables for Google's Vertex AI, or numbers the rows, as in lists for
    MXNet and SageMaker.
    """
    whole = [row for _, row in rows if len(row) == 3]
    for third in {0, 1, 2} - {file}:
        values = [row[third].strip() for row in whole]
        if all(map(split_named, values)):
            return 3 - file - third, third
        numbered = all(map(str.isdecimal, values)) and len(set(values)) == len(values)
        if numbered or {value.casefold() for value in values} == UNASSIGNED:
            return 3 - file - third, None
    return None, None


def mentions_images(rows: Rows, index: Images) -> bool:
    """Whether the first lines of a text name images with their endings."""
    return any(
        index.has_name(row[0].split()[0], whole=True) for _, row in rows[:SAMPLED] if row and row[0].strip()
    )


def _file_column(keys: Sequence[str], rows: Rows, index: Images, *, whole: bool) -> int | None:
    """Return the column that is named as one of files, or else the only one that holds names of images."""
    sample = [row for _, row in rows[:SAMPLED] if len(row) == len(keys)]
    file = _first(keys, FILE)
    if not sample or (file is not None and any(index.has_name(row[file], whole=whole) for row in sample)):
        return file
    holding = [
        number for number in range(len(keys)) if all(index.has_name(row[number], whole=True) for row in sample)
    ]
    return holding[0] if len(holding) == 1 else file


def _with_splits(rows: Rows, column: int, meant: tuple[Split, Split]) -> Rows:
    """Write a column of yes or no as one of splits."""
    words = dict.fromkeys(YES, meant[0]) | dict.fromkeys(NO, meant[1])
    return [
        (
            line,
            [words.get(value.strip().lower(), value) if n == column else value for n, value in enumerate(row)],
        )
        for line, row in rows
    ]


def _of_classes(table: Table) -> Table:
    """Write the columns of 0 and 1, one for each class, as one column of labels.

    Raises:
        DataError: there are no such columns, or an image is of several classes.
    """
    used = {table.file} | ({table.split} if table.split is not None else set())
    whole = [row for _, row in table.rows if len(row) == len(table.columns)]
    hot = table_rows.one_hot(table.columns, whole, used) if whole else []
    if not hot:
        raise DataError(
            f"{table.name} has the columns {listed(map(repr, table.columns), SHOWN)}; a table of labels needs "
            "a header with file and label, or with file and a column of 0 and 1 for each class"
        )
    kept = [number for number in range(len(table.columns)) if number not in hot]
    rows: Rows = []
    several = []
    for line, row in table.rows:
        if len(row) != len(table.columns):
            rows.append((line, []))  # is refused with the others of its kind
            continue
        names = [table.columns[number] for number in hot if float(row[number])]
        several += [line] if len(names) > 1 else []
        rows.append((line, [*(row[number] for number in kept), "".join(names[:1])]))
    if several:
        raise DataError(
            f"{table.name}: {len(several)} rows have a 1 in several columns of classes, such as line "
            f"{several[0]}; an image has one class"
        )
    columns = [table.columns[number] for number in kept]
    return Table(
        name=table.name,
        columns=_distinct([*columns, CLASS]),
        rows=rows,
        file=kept.index(table.file),
        label=len(columns),
        split=None if table.split is None else kept.index(table.split),
    )


def _below_root(table: Table, index: Images, *, whole: bool) -> Table:
    """Remove the folder of another machine that all files of a table are below, if none exists with it.

    Raises:
        DataError: none exists without it, either.
    """
    named = split_of_name(table.name)
    values = [row[table.file].strip() for _, row in table.rows if len(row) == len(table.columns)]
    if any(index.of(value, table.name, named) for value in values if index.has_name(value, whole=whole)):
        return table
    parts = [re.split(r"[/\\]+", value)[:-1] for value in values[:SAMPLED]]
    common = takewhile(lambda same: len(set(same)) == 1, zip(*parts, strict=False))
    for count, _ in enumerate(common, 1):
        root = re.match(rf"(?:[^/\\]*[/\\]+){{{count}}}", values[0])[0]  # type: ignore[index]  # it has so many
        if any(index.of(value.removeprefix(root), table.name, named) for value in values[:SAMPLED]):
            rows = [
                (
                    line,
                    [
                        value.strip().removeprefix(root) if n == table.file else value
                        for n, value in enumerate(row)
                    ],
                )
                for line, row in table.rows
            ]
            return replace(table, rows=rows, root=root)
    raise DataError(
        f"{table.name}: none of the {len(values)} files in it exists"
        + (f", such as {values[0]!r}" if values else "")
    )


def _distinct(header: Sequence[str]) -> list[str]:
    """Return column names that are not empty and differ."""
    found: list[str] = []
    for number, name in enumerate(header, 1):
        found.append(name if name and name not in found else f"{name} column {number}".strip())
    return found


def _first(keys: Sequence[str], names: Sequence[str]) -> int | None:
    return next((keys.index(name) for name in names if name in keys), None)


def split_of_name(name: str) -> Split | None:
    """Return the split that the words of a table's name mean, if it is one."""
    words = re.split(r"[^a-z]+", name.lower().rpartition(".")[0])
    found = {split for word in words if (split := split_named(word))}
    return found.pop() if len(found) == 1 else None
