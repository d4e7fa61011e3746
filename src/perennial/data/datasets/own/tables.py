"""Tables as people have them: rows, and which columns are files, labels and splits.

Each row has the number of the line that it ends in.

    .csv, .tsv    commas, semicolons, tabs or bars; Excel's first line `sep=;`
    .txt, .lst    the same, or in .txt lines such as `images/1.jpg 3`, of which the last word is the label
    .jsonl        an object in each line, as in metadata.jsonl of Hugging Face
    .json         {"1.jpg": "cat"}, {"1.jpg": ["cat", "dog"]}, or a list of objects

The first row holds the names of the columns, if the file has them; those of a mapping are `file` and `label`.
"""

import csv
import io
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from perennial.base.choices import SPLIT_WORDS, Split, split_named
from perennial.base.config.data import Column, TableConfig
from perennial.base.errors import DataError, listed
from perennial.data.archives import Member
from perennial.data.datasets.own import foreign
from perennial.data.datasets.own.class_lists import decoded_text, parsed_json
from perennial.data.datasets.own.foreign import Read

TABLES = (".csv", ".tsv")
LISTS = (".txt", ".json", ".jsonl", ".lst")  # which may also hold anything else
MOST_LISTS = 20  # texts of a folder that may be tables; a folder of more has one for each image
DELIMITERS = ",;\t|"
MOST_BYTES = 1 << 28
MOST_COLUMNS, MOST_VALUES = 10_000, 50_000_000
Rows = list[tuple[int, list[str]]]
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
YES, NO = {"1", "true", "yes", "1.0", "y", "t"}, {"0", "false", "no", "0.0", "n", "f"}


def is_table(name: str) -> bool:
    """Whether a file has the ending of a table or list."""
    return name.lower().endswith((*TABLES, *LISTS))


def candidates(tree: Mapping[str, Member]) -> list[str]:
    """The names of possible tables beside images or one folder below, in order; 1.jpg.json belongs to 1.jpg."""
    found = [name for name, each in tree.items() if is_table(name) and not each.folder and name.count("/") <= 1]
    first = partial(re.sub, r"\.[^/]*\Z", "")
    others = {first(name) for name, each in tree.items() if not (each.folder or is_table(name))}
    lists = [name for name in found if name.lower().endswith(LISTS) and first(name) not in others]
    counts = Counter(name.rpartition("/")[0] for name in lists)
    few = {name for name in lists if counts[name.rpartition("/")[0]] <= MOST_LISTS}
    return sorted(name for name in found if name.lower().endswith(TABLES) or name in few)


def read(name: str, member: Member, content: Read) -> Rows:
    """Read the rows of a table that are not empty."""
    if member.size > MOST_BYTES:
        raise DataError(f"{name} has more than {MOST_BYTES} bytes")
    text, lower = decoded_text(content(member), name), name.lower()
    if lower.endswith(foreign.MANIFESTS):
        foreign.require_table(name, text)
    if lower.endswith(".jsonl"):
        lines = enumerate(io.StringIO(text, newline=None), 1)
        found = [(number, parsed_json(line, f"{name} line {number}")) for number, line in lines if line.strip()]
        rows = _of_objects(found, name)
    elif lower.endswith(".json"):
        rows = _of_json(parsed_json(text, name), name)
    else:
        rows = (_of_lines(text) if lower.endswith(".txt") else []) or _of_csv(text, name)
    if not rows:
        raise DataError(f"{name} is empty")
    return rows


def _bounded(rows: Iterable[tuple[int, list[str]]], name: str) -> Rows:
    """Collect rows, as long as they have not too many values."""
    found, values = list[tuple[int, list[str]]](), 0
    for line, row in rows:
        values += len(row)
        if len(row) > MOST_COLUMNS or values > MOST_VALUES:
            most = f"{MOST_COLUMNS} columns or {MOST_VALUES} values"
            raise DataError(f"{name} has more than {most}, so it is no table of labels")
        found.append((line, row))
    return found


def _of_csv(text: str, name: str) -> Rows:
    text = re.sub(r"\Asep=.(?:\r\n|\n|\r)", "", text)  # a line of Excel
    first = next((line for line in io.StringIO(text, newline=None) if line.strip()), "")
    first = re.sub(r'"[^"]*"', "", first)
    delimiter = "\t" if name.lower().endswith(".tsv") else max(DELIMITERS, key=first.count)
    csv.field_size_limit(MOST_BYTES)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    try:
        return _bounded(((reader.line_num, row) for row in reader if any(map(str.strip, row))), name)
    except csv.Error as error:
        raise DataError(f"{name} line {reader.line_num} is not CSV: {error}") from error


def _of_lines(text: str) -> Rows:
    """Read lines of a file and a label with blanks between; none if the text has other separators."""
    lines = [(number, line.strip()) for number, line in enumerate(io.StringIO(text, newline=None), 1)]
    lines = [(number, line) for number, line in lines if line]
    if not lines or any(mark in lines[0][1] for mark in DELIMITERS):
        return []
    return [(number, line.rsplit(maxsplit=1)) for number, line in lines]


def _of_json(value: Any, name: str) -> Rows:
    """Read labels by their files, or a list of objects; the number of a row is its place in the document."""
    if isinstance(value, dict) and value and all(isinstance(each, str | int | list) for each in value.values()):
        pairs = ((number, [key, _shown(each)]) for number, (key, each) in enumerate(value.items(), 1))
        return [(0, ["file", "label"]), *pairs]
    if isinstance(value, list):
        return _of_objects(list(enumerate(value, 1)), name)
    raise DataError(f'{name} is not a table: expected {{"1.jpg": "cat"}} or a list of objects')


def _of_objects(found: Sequence[tuple[int, Any]], name: str) -> Rows:
    """Write objects as rows below the names of all their keys."""
    columns: dict[str, None] = {}
    for number, each in found:
        if not isinstance(each, dict):
            raise DataError(f"{name} line {number} is not an object")
        columns.update(dict.fromkeys(each))
        if len(columns) > MOST_COLUMNS:
            raise DataError(f"{name} has more than {MOST_COLUMNS} columns, so it is no table of labels")
    rows = _bounded(((number, [_shown(each.get(key)) for key in columns]) for number, each in found), name)
    return [(0, list(columns)), *rows] if rows else []


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def is_bit(text: str) -> bool:
    """Whether a value is 0 or 1, perhaps with a fraction of zeros."""
    return re.fullmatch(r"\s*[01](?:\.0*)?\s*", text) is not None


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
        found = {"" if self.group is None else row[self.group].strip() for _, row in self.rows} - {""}
        groups = f", {len(found)} groups in {self.columns[self.group or 0]!r}" if found else ""
        return f"{self.name!r} (files in {self.columns[self.file]!r}, {labels}{split}{groups})"

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
    is_choice = CHOICE.fullmatch(_key(name)) is not None
    return is_choice and len(marks) > 1 and marks <= YES | NO | {"", "x"}


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
