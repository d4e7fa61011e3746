"""Which images of a folder or archive belong to which split and class: decided here for every command.

    <class>/<image>                          or
    <split>/<class>/<image>                  or
    images and a table of labels, see `label_table`

Single folders around all of it are allowed. Documents beside the images are left out by name, and leftovers of
desktops and tools are ignored; other files and hidden ones are errors. The content of a file in a class folder,
never its name, determines whether it is an image.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from perennial.base.config.choices import SPLIT_WORDS, SPLITS, Split, split_named
from perennial.base.errors import DataError, listed
from perennial.data import archives
from perennial.data.archives import Member, hidden, without_leftovers
from perennial.data.datasets.own import label_table
from perennial.data.datasets.own.class_lists import class_name, is_class_list, names_of
from perennial.data.datasets.own.documents import hints, is_document
from perennial.data.datasets.own.label_table import Labelled
from perennial.data.datasets.own.names import (
    CONTAINER,
    SHOWN,
    meant_split,
    require_classes,
    require_no_splits,
    some,
)
from perennial.data.datasets.own.shards import is_shard
from perennial.data.datasets.own.table_columns import Table
from perennial.data.datasets.own.table_rows import Read

log = logging.getLogger(__name__)
SHEETS = (".xlsx", ".xls", ".ods", ".numbers", ".parquet")
SPLIT_NAMES = ", ".join(SPLIT_WORDS)

_Tree = dict[str, Member]  # by the name within some folder


class Item(NamedTuple):
    """A file that should be an image, with its class."""

    name: str  # in records and for splits: `<class>/<image>`, or the path of an image in a table
    label: int
    member: Member
    further: tuple[str, ...] = ()  # values of the further columns of a table


class Layout(NamedTuple):
    """Which files belong to which class and split."""

    classes: tuple[str, ...]  # in the order of their labels
    splits: dict[Split, list[Item]]
    folders: dict[Split, str]  # of each split, as a prefix of its names in messages
    left_out: list[str]  # documents
    table: str | None = None  # the files that give the labels, if folders do not
    columns: tuple[str, ...] = ()  # further columns of the tables


def find(members: Iterable[Member], read: Read, where: Path, classes: tuple[str, ...] = ()) -> Layout:
    """Find the classes and splits in files and folders; if classes are given, there must be exactly those.

    Raises:
        DataError: the folders are not class folders, and no table has the labels.
    """
    tree = {member.name: member for member in without_leftovers(members, where)}
    if lost := [name for name in tree if hidden(name)]:
        raise DataError(f"{where}: hidden files or folders: {some(lost)}; rename or remove them")
    tree, documents = _without_documents(tree)
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
        found = _of_folders(tree, where)
    except DataError as error:
        files = [name for name, member in whole.items() if not member.folder]
        texts = [name for name in files if is_document(name)]
        meant = hints(set(files).difference(texts), texts)
        raise DataError("; ".join((str(error), *problems, *meant))) from error
    found.left_out.extend(documents)
    if problems and all(map(CONTAINER.fullmatch, found.classes)):
        raise DataError(
            f"{where}: {some(found.classes)} are not named like classes, and {'; '.join(problems)}; mend the "
            "table, or rename the folders if they are classes"
        )
    for problem in problems:
        log.warning("%s: the folders give the labels; %s", where, problem)
    if classes and found.classes != tuple(sorted(classes)):
        raise DataError(f"{where}: the classes are {list(found.classes)}, expected {sorted(classes)}")
    return found


def _contradict(tree: _Tree, images: _Tree, tables: Sequence[Table], where: Path) -> bool:
    """Whether there are class folders that tables in texts do not mean, so that they list something else."""
    try:
        _of_folders(tree, where)
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
    tree: _Tree, documents: _Tree, images: _Tree, tables: Sequence[Table], read: Read, where: Path
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
    tree: _Tree, labelled: Mapping[str, Labelled], named: str, where: Path
) -> tuple[tuple[str, ...], dict[Split, list[Item]]]:
    """Return the classes and splits in the rows of tables."""
    rows: dict[Split, list[Labelled]] = {}
    for each in labelled.values():
        rows.setdefault(each.split, []).append(each)
    if "train" not in rows:
        raise DataError(f"{where}: {named} has no image of the train split, but of {some(rows)}")
    classes = label_table.in_order({each.label for each in rows["train"]})
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


def _agreeing(tree: _Tree, labelled: Mapping[str, Labelled], named: str, where: Path) -> Layout | None:
    """Return the layout of class folders if a table means the same classes, under whatever names.

    Its `table` is set if the splits are those of the table.
    """
    try:
        found = _of_folders(tree, where)
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


def _of_folders(tree: _Tree, where: Path) -> Layout:
    left = _require_no_loose_images(tree, where)
    parts: dict[Split, tuple[str, _Tree]] = {}
    folders = _split_folders(tree, where)
    for split in SPLITS if folders else ():
        if split in folders:
            part, above = _part(tree, folders[split])
            part, documents = _images_and_documents(part)
            left += [above + name for name in documents]
            left += [above + name for name in _require_no_loose_images(part, f"{where}, {split}")]
            parts[split] = above, part
    parts = parts or {"train": ("", tree)}
    classes = tuple(sorted(_folders(parts["train"][1])))
    require_classes(classes, where)
    if not folders:
        require_no_splits(classes, where)
    for split, (_, part) in parts.items():
        _check_classes(part, classes, f"{where}, {split}", all_needed=split == "train")
    number = {name: label for label, name in enumerate(classes)}
    return Layout(
        tuple(map(class_name, classes)),
        {
            split: [
                Item(name if name.isprintable() else class_name(name), number[name.partition("/")[0]], member)
                for name, member in part.items()
                if "/" in name and not member.folder
            ]
            for split, (_, part) in parts.items()
        },
        {split: above for split, (above, _) in parts.items()},
        left,
    )


def _without_folders_around(tree: _Tree) -> _Tree:
    """Return the content of the single folders around all others and around all images."""
    while len(folders := _folders(tree)) == 1:
        (folder,) = folders
        loose = [name for name in _loose(tree) if not is_document(name)]
        inside = _inside(tree, folder)
        below = _folders(inside)
        # A single folder of a split may hold class folders, or be the folder around folders of splits.
        if loose or not below or (split_named(folder) and not any(map(split_named, below))):
            break
        documents = {name: tree[name] for name in _loose(tree) if name not in inside}
        tree = documents | inside
    return tree


def _without_documents(tree: _Tree) -> tuple[_Tree, _Tree]:
    """Return the content of the folders around all, and documents of folders that hold nothing else."""
    documents: _Tree = {}
    while True:
        tree = _without_folders_around(tree)
        tree, found = _images_and_documents(tree)
        if not found:
            return tree, documents
        documents |= found


def _images_and_documents(tree: _Tree) -> tuple[_Tree, _Tree]:
    """Return the tree without folders that hold only documents, if others hold more, and these documents."""
    files = {name: each for name, each in tree.items() if not each.folder and "/" in name}
    with_files = {name.partition("/")[0] for name in files}
    with_images = {name.partition("/")[0] for name in files if not is_document(name)}
    without = with_files - with_images
    if not without or not with_images:
        return tree, {}
    rest = {name: each for name, each in tree.items() if name.partition("/")[0] not in without}
    return rest, {name: each for name, each in files.items() if name.partition("/")[0] in without}


def _split_folders(tree: _Tree, where: Path) -> dict[Split, str]:
    """Return the folder of each split; none if the folders are classes, even if one is named like a split."""
    folders = _folders(tree)
    named = {folder: split for folder in sorted(folders) if (split := split_named(folder))}
    nested = {name.partition("/")[0] for name, member in tree.items() if name.count("/") > 1 - member.folder}
    others = folders - named.keys()
    if not named or (others and not nested):
        if numbered := [name for name in others if named and split_named(re.sub(r"[\W\d_]+$", "", name))]:
            raise DataError(
                f"{where}: {some(numbered)} beside {some(named)}; name splits {SPLIT_NAMES}, with class "
                "folders in them; if these are classes, rename them"
            )
        return {}
    if others:
        raise DataError(
            f"{where}: {some(others)} beside split folders, {some(named)}; move them into these, or rename "
            f"them if they are splits; the names of splits are {SPLIT_NAMES}"
        )
    if not nested:
        raise DataError(
            f"{where}: no class folders in {some(named)}; expected {min(named)}/<class>/<image>, or a "
            "table such as labels.csv with the columns file and label; if these are classes, rename them, "
            "since they are named like splits"
        )
    twice = [split for split, count in Counter(named.values()).items() if count > 1]
    if twice:
        same = [folder for folder, split in named.items() if split == twice[0]]
        raise DataError(
            f"{where}: {some(same)} are all folders of the {twice[0]} split; keep or name only one so"
        )
    if "train" not in named.values():
        raise DataError(f"{where}: no folder 'train' beside {some(folders)}; name it train or training")
    return {split: folder for folder, split in named.items()}


def _part(tree: _Tree, folder: str) -> tuple[_Tree, str]:
    """Return the content of the folder of a split and its prefix, without a folder of the same name in it."""
    part, above = _inside(tree, folder), f"{folder}/"
    while _folders(part) == {folder} and not _loose(part) and _folders(_inside(part, folder)):
        part, above = _inside(part, folder), f"{above}{folder}/"
    return part, above


def _check_classes(tree: _Tree, classes: tuple[str, ...], where: str, *, all_needed: bool) -> None:
    """Check that class folders contain only files, and that the classes are those of the training split."""
    if nested := [name for name, member in tree.items() if name.count("/") > 1 - member.folder]:
        raise DataError(f"{where}: folders inside a class folder: {some(nested)}{meant_split(_folders(tree))}")
    if extra := _folders(tree).difference(classes):
        raise DataError(f"{where}: no images of {some(extra)} in the training split")
    filled = {name.partition("/")[0] for name, member in tree.items() if "/" in name and not member.folder}
    if not filled or (all_needed and filled != set(classes)):
        raise DataError(f"{where}: no images of {some(set(classes) - filled)}; add some, or remove the folder")


def _require_no_loose_images(tree: _Tree, where: object) -> list[str]:
    """Check that files outside the class folders are documents; return these."""
    loose = _loose(tree)
    if wrong := [name for name in loose if not is_document(name)]:
        records = "; for TFRecords, set dataset.name to tfrecord" if any(map(is_shard, wrong)) else ""
        sheets = [name for name in wrong if name.lower().endswith(SHEETS)]
        records += f"; save {sheets[0]!r} as CSV if it holds the labels" if sheets else ""
        raise DataError(
            f"{where}: files outside of class folders: {some(wrong)}; put them into the folders of their "
            f"classes, or move them away{records}"
        )
    return loose


def _loose(tree: _Tree) -> list[str]:
    return [name for name, member in tree.items() if "/" not in name and not member.folder]


def _folders(tree: _Tree) -> set[str]:
    """Return the names of the top-level folders."""
    return {name.partition("/")[0] for name, member in tree.items() if "/" in name or member.folder}


def _inside(tree: _Tree, folder: str) -> _Tree:
    prefix = f"{folder}/"
    return {name.removeprefix(prefix): member for name, member in tree.items() if name.startswith(prefix)}
