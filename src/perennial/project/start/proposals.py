"""Propose dataset.table for a folder without class folders: the only reading of its tables that fits all rows.

The content of columns decides, and their names where several hold labels. The stages use none of this: they
use what params.yaml says.
"""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from perennial.base.choices import Split, Task
from perennial.base.config.data import DatasetConfig, TableConfig
from perennial.base.errors import ConfigError, DataError, listed
from perennial.data.archives import Member
from perennial.data.archives.safety import folded
from perennial.data.datasets.own import (
    class_lists,
    image_assignment,
    label_table,
    several_labels,
    table_columns,
    table_rows,
)
from perennial.data.datasets.own.image_assignment import Contents
from perennial.data.datasets.own.names import table_split
from perennial.data.datasets.own.side_tables import SideTable, SideTables
from perennial.data.datasets.own.split_folders import Layout
from perennial.data.datasets.own.table_rows import Read

SHOWN = 4
EMPTY = {"", *label_table.UNLABELLED}  # cells that say that there is no label
SEVERAL = re.compile(rf"{table_columns.LABEL.pattern}|\btags?\b|keyword", re.IGNORECASE)  # in names of columns


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


class Reading(NamedTuple):
    """A value of dataset.table, and what it gives."""

    table: TableConfig
    task: Task
    found: Layout | None
    error: str = ""

    def options(self) -> str:
        """The options that choose it."""
        block = self.table.block
        label = block["label"] if isinstance(block["label"], list) else [block["label"]]
        task = "--task multilabel" if self.task == "multilabel" else ""
        if any(isinstance(block[key], dict) for key in ("path", "split")) or label == [None]:
            return f"{table_columns.table_option(block)} {task}".strip()
        values = [("--table", block["path"]), ("--file-column", block["file"])]
        values += [("--label-column", each) for each in label]
        values += [("--split-column", "" if block["split"] is None else block["split"])]
        values += [("--separator", block["separator"])] if "separator" in block else []
        return " ".join([*(f"{name} {shlex.quote(str(value))}" for name, value in values), task]).strip()


Members = Sequence[Member]


def choose(members: Members, read: Read, where: Path, named: Named) -> tuple[TableConfig | None, Layout, bool]:
    """Find the value of dataset.table, what it gives, and whether something was chosen that nobody named."""
    find = partial(image_assignment.find, members, read, where)
    if named.whole:
        table, task = _checked(named.whole, named.task or "multiclass"), named.task or "multiclass"
        return table, find(table=table, task=task), False
    there = image_assignment.contents(members, where)
    beside = there.side_tables(read, named.table)
    if named.nothing:
        try:
            default = find()
            return None, default, bool(default.unlabelled) or _has_other_labels(beside, default)
        except DataError:
            if not beside.tables or _has_class_folders(there, beside, where):
                raise
    tables = [each for each in beside.tables if named.table in {None, each.path, each.name}]
    if not tables:
        names = listed(map(repr, beside.names()), SHOWN) or "none"
        raise ConfigError(f"--table {named.table} names no table of images in {where}; tables there: {names}")
    tasks: tuple[Task, ...] = (named.task,) if named.task else ("multiclass", "multilabel")
    tasks = ("multilabel",) if named.separator else tasks
    readings = [
        _tried(find, table, task)
        for task in tasks
        for table in _readings(tables, there, beside, read, replace(named, task=task), sure=len(tasks) > 1)
    ]
    kinds = _different([each for each in readings if each.found is not None])
    # Another column of the table may name other images, be it in a part of the rows.
    files = {each.table.file for each in readings if kinds and each.table.path == kinds[0].table.path}
    if len(kinds) == 1 and len(files) == 1:
        table, task, found, _ = kinds[0]
        assert found is not None
        all_named = named.table and named.file and (named.label or table.label is None)
        return table, found, not (all_named and (task == "multiclass" or len(tasks) == 1))
    one = [each for each in readings if each.task == tasks[0]] if not kinds else readings
    raise _refused(one or readings, beside, where)


