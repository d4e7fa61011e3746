"""The rows of the tables that dataset.table names: the image, the label and the split of each.

A cell that says that there is no label leaves its image out, with a count. What is not one label of one image
is refused with its rows. With dataset.task multilabel, a cell may hold several labels, split by
dataset.table.separator or as a JSON list, or none if it is empty.
"""

import json
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from perennial.base.choices import Split, Task
from perennial.base.config.data import TableConfig
from perennial.base.errors import DataError, listed
from perennial.data.datasets.own import tables
from perennial.data.datasets.own.class_lists import class_name
from perennial.data.datasets.own.foreign import Read
from perennial.data.datasets.own.image_names import Images, folder_split
from perennial.data.datasets.own.names import SPLIT_NAMES
from perennial.data.datasets.own.split_folders import Tree
from perennial.data.datasets.own.tables import Table

log = logging.getLogger(__name__)
SHOWN = 3
SEVERAL = re.compile("several (labels|columns)")  # in what is wrong with rows
UNLABELLED = (
    "nan", "none", "null", "nil", "na", "n/a", "#n/a", "<na>", "?", "-", "undefined", "unlabeled", "unlabelled",
    "#ref!", "#name?", "#value!", "#div/0!", "#null!", "#num!",
)  # fmt: skip
LIST = re.compile(r"\[.*\]", re.DOTALL)
STRONG, WEAK = r"[|;,]", r"[|;,/+&]|\s+and\s+|\s"  # what separates several labels, surely and perhaps
SEPARATORS = ("|", ";", ",", "/", "+", "&", " and ", " ")
Wrong = dict[str, list[str]]  # rows by what is wrong with them


class Labelled(NamedTuple):
    """An image of a table."""

    labels: tuple[str, ...] | None  # none: the folders give them
    split: Split | None
    further: tuple[str, ...]  # values of the further columns
    place: str  # of the row
    cell: str | None = None  # that holds the labels, if one does
    left_out: bool = False  # because the cell says that it has no label
    group: str = ""


class Labels(NamedTuple):
    """What tables say of images."""

    images: dict[str, Labelled]  # by their names in the tree
    unlabelled: dict[str, list[str]]  # images by the cell that says that they have no label
    columns: tuple[str, ...]  # further columns
    described: str  # the tables, for a message


def read(
    table: TableConfig, tree: Tree, images: Tree, content: Read, where: object, task: Task = "multiclass"
) -> Labels:
    """Read the tables of dataset.table."""
    several = task == "multilabel"
    wrong, index = defaultdict[str, list[str]](list), Images(images)
    tables = [_table(table, path, split, tree, content, where) for split, path in table.paths.items()]
    columns = tuple(dict.fromkeys(each.columns[number] for each in tables for number in each.further))
    rows = [row for each in tables for row in _rows(each, index, columns, wrong, several=several)]
    rows = [(name, _judged(row, table, wrong, several=several)) for name, row in rows]
    found = _of_images(rows, wrong, several=several)
    unlabelled = defaultdict[str, list[str]](list)
    for name, row in found.items():
        if row.left_out:
            unlabelled[row.cell or ""].append(name)
    _require_words(table, unlabelled, len(found), where)
    held = _note_several(table, found, wrong, several=several)
    _note_wrong(found, wrong)
    if any(wrong.values()):
        kinds = "".join(f"\n  {len(row)} {kind}: {listed(row, SHOWN)}" for kind, row in wrong.items() if row)
        if held or (not several and any(SEVERAL.search(kind) for kind, row in wrong.items() if row)):
            kinds += f"\nFor several labels an image, {option(held)}."
        raise DataError(f"{where}: the labels cannot be used:{kinds}\nCorrect the table, or move it away.")
    if table.separator and not any(table.separator in (each.cell or "") for each in found.values()):
        raise DataError(
            f"{where}: dataset.table.separator is {table.separator!r}, but no cell holds it; set it to the one "
            "of the table, or to null where each cell is a JSON list or one label"
        )
    if repeated := len(rows) - len(found):
        log.warning("%s: %d rows of the tables repeat others", where, repeated)
    described = " and ".join(each.described() for each in tables)
    if missing := sorted(images.keys() - found.keys()):
        shown = listed(map(repr, missing), SHOWN)
        raise DataError(
            f"{where}: {len(missing)} of {len(images)} images have no row in {described}: {shown}; add rows, "
            "or move these images away"
        )
    left = {name: each for name, each in found.items() if not each.left_out}
    return Labels(left, dict(unlabelled), columns, described)


