"""Propose dataset.table for a folder without class folders: the only reading of its tables that fits all rows.

The stages use none of this: they use what params.yaml says.
"""

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from perennial.base.choices import Split, Task
from perennial.base.config.data import DatasetConfig, TableConfig
from perennial.base.errors import ConfigError, DataError, listed
from perennial.data.archives import Member
from perennial.data.archives.safety import folded
from perennial.data.datasets.own import class_lists, image_assignment, tables
from perennial.data.datasets.own.foreign import Read
from perennial.data.datasets.own.image_assignment import Contents
from perennial.data.datasets.own.names import table_split
from perennial.data.datasets.own.side_tables import ALL_ROWS, SideTable, SideTables
from perennial.data.datasets.own.split_folders import Layout
from perennial.project.start import candidates
from perennial.project.start.candidates import EMPTY, Named

SHOWN = 4


class Reading(NamedTuple):
    """A value of dataset.table, and what it gives."""

    table: TableConfig
    task: Task
    found: Layout | None
    error: str = ""

    def options(self) -> str:
        """The options that choose it."""
        block, labels = self.table.block, self.table.labels
        task = "--task multilabel" if self.task == "multilabel" else ""
        if any(isinstance(block[key], dict) for key in ("path", "split")) or not labels:
            return f"{tables.table_option(block)} {task}".strip()
        values = [("--table", block["path"]), ("--file-column", block["file"])]
        values += [("--label-column", each) for each in labels]
        values += [("--split-column", "" if block["split"] is None else block["split"])]
        values += [("--separator", block["separator"])] if "separator" in block else []
        return " ".join([*(f"{name} {shlex.quote(str(value))}" for name, value in values), task]).strip()


def choose(
    members: Sequence[Member], read: Read, where: Path, named: Named
) -> tuple[TableConfig | None, Layout, bool]:
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
        known = "; ".join((listed(map(repr, beside.names()), SHOWN) or "none", *beside.problems))
        raise ConfigError(f"--table {named.table} names no table of images in {where}; tables there: {known}")
    tasks: tuple[Task, ...] = (named.task,) if named.task else ("multiclass", "multilabel")
    tasks = ("multilabel",) if named.separator else tasks
    readings = [
        _tried(find, table, task)
        for task in tasks
        for table in _readings(tables, there, beside, read, replace(named, task=task), sure=len(tasks) > 1)
    ]
    kinds = _different(readings)
    # Another column of the table may name other images, be it in a part of the rows.
    files = {each.table.file for each in readings if kinds and each.table.path == kinds[0].table.path}
    if len(kinds) == 1 and len(files) == 1 and not _other_labels(readings, kinds[0]):
        table, task, found, _ = kinds[0]
        assert found is not None
        all_named = named.table and named.file and (named.label or table.label is None)
        if not all_named:
            chosen = next(each for each in tables if each.path in table.paths.values())
            chosen.require_no_choice(table.labels, f"{ALL_ROWS}, add\n  {kinds[0].options()}", where)
        return table, found, not (all_named and (task == "multiclass" or len(tasks) == 1))
    raise _refused(readings, beside, where)


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
        tables.LABEL.search(str(name)) is not None
        and set(map(folded, table.values(column))) != set(map(folded, found.classes))
        for table in unused
        for column, name in enumerate(table.columns)
    )


def _other_labels(readings: Sequence[Reading], chosen: Reading) -> bool:
    """Whether a column that looks like labels was refused, such as for a misspelled class: it may be meant."""
    alike = [each for each in readings if each.task == chosen.task and each.table.path == chosen.table.path]
    return any(each.found is None and each.table.label != chosen.table.label for each in alike)


def _tried(find: Callable[..., Layout], table: TableConfig, task: Task) -> Reading:
    try:
        return Reading(table, task, find(table=table, task=task))
    except DataError as error:
        return Reading(table, task, None, str(error))


def _different(readings: Sequence[Reading]) -> list[Reading]:
    """The readings that fit and give images other classes or splits than those before."""
    kinds: dict[frozenset[tuple[str, str, Split]], Reading] = {}
    for each in readings:
        if each.found is not None:
            items = [(item, split) for split, part in each.found.splits.items() for item in part]
            meant = frozenset((item.member.name, each.found.shown(item), split) for item, split in items)
            kinds.setdefault(meant, each)
    return list(kinds.values())


def _refused(readings: Sequence[Reading], beside: SideTables, where: Path) -> DataError:
    if not readings:
        there = "; ".join(f"{each.name!r} has {listed(map(repr, each.columns), 20)}" for each in beside.tables)
        return DataError(f"{where}: no column looks like labels ({there}); name it with --label-column")
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
        is_part = table in parts.values()
        if is_part and table is not parts["train"]:
            continue
        for columns in candidates.columns(table, named, sure=sure):
            value: dict[str, Any] = {"path": table.path, **columns}
            if is_part:
                value |= {"path": {split: each.path for split, each in parts.items()}, "split": None}
            label, cells = value["label"], list[str]()
            if label is not None and not isinstance(label, list):
                cells = table.values(table.columns.index(label))
            if named.task == "multilabel":
                cells = [each for cell in cells for each in candidates.labels_of(cell, value["separator"])]
            value["classes"] = _class_list(cells, there.class_lists(beside), read)
            if table_config := _checked(value, named.task or "multiclass"):
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
