"""Which images of a folder or archive belong to which split and class: decided here for every command.

The tables that dataset.table names decide; else class folders; else one table with the columns `file` and
`label`. Documents and leftovers are left out by name. The content of another file says whether it is an image.
"""

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from perennial.base.choices import SPLITS, Split, Task
from perennial.base.config.data import TableConfig
from perennial.base.errors import DataError
from perennial.data.archives import Member, hidden, without_leftovers
from perennial.data.datasets.own import foreign, label_table, side_tables, split_folders, tables
from perennial.data.datasets.own.class_lists import class_name, is_class_list, names_of, sorted_labels
from perennial.data.datasets.own.foreign import Read
from perennial.data.datasets.own.label_table import Labelled, Labels
from perennial.data.datasets.own.names import CONTAINER, is_document_name, require_classes, some
from perennial.data.datasets.own.side_tables import SideTables
from perennial.data.datasets.own.split_folders import Item, Layout, Tree

SHOWN = 3


def find(
    members: Iterable[Member],
    read: Read,
    where: Path,
    classes: tuple[str, ...] = (),
    table: TableConfig | None = None,
    task: Task = "multiclass",
) -> Layout:
    """Find the classes and splits of images; if classes are given, the folders must be exactly those."""
    there = contents(members, where)
    foreign.require_fetched(there.whole, read, where)
    if classes:
        found = split_folders.of_folders(there.tree, where)
        if found.classes != (expected := sorted_labels(classes)):
            raise DataError(f"{where}: the classes are {list(found.classes)}, expected {list(expected)}")
        return found._replace(left_out=[*found.left_out, *there.documents])
    if table is not None:
        return _of_table(table, there, read, where, task)
    beside = there.side_tables(read)
    try:
        found = class_folders(there, beside, where)
    except DataError as error:
        if len(plain := beside.plain()) != 1:
            raise _refused(error, beside, there.whole, read, where) from error
        found = _of_table(plain[0], there, read, where)
        if (lists := there.class_lists(beside)) and all(map(str.isdecimal, found.classes)):
            named = tables.add(plain[0].block | {"classes": lists[0].name})
            raise DataError(
                f"{where}: the labels are numbers, and {lists[0].name!r} names classes; to use it, "
                f"{named}\nElse move it away."
            ) from error
    beside.require_agreement(found, {member: name for name, member in there.tree.items()}, where)
    unused = tuple(name for name in beside.names() if found.table is None or name in found.left_out)
    left = {*found.left_out, *(there.documents if found.table is None else ())}.difference(unused)
    return found._replace(left_out=sorted(left), unused=unused)


class Contents(NamedTuple):
    """Files and folders below those around all."""

    tree: Tree
    documents: Tree  # in folders that hold nothing else
    images: Tree

    @property
    def whole(self) -> Tree:
        """All of them."""
        return self.tree | self.documents

    def side_tables(self, read: Read, named: str | None = None) -> SideTables:
        """The possible tables of labels, and one that is named."""
        return side_tables.read_all(self.whole, self.images, read, named)

    def class_lists(self, beside: SideTables) -> list[Member]:
        """The lists of classes that are no tables."""
        tables = {each.name for each in beside.tables}
        names = (name for name in sorted(self.whole.keys() - tables) if is_class_list(name.rpartition("/")[2]))
        return [self.whole[name] for name in names if not self.whole[name].folder]


def contents(members: Iterable[Member], where: Path) -> Contents:
    """Sort the members of a folder or archive."""
    there = {member.name: member for member in members}
    whole = {name: there[name] for name in without_leftovers(list(there), where)}
    if lost := [name for name in whole if hidden(name)]:
        raise DataError(f"{where}: hidden files or folders: {some(lost)}; rename or remove them")
    tree, documents = split_folders.without_documents(whole)
    images = {name: each for name, each in tree.items() if not each.folder and not is_document_name(name)}
    return Contents(tree, documents, images)


def class_folders(there: Contents, beside: SideTables, where: Path) -> Layout:
    """Find the classes and splits in folders."""
    found = split_folders.of_folders(there.tree, where)
    foreign.require_images([item.name for part in found.splits.values() for item in part], where)
    if beside.tables and all(map(CONTAINER.fullmatch, found.classes)):
        raise DataError(f"{where}: {some(found.classes)} are not named like classes")
    return found


def _refused(error: DataError, beside: SideTables, tree: Tree, read: Read, where: Path) -> DataError:
    """Say why nothing gives the labels, and what would."""
    if asked := beside.asked():
        return DataError(f"{where}: no class folders, and {asked}")
    if other := foreign.described(tree, read):
        return DataError(f"{where}: {other}")
    return DataError("; ".join((*beside.problems[:SHOWN], str(error))))