def _judged(row: Labelled, table: TableConfig, wrong: Wrong, *, several: bool) -> Labelled:
    """Leave a row out if its cell says that there is no label; an empty one of several labels has none."""
    stated, cell = table.unlabelled, (row.cell or "").casefold()
    words = {word.casefold() for word in (UNLABELLED if stated is None else stated)}
    if several and stated is None:
        if cell in words:
            option = f'in dataset.table, set "unlabelled": {json.dumps([row.cell])} to leave them out'
            wrong[f"cells that are a class or a word for none; {option}, [] for a class"].append(row.place)
        return row
    out = row.cell is not None and (cell in words or not (cell or several))
    return row._replace(labels=(), left_out=True) if out else row


def _of_images(rows: Sequence[tuple[str, Labelled]], wrong: Wrong, *, several: bool) -> dict[str, Labelled]:
    """The rows by image; other rows of an image must say the same."""
    found: dict[str, Labelled] = {}
    for name, new in rows:
        before = found.setdefault(name, new)
        if (before.labels, before.left_out) != (new.labels, new.left_out):
            kind = "images with several labels, each in a row of its own"
            kind += "; write all labels of an image into one row" if several else ""
            one, other = (", ".join(row.labels or ()) for row in (new, before))
            wrong[kind].append(f"{new.place}: {name!r} is {one!r} and {other!r}")
        elif before.split != new.split:
            wrong["images in two splits"].append(f"{new.place}: {name!r}")
        elif before.group != new.group:
            wrong["images in two groups"].append(f"{new.place}: {name!r}")
    return found


def _table(of: TableConfig, path: str, split: Split | None, tree: Tree, content: Read, where: object) -> Table:
    """One of the tables, with the columns that are named."""
    names = {member.name: name for name, member in tree.items() if not member.folder}
    if path not in names:
        known = listed([repr(each) for each in sorted(names) if tables.is_table(each)], SHOWN)
        raise DataError(f"{where}: dataset.table.path is {path!r}, but the tables are {known or 'none'}")
    return tables.of(of, path, tables.read(path, tree[names[path]], content), split)


def _require_words(table: TableConfig, unlabelled: Mapping[str, list[str]], images: int, where: object) -> None:
    """Check that no word that may be a class, such as none, leaves out most images, unless it is stated."""
    for cell, names in unlabelled.items():
        if cell and table.unlabelled is None and 2 * len(names) >= images:
            raise DataError(
                f"{where}: {len(names)} of {images} images are {cell!r}, a class or the word for none; if "
                f"a class, {tables.add(table.block | {'unlabelled': []})}\n"
                f"If not, write {json.dumps([cell])} in place of []."
            )


def _rows(
    table: Table, index: Images, columns: Sequence[str], wrong: Wrong, *, several: bool
) -> Iterator[tuple[str, Labelled]]:
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
        cell = row[table.label[0]].strip() if len(table.label) == 1 else None
        labels: Sequence[str] | None = None
        if cell is not None:
            labels = _of_cell(table, cell, place, wrong) if several else [class_name(cell)]
        elif table.label:
            labels = _of_columns(table, row, place, wrong, several=several)
        further = tuple(values.get(column, "") for column in columns)
        named_labels = None if labels is None else tuple(sorted(labels))
        group = "" if table.group is None else row[table.group].strip()
        of_split = split or folder_split(files[0])
        yield files[0], Labelled(named_labels, of_split, further, place, cell, group=group)


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


def _of_cell(table: Table, cell: str, place: str, wrong: Wrong) -> list[str]:
    try:
        labels = [class_name(each) for each in of_cell(cell, table.separator)]
    except ValueError as error:
        wrong[f"cells that are {error}"].append(f"{place}: {cell!r:.80}")
        return []
    if len(set(labels)) < len(labels):
        wrong["cells that repeat a label"].append(f"{place}: {cell!r:.80}")
    return labels


def _of_columns(table: Table, row: Sequence[str], place: str, wrong: Wrong, *, several: bool) -> list[str]:
    """The names of the columns with a 1, of columns of 0 and 1."""
    values = [row[number].strip() for number in table.label]
    if not all(map(tables.is_bit, values)):
        wrong["rows with other values than 0 and 1 in the columns of classes"].append(place)
        return []
    chosen = [table.columns[number] for number, value in zip(table.label, values, strict=True) if float(value)]
    if len(chosen) != 1 and not several:
        ones = "rows with several labels: a 1 in several columns"
        wrong[ones if chosen else "rows without a 1 in any column"].append(place)
    return list(map(class_name, chosen))