def _checked(value: Any, task: Task) -> TableConfig | None:
    """The value of dataset.table that a person set."""
    try:
        return DatasetConfig(name="image_folder", task=task, table=value).table
    except ValidationError as error:
        raise ConfigError(f"dataset.table {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None


def _has_class_folders(there: Contents, beside: SideTables, where: Path) -> bool:
    try:
        image_assignment.class_folders(there, beside, where)
    except DataError:
        return False
    return True


def _has_other_labels(beside: SideTables, found: Layout) -> bool:
    """Whether a table that is not used has a column of labels by its name, with other classes."""
    unused = [table for table in beside.tables if table.name in found.unused and table.header]
    return any(
        table_columns.LABEL.search(str(name)) is not None
        and set(map(folded, table.values(column))) != set(map(folded, found.classes))
        for table in unused
        for column, name in enumerate(table.columns)
    )


def _tried(find: Callable[..., Layout], table: TableConfig, task: Task) -> Reading:
    try:
        return Reading(table, task, find(table=table, task=task))
    except DataError as error:
        return Reading(table, task, None, str(error))


def _different(readings: Sequence[Reading]) -> list[Reading]:
    """The readings that give images other classes or splits than those before."""
    kinds: list[Reading] = []
    for each in readings:
        if all(_meant(each) != _meant(other) for other in kinds):
            kinds.append(each)
    return kinds


def _meant(reading: Reading) -> dict[str, tuple[str, Split]]:
    found = reading.found
    assert found is not None
    items = ((item, split) for split, part in found.splits.items() for item in part)
    return {item.member.name: (found.shown(item), split) for item, split in items}


def _refused(readings: Sequence[Reading], beside: SideTables, where: Path) -> DataError:
    if not readings:
        return DataError(f"{where}: {beside.asked() or 'no table has a column of labels'}")
    if len(readings) == 1:
        return DataError(f"{readings[0].error}\nIt was read with {readings[0].options()}")
    shown = []
    for each in readings[:SHOWN]:
        lines = each.error.split("\n")[:2] if each.found is None else each.found.lines()[1:6]
        shown.append("\n    ".join([f"  {each.options()}", *map(str.strip, lines)]))
    fits = any(each.found is not None for each in readings)
    advice = "choose one by its options" if fits else "none fits all images and rows"
    more = f"\n  and {len(readings) - SHOWN} more" if len(readings) > SHOWN else ""
    return DataError(f"{where}: {len(readings)} readings of the tables; {advice}:\n" + "\n".join(shown) + more)


def _readings(
    tables: Sequence[SideTable], there: Contents, beside: SideTables, read: Read, named: Named, *, sure: bool
) -> Iterator[TableConfig]:
    """All values of dataset.table that the content of tables allows; `sure`: several labels must show."""
    parts = _by_split(tables) if named.table is None else {}
    for table in tables:
        if table in parts.values() and table is not parts["train"]:
            continue
        for columns in _columns(table, named, sure=sure):
            path: Any = (
                {split: each.path for split, each in parts.items()} if table in parts.values() else table.path
            )
            if parts and path != table.path:
                columns["split"] = None
            labels = (
                []
                if columns["label"] is None or isinstance(columns["label"], list)
                else table.values(table.columns.index(columns["label"]))
            )
            if named.task == "multilabel":
                labels = [label for cell in labels for label in _parts(cell, columns["separator"])]
            columns["classes"] = _class_list(labels, there.class_lists(beside), read)
            if table_config := _checked({"path": path, **columns}, named.task or "multiclass"):
                yield table_config


def _by_split(tables: Sequence[SideTable]) -> dict[Split, SideTable]:
    """The tables with equal columns that are named after splits."""
    named = [(split, each) for each in tables if (split := table_split(each.name))]
    train = [each for split, each in named if split == "train"]
    if len(train) != 1:
        return {}
    alike = [(split, each) for split, each in named if each.columns == train[0].columns]
    found = dict(alike)
    return found if 1 < len(found) == len(alike) else {}


def _columns(table: SideTable, named: Named, *, sure: bool) -> Iterator[dict[str, Any]]:
    """The columns of files, labels and splits that a table may have."""
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
        shown = listed(map(repr, columns), SHOWN * 5)
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
    return found


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


def _label_columns(table: SideTable, used: set[int | None], named: Named) -> list[Any]:
    """The values of dataset.table.label that content and names allow."""
    if named.label:
        chosen = [table.columns[_number(table, "--label-column", each)] for each in named.label]
        return [chosen if len(chosen) > 1 else chosen[0]]
    left = [column for column in range(len(table.columns)) if column not in used]
    if "label" in table.columns and table.columns.index("label") in left:
        return ["label"]
    bits = [column for column in left if all(map(table_rows.is_bit, table.values(column)))]
    found = [column for column in left if len(left) == 1 or _holds_labels(table.values(column))]
    if known := [column for column in found if table_columns.LABEL.search(str(table.columns[column]))]:
        return [table.columns[column] for column in _partitions(table, known)]
    ones = {sum(float(table.values(column)[row]) for column in bits) for row in range(len(table.body))}
    hot: list[Any] = []
    if len(bits) > 1 and (ones == {1} or set(bits) == set(left)):
        hot = [[str(table.columns[column]) for column in bits]] if table.header else []
        found = [each for each in found if each not in bits]
    return hot + [table.columns[column] for column in _partitions(table, found)]


def _several_columns(
    table: SideTable, used: set[int | None], named: Named, *, sure: bool
) -> list[tuple[Any, str | None]]:
    """Columns of several labels, or of 0 and 1, each with what separates the labels of a cell."""
    left = [_number(table, "--label-column", each) for each in named.label]
    left = left or [column for column in range(len(table.columns)) if column not in used]
    bits = [column for column in left if all(map(table_rows.is_bit, table.values(column)))]
    if len(bits) > 1 and bits == left and table.header:
        ones = {sum(float(table.values(column)[row]) for column in bits) for row in range(len(table.body))}
        return [] if sure and ones == {1} else [([str(table.columns[column]) for column in bits], None)]
    found = [
        (table.columns[column], mark) for column in left for mark in _separators(table.values(column), named)
    ]
    strong = [each for each in found if each[1] is None or re.fullmatch(several_labels.STRONG, each[1])]
    named_so = [each for each in strong or found if SEVERAL.search(str(each[0])) is not None]
    plain = [] if sure or found else [(table.columns[column], named.separator) for column in left]
    return named_so or strong or found or plain


def _separators(cells: Sequence[str], named: Named) -> list[str | None]:
    """What may separate labels: each label is in several cells, and in different ones."""
    if named.separator is not None:
        return [named.separator]
    if any(map(several_labels.LIST.fullmatch, cells)):
        return [None]
    found: list[str | None] = []
    for mark in several_labels.SEPARATORS:
        parts = [_parts(cell, mark) for cell in cells]
        counts = Counter(label for each in parts for label in each)
        shared = Counter(label for each in set(map(tuple, parts)) for label in each)
        if any(mark in cell for cell in cells) and min(counts.values(), default=0) > 1 < max(shared.values()):
            found.append(mark)
    return found


def _parts(cell: str, separator: str | None) -> list[str]:
    try:
        return several_labels.of_cell(cell, separator)
    except ValueError:
        return []


def _cells(table: SideTable, column: int) -> list[str]:
    """The values of a column, empty where they say that there is no label."""
    return ["" if value.casefold() in EMPTY else value for value in table.values(column)]


def _holds_labels(values: Sequence[str]) -> bool:
    """Whether values are those of classes: several, repeated, and no measures."""
    kept = [value for value in values if value.casefold() not in EMPTY]
    measures = any(re.fullmatch(r"[+-]?[0-9]*\.[0-9]*[1-9][0-9]*(?:e[+-]?[0-9]+)?", value) for value in kept)
    return 1 < len(set(kept)) < len(kept) and not measures


def _partitions(table: SideTable, columns: Sequence[int]) -> list[int]:
    """Leave out columns of ids that divide the rows as one of names does, and columns that repeat another."""
    cells = {column: _cells(table, column) for column in columns}
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


def _class_list(labels: Sequence[str], lists: Sequence[Member], read: Read) -> str | None:
    """The list that names labels that are numbers."""
    ids = {label for label in labels if label.casefold() not in EMPTY}
    if not ids or not all(label.isascii() and label.isdecimal() for label in ids):
        return None
    numbers = sorted(map(int, ids))
    names = [class_lists.names_of(read(each), Path(each.name), numbers) for each in lists]
    for each, found in zip(lists, names, strict=True):
        if found != names[0]:
            raise DataError(
                f"{each.name} lists other classes than {lists[0].name}: {listed(map(repr, found), SHOWN)} and "
                f"{listed(map(repr, names[0]), SHOWN)}; remove the wrong one"
            )
    return lists[0].name if lists else None
