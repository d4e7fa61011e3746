"""The columns of a table as dataset.table names them: which are files, labels and splits."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from perennial.base.choices import SPLIT_WORDS, Split, split_named
from perennial.base.config.data import Column, TableConfig
from perennial.base.errors import DataError, listed
from perennial.data.datasets.own.table_rows import Rows

SHOWN, MOST_SPLITS = 20, 5
SPLITS = {
    "split", "set", "subset", "partition", "phase", "usage", "mluse", "datasplit", "traintest", "trainvaltest",
    "holdout", "isholdout",
}  # fmt: skip
FLAG = re.compile(rf"(?:is|in|for|used?)*({'|'.join(SPLIT_WORDS)})(?:set|split|sample|image|data)?")
CHOICE = re.compile(r"(?:is|to)?(?:exclude|ignore|skip|drop|remove|delete|reject|keep|include|use)(?:p?ed|d)?")
LABEL = re.compile(r"label|class|category|species|breed|diagnosis|target|choice", re.IGNORECASE)  # in names
# A value that may be a split, such as `stage1_train` or `hold-out`.
SPEAKS = re.compile(r"(?<![a-z])(?:train|test|valid|(?:val|dev|eval)\Z|hold.?out|unseen)", re.IGNORECASE)
YES, NO = {"1", "true", "yes", "1.0"}, {"0", "false", "no", "0.0"}


@dataclass(frozen=True, kw_only=True)
class Table:
    """The rows of a table, and the numbers of its columns from 0."""

    name: str
    columns: Sequence[str]
    rows: Rows  # without the header
    file: int
    label: Sequence[int]  # none: the folders give the labels; several: columns of 0 and 1
    split: int | None
    words: Mapping[str, Split]  # the splits that values of the column mean
    separator: str | None = None  # of labels in a cell
    group: int | None = None  # also one of the further columns
    of_split: Split | None = None  # the split of the whole table

    @property
    def further(self) -> list[int]:
        """The columns that are not used."""
        used = {self.file, self.split, *self.label}
        return [number for number in range(len(self.columns)) if number not in used]

    @cached_property
    def asked_split(self) -> str:
        """The value of dataset.table.split to complete: what the values of its column mean."""
        values = sorted({row[self.split or 0].strip() for _, row in self.rows})[:SHOWN]
        meant = {value: self.words.get(value.casefold()) or split_named(value) or "?" for value in values}
        return json.dumps({self.columns[self.split or 0]: meant}, ensure_ascii=False)

    def described(self) -> str:
        """Say in a line what is read."""
        names = [repr(self.columns[number]) for number in self.label]
        labels = f"labels in {listed(names, 3)}" if names else "labels from the class folders"
        split = "" if self.split is None else f", splits in {self.columns[self.split]!r}"
        return f"{self.name!r} (files in {self.columns[self.file]!r}, {labels}{split})"

    def split_of(self, row: Sequence[str]) -> Split | None:
        """The split that a row says; none if the value is no word for one."""
        if self.split is None:
            return self.of_split
        value = row[self.split].strip().casefold()
        return self.words.get(value) if self.words else split_named(value)


def of(table: TableConfig, name: str, rows: Rows, of_split: Split | None) -> Table:
    """Find the columns in the rows of a table."""
    width = max(len(row) for _, row in rows)
    header = [f"column {number}" for number in range(1, width + 1)]
    if table.has_header:
        header = [value.strip() for value in rows[0][1]]

    def number(column: Column) -> int:
        if isinstance(column, int):
            if column > width:
                raise DataError(f"{name} has {width} columns, but dataset.table names column {column}")
            return column - 1
        if (count := header.count(column)) != 1:
            shown = listed(map(repr, header), SHOWN)
            raise DataError(
                f"{name} has {count or 'no'} columns {column!r}, which dataset.table names; its columns are "
                f"{shown}"
            )
        return header.index(column)

    split, words = table.split, dict[str, Split]()
    if isinstance(split, dict):
        ((text, meant),) = split.items()
        split = text if table.has_header else int(text)
        words = {key.casefold(): to for key, to in meant.items()}
    return Table(
        name=name, columns=_distinct(header), rows=rows[1:] if table.has_header else rows,
        file=number(table.file or 1), label=[number(column) for column in table.labels],
        split=None if split is None else number(split), words=words, separator=table.separator,
        group=None if table.group is None else number(table.group), of_split=of_split,
    )  # fmt: skip


def plain(name: str, rows: Rows) -> TableConfig:
    """The table with columns `file` and `label`, and perhaps `split`."""
    split = "split" if "split" in [value.strip() for value in rows[0][1]] else None
    return TableConfig(path=name, file="file", label="label", split=split)


def looks_like_split(name: str, values: Sequence[str]) -> bool:
    """Whether most values of a column are words for splits, or its name says that it holds splits."""
    words = sum(split_named(value) is not None for value in values)
    if words * 2 > len(values):
        return True
    few = 1 < len(set(values)) <= MOST_SPLITS
    return few and (_key(name) in SPLITS or (FLAG.fullmatch(_key(name)) is not None and _is_flag(values)))


def may_be_split(name: str, values: Sequence[str]) -> bool:
    """Whether some of a few values hold words for splits, in a column that is not named like labels."""
    few = 1 < len(set(values)) <= MOST_SPLITS
    return few and LABEL.search(name) is None and any(map(SPEAKS.search, values))


def may_leave_out(name: str, values: Sequence[str]) -> bool:
    """Whether a column may say which rows to leave out: one of yes and no, such as `exclude` or `use`."""
    marks = {value.casefold() for value in values}
    return (
        CHOICE.fullmatch(_key(name)) is not None and len(marks) > 1 and marks <= YES | NO | {"", "x", "y", "n"}
    )


def flag(name: str, values: Sequence[str]) -> dict[str, Split]:
    """The split that each value of a column of yes and no means, by its name; nothing for other columns."""
    meant = FLAG.fullmatch(_key(name))
    if meant is None or _key(name) == "valid" or not _is_flag(values):  # `valid` may be said of the row
        return {}
    split = SPLIT_WORDS[meant[1]]
    other: Split = "test" if split == "train" else "train"
    return {value: split if value.casefold() in YES else other for value in sorted(set(values))}


def _is_flag(values: Sequence[str]) -> bool:
    return {value.casefold() for value in values} <= YES | NO


def _key(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.casefold())


def table_option(table: Mapping[str, Any]) -> str:
    """The option that states a value of dataset.table."""
    return f"--set {shlex.quote(f'dataset.table={json.dumps(table, ensure_ascii=False)}')}"


def add(table: Mapping[str, Any]) -> str:
    """Say where the option is added."""
    return f"add to `perennial start FOLDER` or `perennial config`:\n  {table_option(table)}"


def _distinct(header: Sequence[str]) -> list[str]:
    """Return column names that are not empty and differ."""
    found: list[str] = []
    for number, name in enumerate(header, 1):
        found.append(name if name and name not in found else f"{name} column {number}".strip())
    return found
