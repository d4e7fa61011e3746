"""The rows of the tables that dataset.table names: the image, the label and the split of each.

A cell that says that there is no label leaves its image out, with a count. What is not one label of one image
is refused with its rows.
"""

import json
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from perennial.base.choices import Split
from perennial.base.config.data import TableConfig
from perennial.base.errors import DataError, listed
from perennial.data.datasets.own import table_columns, table_rows
from perennial.data.datasets.own.class_lists import class_name
from perennial.data.datasets.own.image_names import Images, folder_split
from perennial.data.datasets.own.names import SPLIT_NAMES
from perennial.data.datasets.own.split_folders import Tree
from perennial.data.datasets.own.table_columns import Table
from perennial.data.datasets.own.table_rows import Read

log = logging.getLogger(__name__)
SHOWN = 3
UNLABELLED = ("nan", "none", "null", "nil", "na", "n/a", "#n/a", "<na>", "?", "-")
STRONG, WEAK = r"[|;,]", r"[|;,/+&]|\s+and\s+|\s"  # what separates several labels, surely and perhaps
Wrong = dict[str, list[str]]  # rows by what is wrong with them


class Labelled(NamedTuple):
    """An image of a table."""

    label: str | None  # none: the folders give it
    split: Split | None
    further: tuple[str, ...]  # values of the further columns
    place: str  # of the row


class Labels(NamedTuple):
    """What tables say of images."""

    images: dict[str, Labelled]  # by their names in the tree
    unlabelled: dict[str, list[str]]  # images by the cell that says that they have no label
    columns: tuple[str, ...]  # further columns
    described: str  # the tables, for a message


def read(table: TableConfig, tree: Tree, images: Tree, content: Read, where: object) -> Labels:
    """Read the tables of dataset.table."""
    found, unlabelled = dict[str, Labelled](), defaultdict[str, list[str]](list)
    wrong, index = defaultdict[str, list[str]](list), Images(images)
    tables = [_table(table, path, split, tree, content, where) for split, path in table.paths.items()]
    columns = tuple(dict.fromkeys(each.columns[number] for each in tables for number in each.further))
    empty = {word.casefold() for word in (UNLABELLED if table.unlabelled is None else table.unlabelled)} | {""}
    repeated = 0
    for each in tables:
        for name, new in _rows(each, index, columns, wrong):
            cell = new.label
            if cell is not None and cell.casefold() in empty:
                new = new._replace(label="")  # noqa: PLW2901 - what is left of the row
            before = found.setdefault(name, new)
            if before is new and new.label == "":
                unlabelled[cell or ""].append(name)
            elif before.label != new.label:
                kind = "images with several labels, each in a row of its own"
                wrong[kind].append(f"{new.place}: {name!r} is {new.label!r} and {before.label!r}")
            elif before.split != new.split:
                wrong["images in two splits"].append(f"{new.place}: {name!r}")
            repeated += before is not new
    _require_words(table, unlabelled, len(found), where)
    _note_wrong(found, wrong)
    if any(wrong.values()):
        kinds = "".join(f"\n  {len(row)} {kind}: {listed(row, SHOWN)}" for kind, row in wrong.items() if row)
        raise DataError(f"{where}: the labels cannot be used:{kinds}\nCorrect the table, or move it away.")
    if repeated:
        log.warning("%s: %d rows of the tables repeat others", where, repeated)
    described = " and ".join(each.described() for each in tables)
    if missing := sorted(images.keys() - found.keys()):
        shown = listed(map(repr, missing), SHOWN)
        raise DataError(
            f"{where}: {len(missing)} of {len(images)} images have no row in {described}: {shown}; add rows, "
            "or move these images away"
        )
    left = {name: each for name, each in found.items() if each.label != ""}
    return Labels(left, dict(unlabelled), columns, described)


def _table(of: TableConfig, path: str, split: Split | None, tree: Tree, content: Read, where: object) -> Table:
    """One of the tables, with the columns that are named."""
    names = {member.name: name for name, member in tree.items() if not member.folder}
    if path not in names:
        known = listed([repr(each) for each in sorted(names) if table_rows.is_table(each)], SHOWN)
        raise DataError(f"{where}: dataset.table.path is {path!r}, but the tables are {known or 'none'}")
    return table_columns.of(of, path, table_rows.read(path, tree[names[path]], content), split)


def _require_words(table: TableConfig, unlabelled: Mapping[str, list[str]], images: int, where: object) -> None:
    """Check that no word that may be a class, such as none, leaves out most images, unless it is stated."""
    for cell, names in unlabelled.items():
        if cell and table.unlabelled is None and 2 * len(names) >= images:
            raise DataError(
                f"{where}: {len(names)} of {images} images are {cell!r}, a class or the word for none; if "
                f"a class, {table_columns.add(table.block | {'unlabelled': []})}\n"
                f"If not, write {json.dumps([cell])} in place of []."
            )


