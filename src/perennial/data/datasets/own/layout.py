"""Which images of a folder or archive belong to which split and class: decided here for every command.

    <class>/<image>                          or
    <split>/<class>/<image>                  or
    images and a table of labels, see `label_table`

Single folders around all of it are allowed. Documents beside the images are left out by name, and leftovers of
desktops and tools are ignored; other files and hidden ones are errors. The content of a file in a class folder,
never its name, determines whether it is an image.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from perennial.base.choices import SPLITS, Split
from perennial.base.errors import DataError, listed
from perennial.data import archives
from perennial.data.archives import Member, hidden, without_leftovers
from perennial.data.datasets.own import folders, label_table
from perennial.data.datasets.own.class_lists import class_name, in_order, is_class_list, names_of
from perennial.data.datasets.own.documents import hints, is_document
from perennial.data.datasets.own.folders import Item, Layout, Tree
from perennial.data.datasets.own.label_table import Labelled
from perennial.data.datasets.own.names import CONTAINER, SHOWN, require_classes, some
from perennial.data.datasets.own.table_columns import Table
from perennial.data.datasets.own.table_rows import Read

log = logging.getLogger(__name__)


def find(members: Iterable[Member], read: Read, where: Path, classes: tuple[str, ...] = ()) -> Layout:
    """Find the classes and splits in files and folders; if classes are given, there must be exactly those.

    Raises:
        DataError: the folders are not class folders, and no table has the labels.
    """
    tree = {member.name: member for member in without_leftovers(members, where)}
    if lost := [name for name in tree if hidden(name)]:
        raise DataError(f"{where}: hidden files or folders: {some(lost)}; rename or remove them")
    tree, documents = folders.without_documents(tree)
    whole = tree | documents if documents else tree
    candidates = [] if classes else label_table.candidates(whole)
    images = {n: each for n, each in tree.items() if candidates and not each.folder and not is_document(n)}
    tables, problems = label_table.find(candidates, whole, images, read)
    if (
        tables
        and all(label_table.is_list(table.name) for table in tables)
        and _contradict(tree, images, tables, where)
    ):
        problems += [f"{table.name} has other labels or splits" for table in tables]
    elif tables:
        return _of_tables(tree, documents, images, tables, read, where)
    try:
        found = folders.of_folders(tree, where)
    except DataError as error:
        files = [name for name, member in whole.items() if not member.folder]
        texts = [name for name in files if is_document(name)]
        meant = hints(set(files).difference(texts), texts)
        raise DataError("; ".join((str(error), *problems, *meant))) from error
    found.left_out.extend(documents)
    if nested := [item.name for part in found.splits.values() for item in part if item.name.count("/") > 1]:
        log.info("%s: %d images in folders below their class folder: %s", where, len(nested), some(nested))
    if problems and all(map(CONTAINER.fullmatch, found.classes)):
        raise DataError(
            f"{where}: {some(found.classes)} are not named like classes, and {'; '.join(problems)}; mend the "
            "table, or rename the folders if they are classes"
        )
    for problem in problems:
        log.warning("%s: the folders give the labels; %s", where, problem)
    if classes and found.classes != in_order(classes):
        raise DataError(f"{where}: the classes are {list(found.classes)}, expected {list(in_order(classes))}")
    return found


def _contradict(tree: Tree, images: Tree, tables: Sequence[Table], where: Path) -> bool:
    """Whether there are class folders that tables in texts do not mean, so that they list something else."""
    try:
        folders.of_folders(tree, where)
        return _agreeing(tree, label_table.labelled(images, tables, where), "", where) is None
    except DataError:
        return False


def of_folder(folder: Path) -> tuple[Layout, Read]:
    """Find the classes and splits in a folder of this machine; also return the function that reads its files.

    Raises:
        DataError: as `find`; or something in the folder cannot be read.
    """

    def read(member: Member) -> bytes:
        return (folder / member.name).read_bytes()

    return find(archives.folder_contents(folder), read, folder), read


def log_left_out(found: Layout, where: Path) -> None:
    """Name what gives the labels, if it is a table, and the documents that are left out."""
    if found.table:
        log.info("%s: the labels are those of %s", where, found.table)
    if found.left_out:
        shown = listed(map(repr, found.left_out), SHOWN)
        log.info("%s: left out %d files beside the images: %s", where, len(found.left_out), shown)


def _of_tables(
    tree: Tree, documents: Tree, images: Tree, tables: Sequence[Table], read: Read, where: Path
) -> Layout:
    """Return the layout of tables; if folders mean the same classes, with their names and splits."""
    labelled, columns = label_table.labelled(images, tables, where), label_table.further_columns(tables)
    named = " and ".join(table.described() for table in tables)
    if found := _agreeing(tree, labelled, named, where):
        ours = {table.name for table in tables} if found.table else set()
        also = ", with its splits" if ours else ""
        log.info("%s: %s has the classes of the folders, which are used%s", where, named, also)
        none = ("",) * len(columns)
        of_member = {tree[name]: each.further for name, each in labelled.items()}
        splits = {
            split: [item._replace(further=of_member.get(item.member, none)) for item in part]
            for split, part in found.splits.items()
        }
        left = [name for name in (*found.left_out, *documents) if name not in ours]
        return found._replace(splits=splits, columns=columns, left_out=left)
    tree = tree | documents
    if missing := images.keys() - labelled.keys():
        raise DataError(
            f"{where}: {len(missing)} of {len(images)} images have no row in {named}: {some(missing)}; "
            "add rows, or move the images or, if the folders are the classes, the table away"
        )
    left_out = set(tree) - labelled.keys() - {table.name for table in tables}
    left = sorted(name for name in left_out if not tree[name].folder)
    classes, items = _of_rows(tree, labelled, named, where)
    lists = [name for name in left if is_class_list(PurePosixPath(name).name)]
    if lists and all(label.isdecimal() for label in classes):
        ids = sorted(map(int, classes))
        names = names_of(read(tree[lists[0]]), where / lists[0], ids)
        classes = tuple(names[number] for number in ids)
        left.remove(lists[0])
    return Layout(classes, items, dict.fromkeys(items, ""), left, named, columns)


def _of_rows(
    tree: Tree, labelled: Mapping[str, Labelled], named: str, where: Path
) -> tuple[tuple[str, ...], dict[Split, list[Item]]]:
    """Return the classes and splits in the rows of tables."""
    rows: dict[Split, list[Labelled]] = {}
    for each in labelled.values():
        rows.setdefault(each.split, []).append(each)
    if "train" not in rows:
        raise DataError(f"{where}: {named} has no image of the train split, but of {some(rows)}")
    classes = in_order({each.label for each in rows["train"]})
    number = {name: label for label, name in enumerate(classes)}
    for split, part in rows.items():
        if extra := {each.label for each in part} - number.keys():
            raise DataError(f"{where}, {split}: no images of {some(extra)} in the training split")
    require_classes(classes, where)
    items = {
        split: [
            Item(class_name(each.name), number[each.label], tree[each.name], each.further)
            for each in rows[split]
        ]
        for split in SPLITS
        if split in rows
    }
    return classes, items


def _agreeing(tree: Tree, labelled: Mapping[str, Labelled], named: str, where: Path) -> Layout | None:
    """Return the layout of class folders if a table means the same classes, under whatever names.

    Its `table` is set if the splits are those of the table.
    """
    try:
        found = folders.of_folders(tree, where)
    except DataError:
        return None
    names = {member: name for name, member in tree.items()}
    rows = [
        (item.label, split, labelled[name])
        for split, part in found.splits.items()
        for item in part
        if (name := names[item.member]) in labelled
    ]
    pairs = {(folder, row.label) for folder, _, row in rows}
    agree = len(pairs) == len({folder for folder, _ in pairs}) == len({label for _, label in pairs}) > 1
    if agree and any(split != row.split for _, split, row in rows):
        # A table may split the images of class folders, all of them.
        if found.folders != {"train": ""} or len(rows) < len(found.splits["train"]):
            return None
        parts: dict[Split, list[Item]] = {split: [] for split in SPLITS}
        for item in found.splits["train"]:
            parts[labelled[names[item.member]].split].append(item)
        if len({item.label for item in parts["train"]}) < len(found.classes):
            return None
        splits = {split: part for split, part in parts.items() if part}
        return found._replace(splits=splits, folders=dict.fromkeys(splits, ""), table=named)
    return found if agree else None