def _of_table(
    table: TableConfig, there: Contents, read: Read, where: Path, task: Task = "multiclass"
) -> Layout:
    """Return the layout that tables say; where they give splits alone, the class folders give the classes."""
    tree, images = there.whole, there.images
    labels = label_table.read(table, tree, images, read, where, task)
    used = {*table.paths.values(), table.classes}
    others = tree.keys() - images.keys()
    left = sorted(name for name in others if not tree[name].folder and tree[name].name not in used)
    names = {member: name for name, member in tree.items()}
    if table.label is None:
        found = _with_splits(split_folders.of_folders(there.tree, where), labels, names, where)
        return found._replace(left_out=left)
    by_folder = None
    with suppress(DataError):
        by_folder = split_folders.of_folders(there.tree, where)
    if by_folder is not None and task == "multiclass":
        side_tables.require_agreement(by_folder, labels, names, where)
    rows: dict[Split, dict[str, Labelled]] = {}
    for name, each in labels.images.items():
        rows.setdefault(each.split or "train", {})[name] = each
    _require_splits(labels, where)
    counts = {split: Counter(chain.from_iterable(row.labels or () for row in part.values()))
              for split, part in rows.items()}  # fmt: skip
    classes = sorted_labels(counts["train"])
    number = {name: label for label, name in enumerate(classes)}
    for split, of_split in counts.items():
        if extra := of_split.keys() - number.keys():
            raise DataError(f"{where}, {split}: no images of {some(extra)} in the training split")
    if absent := [each for each in table.label if each not in number] if isinstance(table.label, list) else []:
        raise DataError(
            f"{where}: no image has a 1 in {some(absent)}; leave it out of dataset.table.label, or add images"
        )
    require_classes(classes, where, sum(counts.values(), Counter()))
    items = {
        split: [Item(class_name(name), tuple(sorted(number[one] for one in each.labels or ())), tree[name],
                     each.further) for name, each in sorted(rows[split].items())]
        for split in SPLITS if split in rows
    }  # fmt: skip
    if table.classes is not None:
        classes = _named(classes, table.classes, tree, read, where)
    cells = {cell: len(left_out) for cell, left_out in labels.unlabelled.items()}
    folders = dict.fromkeys(items, "")
    return Layout(classes, items, folders, left, labels.described, labels.columns, unlabelled=cells, task=task)


def _require_splits(labels: Labels, where: Path) -> None:
    """Check that rows say the splits of all images or of none, and that some are for training."""
    found = Counter(each.split for each in labels.images.values())
    if None in found and len(found) > 1:
        without = some(name for name, each in labels.images.items() if each.split is None)
        raise DataError(f"{where}: {found[None]} images are of no split, though others have one: {without}")
    if "train" not in found and None not in found:
        splits = some(map(str, found))
        raise DataError(f"{where}: {labels.described} has no image of the train split, but of {splits}")


def _with_splits(found: Layout, labels: Labels, names: dict[Member, str], where: Path) -> Layout:
    """Return the layout of class folders with the splits and further columns of tables."""
    _require_splits(labels, where)
    if found.splits.keys() != {"train"}:  # `label_table` compared them
        return found._replace(table=labels.described)
    items = [item for part in found.splits.values() for item in part]
    parts: dict[Split, list[Item]] = {split: [] for split in SPLITS}
    for item in items:
        row = labels.images[names[item.member]]
        parts[row.split or "train"].append(item._replace(further=row.further))
    if absent := set(range(len(found.classes))) - {item.labels[0] for item in parts["train"]}:
        missing = some(found.classes[label] for label in absent)
        raise DataError(f"{where}: no images of {missing} in the training split of {labels.described}")
    splits = {split: part for split, part in parts.items() if part}
    folders = dict.fromkeys(splits, "")
    return found._replace(splits=splits, folders=folders, table=labels.described, columns=labels.columns)


def _named(classes: tuple[str, ...], path: str, tree: Tree, read: Read, where: Path) -> tuple[str, ...]:
    """Return the names that a list gives to numbers."""
    member = next((each for each in tree.values() if each.name == path and not each.folder), None)
    if member is None:
        raise DataError(f"{where}: dataset.table.classes is {path!r}, which does not exist")
    if others := [label for label in classes if not (label.isascii() and label.isdecimal())]:
        raise DataError(f"{where}: {path} names numbers, but there are labels such as {some(others)}")
    ids = sorted(map(int, classes))
    names = names_of(read(member), where / path, ids)
    return tuple(names[number] for number in ids)