def _note_several(
    table: TableConfig, found: Mapping[str, Labelled], wrong: Wrong, *, several: bool
) -> list[str]:
    """Note cells that hold several labels where one is expected; returns them."""
    counts = Counter(label for each in found.values() for label in each.labels or ())
    held = among(counts, STRONG if table.separator else WEAK)
    if several and table.separator is None:  # the elements of lists are labels, whatever they look like
        whole = {class_name(each.cell) for each in found.values() if each.cell is not None}
        held = [label for label in held if label in whole]
    for label in held:
        first = next(each for each in found.values() if label in (each.labels or ()))
        kind = "values with several labels an image, but an image has one"
        if several:
            kind = "labels that hold several ones"
        wrong[kind].append(f"{first.place}: {label!r} ({counts[label]} rows)")
    return held


def _note_wrong(found: Mapping[str, Labelled], wrong: Wrong) -> None:
    """Note images whose row and folder say different splits, and labels that are objects."""
    if len({folder_split(name) for name in found}) > 1:
        wrong["images in the folder of another split"] += [
            f"{each.place}: {name!r} is for {each.split}"
            for name, each in found.items()
            if folder_split(name) not in {None, each.split}
        ]
    first: dict[str, Labelled] = {}
    for name, each in found.items():
        if each.group.casefold() in UNLABELLED:
            kind = "groups that may be a word for none; empty these cells, or rename the group"
            wrong[kind].append(f"{each.place}: {each.group!r}")
        if each.group and (other := first.setdefault(each.group, each)).split != each.split:
            what = (
                f"{each.place}: {name!r} of {each.group!r} is for {each.split}, {other.place} for {other.split}"
            )
            wrong["groups in two splits"].append(what)
        for label in each.labels or ():
            if re.fullmatch(r"\{[^\[]*\}", label):
                row = f"{each.place}: {name!r} is {label!r}"
                wrong["values that are objects, not names of classes"].append(row)


def of_cell(cell: str, separator: str | None) -> list[str]:
    """The labels in a cell; without a separator, it is a JSON list or one label. ValueError: neither."""
    found = _json_list(cell) if cell.startswith("[") else None
    if found is not None and separator is not None:
        raise ValueError(f"JSON lists, but dataset.table.separator is {separator!r}; set it to null")
    if found is not None:
        return found
    if re.fullmatch(r"\{.*\}", cell, re.DOTALL) or (separator is None and cell.startswith("[")):
        raise ValueError('no JSON lists of names, as in ["cat", "dog"]')
    parts = [cell] if separator is None else cell.split(separator)
    return [part.strip() for part in parts if part.strip()]


def _json_list(cell: str) -> list[str] | None:
    try:
        found = json.loads(cell)
    except (ValueError, RecursionError):
        return None
    return [str(each).strip() for each in found] if all(type(each) in {str, int} for each in found) else None


def among(labels: Mapping[str, int], weak: str = WEAK) -> list[str]:
    """Those values that hold several labels: lists, objects, and texts whose parts are labels, too."""
    parts = {label: _parts(label, STRONG) for label in labels}
    known = Counter(part for each in parts.values() for part in each)
    found = []
    for label in labels:
        perhaps = _parts(label, weak)
        structured = re.fullmatch(r"\[.*\]|\{.*\[.*\}", label, re.DOTALL) is not None
        strong = len(parts[label]) > 1 and all(known[part] > 1 for part in parts[label])
        strong |= re.search(r"[|;]", label) is not None and any(part in labels for part in parts[label])
        if structured or strong or (len(perhaps) > 1 and all(part in labels for part in perhaps)):
            found.append(label)
    return found


def _parts(label: str, separator: str) -> set[str]:
    return {part.strip() for part in re.split(separator, label) if part.strip()}


def option(cells: Iterable[str]) -> str:
    """Say which keys allow several labels an image, for cells that hold them; null separates those of lists."""
    texts = [cell for cell in cells if not LIST.fullmatch(cell)]
    separator = next((mark for mark in SEPARATORS if any(mark in text for text in texts)), None)
    return f"set dataset.task to multilabel and dataset.table.separator to {json.dumps(separator)}"