def _rows(table: Table, index: Images, columns: Sequence[str], wrong: Wrong) -> Iterator[tuple[str, Labelled]]:
    """Yield the image and the content of each row that names exactly one; collect the others."""
    width = len(table.columns)
    whole = [(line, row) for line, row in table.rows if len(row) == width]
    short = [f"{table.name} line {line}" for line, row in table.rows if len(row) != width]
    wrong[f"rows without {width} columns"] += short
    splits = [table.split_of(row) for _, row in whole]
    named = index.named([row[table.file] for _, row in whole], table.name, splits)
    if named.ambiguous:
        raise DataError(
            f"{table.name}: {table.columns[table.file]!r} names other images below the table's folder than "
            "below the folder of all; write paths below the folder of all"
        )
    if named.root:
        log.info("%s: all files are below %r, which is left out", table.name, named.root)
    for (line, row), files, split in zip(whole, named.files, splits, strict=True):
        place = f"{table.name} line {line}"
        if not files and (other := index.with_other_ending(row[table.file])):
            wrong["rows whose file has another ending"].append(f"{place}: {row[table.file]!r} for {other!r}")
            continue
        if _is_wrong(table, row, files, split, place, wrong):
            continue
        values = {table.columns[number]: row[number].strip() for number in table.further}
        label = _label(table, row, place, wrong) if table.label else None
        further = tuple(values.get(column, "") for column in columns)
        yield files[0], Labelled(label, split or folder_split(files[0]), further, place)


def _is_wrong(
    table: Table, row: Sequence[str], files: Sequence[str], split: Split | None, place: str, wrong: Wrong
) -> bool:
    """Note why a row names no image or split."""
    value = row[table.file].strip()
    if not value:
        wrong["rows without a file"].append(place)
    elif not files:
        wrong["rows whose file does not exist"].append(f"{place}: {value!r}")
    elif len(files) > 1:
        meant = listed(map(repr, files), SHOWN)
        wrong["rows whose file is ambiguous"].append(f"{place}: {value!r} may be {meant}")
    elif table.split is not None and split is None:
        meant = f"one of {', '.join(table.words)}" if table.words else f"a split, such as {SPLIT_NAMES}"
        name = table.columns[table.split]
        stated = f'in dataset.table, set "split": {table.asked_split} with a split for each ?, or null'
        wrong[f"rows whose value in {name!r} is not {meant}; {stated}"].append(f"{place}: {row[table.split]!r}")
    else:
        return False
    return True


def _label(table: Table, row: Sequence[str], place: str, wrong: Wrong) -> str:
    """The label of a row; of columns of 0 and 1, the name of the column with the 1."""
    if len(table.label) == 1:
        return class_name(row[table.label[0]].strip())
    values = [row[number].strip() for number in table.label]
    if not all(map(table_rows.is_bit, values)):
        wrong["rows with other values than 0 and 1 in the columns of classes"].append(place)
        return "-"
    chosen = [table.columns[number] for number, value in zip(table.label, values, strict=True) if float(value)]
    if len(chosen) != 1:
        several = "rows with several labels: a 1 in several columns"
        wrong[several if chosen else "rows without a 1 in any column"].append(place)
    return class_name(chosen[0]) if chosen else "-"


def _note_wrong(found: Mapping[str, Labelled], wrong: Wrong) -> None:
    """Note images whose row and folder say different splits, and labels that hold several ones."""
    if len({folder_split(name) for name in found}) > 1:
        wrong["images in the folder of another split"] += [
            f"{each.place}: {name!r} is for {each.split}"
            for name, each in found.items()
            if folder_split(name) not in {None, each.split}
        ]
    counts = Counter(each.label for each in found.values() if each.label)
    for several in several_labels(counts):
        first = next(each for each in found.values() if each.label == several)
        rows = f"{first.place}: {several!r} ({counts[several]} rows)"
        wrong["values with several labels an image, but an image has one"].append(rows)
    for name, each in found.items():
        if re.fullmatch(r"\{[^\[]*\}", each.label or ""):
            row = f"{each.place}: {name!r} is {each.label!r}"
            wrong["values that are objects, not names of classes"].append(row)


def several_labels(labels: Mapping[str, int]) -> list[str]:
    """Those values that hold several labels: lists, objects, and texts whose parts are labels, too."""
    parts = {label: _parts(label, STRONG) for label in labels}
    known = Counter(part for each in parts.values() for part in each)
    found = []
    for label in labels:
        weak = _parts(label, WEAK)
        structured = re.fullmatch(r"\[.*\]|\{.*\[.*\}", label, re.DOTALL) is not None
        strong = len(parts[label]) > 1 and all(known[part] > 1 for part in parts[label])
        strong |= re.search(r"[|;]", label) is not None and any(part in labels for part in parts[label])
        if structured or strong or (len(weak) > 1 and all(part in labels for part in weak)):
            found.append(label)
    return found


def _parts(label: str, separator: str) -> set[str]:
    return {part.strip() for part in re.split(separator, label) if part.strip()}
