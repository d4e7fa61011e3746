"""Class folders, `<class>/<image>` or `<split>/<class>/<image>`: which splits and classes they mean.

Images at any depth below a class folder are of its class. Single folders around all of it are allowed.
"""

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from perennial.base.choices import SPLITS, Split, Task, split_named
from perennial.base.errors import DataError, listed
from perennial.data.archives import Member
from perennial.data.datasets.own import names as known
from perennial.data.datasets.own.class_lists import class_name, sorted_labels
from perennial.data.datasets.own.names import ANY_IMAGES, SPLIT_NAMES, is_document_name, meant_split, some
from perennial.data.datasets.own.shards import is_shard

log = logging.getLogger(__name__)
SHOWN, CLASSES, EXAMPLES = 3, 20, 5  # names, classes and images in what is said
README = "README.md"  # of the folder, such as ours in own/: a document that nobody expects to be used
EXPECTED_SPLITS = "expected train/<class>/<image>"
SHEETS = (".xlsx", ".xls", ".ods", ".numbers", ".parquet")
# Folders that divide the images of a class by time or number, such as `2024-05`, `05 May` or `part 1`.
_DIVIDES = re.compile(
    r"[\W\d_]*(?:jan|feb|mar|apr|may|jun|jul|aug|sep|sept|oct|nov|dec|january|february|march|april|june|july|"
    r"august|september|october|november|december)?[\W\d_]*",
    re.IGNORECASE,
)

Tree = dict[str, Member]  # by the name within some folder


class Item(NamedTuple):
    """A file that should be an image, with its labels."""

    name: str  # in records and for splits: `<class>/<image>`, or the path of an image in a table
    labels: tuple[int, ...]  # one, unless a table gives several
    member: Member
    further: tuple[str, ...] = ()  # values of the further columns of a table


class Layout(NamedTuple):
    """Which files belong to which class and split."""

    classes: tuple[str, ...]  # in the order of their labels
    splits: dict[Split, list[Item]]
    folders: dict[Split, str]  # of each split, as a prefix of its names in messages
    left_out: list[str]  # documents
    table: str | None = None  # the files that give labels or splits, if folders do not
    columns: tuple[str, ...] = ()  # further columns of the tables
    unused: tuple[str, ...] = ()  # tables beside class folders, which give nothing
    unlabelled: Mapping[str, int] = {}  # images left out by the cell that says that they have no label
    task: Task = "multiclass"

    def lines(self) -> list[str]:
        """What was understood: classes and splits with their counts, examples, and what was left out."""
        items = [item for part in self.splits.values() for item in part]
        counts = Counter(label for item in items for label in item.labels)
        classes = [f"{name} {counts[label]:,}" for label, name in enumerate(self.classes)]
        several = [len(item.labels) for item in items] if self.task == "multilabel" else []
        given = len(self.splits) > 1  # or perennial makes them later
        splits = ", ".join(f"{split} {len(part):,}" for split, part in self.splits.items())
        shown = [
            f"  {each['file']} -> {each['class']}" + f", {each['split']}" * given for each in self.examples()
        ]
        said = [
            f"{len(items):,} images, labels from {self.table or 'the class folders'}",
            f"classes: {listed(classes, CLASSES)}",
            *([said_of_several(several)] if several else []),
            f"splits: {splits}" if given else "splits: none, perennial makes them",
            *shown,
        ]
        if nested := [item.name for item in items if self.table is None and item.name.count("/") > 1]:
            inner = listed(map(repr, nested), SHOWN)
            said.append(f"{len(nested):,} images in folders below their class folder: {inner}")
        if self.unlabelled:
            cells = listed([f"{cell!r} {count:,}" for cell, count in self.unlabelled.items()], SHOWN)
            said.append(
                f"left out {sum(self.unlabelled.values()):,} unlabelled images, by their cells: {cells}; where "
                "such a word is a class, dataset.table.unlabelled: [] keeps it"
            )
        if self.unused:
            tables = listed(map(repr, self.unused), SHOWN)
            said.append(f"not used: {tables}; the class folders give the labels, dataset.table names one")
        if self.columns:
            said.append(f"columns that give no label: {listed(map(repr, self.columns), CLASSES)}")
        left = [name for name in self.left_out if name != README]
        if count := len(left):
            endings = Counter(name.rpartition("/")[2].rpartition(".")[2] for name in left)
            kinds = (f"{number:,} .{ending}" for ending, number in endings.most_common())
            files = listed(map(repr, left) if count <= SHOWN else kinds, SHOWN)
            said.append(f"left out {count:,} file{'s' * (count > 1)} beside the images: {files}")
        return said

    def examples(self) -> Sequence[dict[str, str]]:
        """Five images with their class and split, evenly spaced."""
        items = [(item, split) for split, part in self.splits.items() for item in part]
        step = max(len(items) / EXAMPLES, 1)
        chosen = [items[int(number * step)] for number in range(min(len(items), EXAMPLES))]
        return [{"file": item.member.name, "class": self.shown(item), "split": split} for item, split in chosen]

    def shown(self, item: Item) -> str:
        """The names of the labels of an item."""
        return ", ".join(self.classes[label] for label in item.labels) or "no label"

    def log(self, where: Path) -> None:
        """Log what was understood."""
        log.info("%s: %s", where, "\n".join(self.lines()))


def said_of_several(counts: Sequence[int]) -> str:
    """Say how many labels images have."""
    mean, without = sum(counts) / len(counts), sum(not count for count in counts)
    return f"labels an image: {mean:.2f} on average, at most {max(counts)}; {without:,} images have none"


def of_folders(tree: Tree, where: Path) -> Layout:
    """Find the classes and splits in the names of folders."""
    left = _require_no_loose_images(tree, where)
    parts: dict[Split, tuple[str, Tree]] = {}
    folders = _split_folders(tree, where)
    for split in SPLITS if folders else ():
        if split in folders:
            part, above = _part(tree, folders[split])
            part, documents = _images_and_documents(part)
            left += [above + name for name in documents]
            left += [above + name for name in _require_no_loose_images(part, f"{where}, {split}")]
            parts[split] = above, part
    parts = parts or {"train": ("", tree)}
    classes = sorted_labels(_folders(parts["train"][1]))
    known.require_classes(classes, where)
    if without := list(filter(known.NO_LABEL.fullmatch, classes)):
        raise DataError(f"{where}: {some(without)} says that images have no label; move it away, or rename it")
    if not folders:
        known.require_no_splits(classes, where)
    for split, (_, part) in parts.items():
        _check_classes(part, classes, f"{where}, {split}", all_needed=split == "train")
    number = {name: label for label, name in enumerate(classes)}
    within = [(above + name, name) for above, part in parts.values() for name in part]
    left += [shown for shown, name in within if "/" in name and is_document_name(name)]
    return Layout(
        tuple(map(class_name, classes)),
        {
            split: [
                Item(
                    name if name.isprintable() else class_name(name), (number[name.partition("/")[0]],), member
                )
                for name, member in part.items()
                if "/" in name and not member.folder and not is_document_name(name)
            ]
            for split, (_, part) in parts.items()
        },
        {split: above for split, (above, _) in parts.items()},
        left,
    )


def _without_folders_around(tree: Tree) -> Tree:
    """Return the content of the single folders around all others and around all images."""
    while len(folders := _folders(tree)) == 1:
        (folder,) = folders
        loose = [name for name in _loose(tree) if not is_document_name(name)]
        inside = _inside(tree, folder)
        below = _folders(inside)
        # A single folder of a split may hold class folders, or be the folder around folders of splits.
        if loose or not below or (split_named(folder) and not any(map(split_named, below))):
            break
        documents = {name: tree[name] for name in _loose(tree) if name not in inside}
        tree = documents | inside
    return tree


def without_documents(tree: Tree) -> tuple[Tree, Tree]:
    """Return the content of the folders around all, and documents of folders that hold nothing else."""
    documents: Tree = {}
    while True:
        tree = _without_folders_around(tree)
        tree, found = _images_and_documents(tree)
        if not found:
            return tree, documents
        documents |= found


def _images_and_documents(tree: Tree) -> tuple[Tree, Tree]:
    """Return the tree without folders that hold only documents, if others hold more, and these documents."""
    files = {name: each for name, each in tree.items() if not each.folder and "/" in name}
    with_files = {name.partition("/")[0] for name in files}
    with_images = {name.partition("/")[0] for name in files if not is_document_name(name, known.DOCUMENTS)}
    without = with_files - with_images
    if not without or not with_images:
        return tree, {}
    rest = {name: each for name, each in tree.items() if name.partition("/")[0] not in without}
    return rest, {name: each for name, each in files.items() if name.partition("/")[0] in without}


def _split_folders(tree: Tree, where: Path) -> dict[Split, str]:
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
        raise DataError(f"{where}: {some(same)} are all folders of the {twice[0]} split; keep only one")
    if "train" not in named.values():
        raise DataError(f"{where}: no folder 'train' beside {some(folders)}; name it train or training")
    return {split: folder for folder, split in named.items()}


def _part(tree: Tree, folder: str) -> tuple[Tree, str]:
    """Return the content of the folder of a split and its prefix, without a folder of the same name in it."""
    part, above = _inside(tree, folder), f"{folder}/"
    while _folders(part) == {folder} and not _loose(part) and _folders(_inside(part, folder)):
        part, above = _inside(part, folder), f"{above}{folder}/"
    return part, above


def _check_classes(tree: Tree, classes: tuple[str, ...], where: str, *, all_needed: bool) -> None:
    """Check that the folders are classes, and those of the training split."""
    _check_nested(tree, where)
    if extra := _folders(tree).difference(classes):
        raise DataError(f"{where}: no images of {some(extra)} in the training split")
    images = (name for name, each in tree.items() if not each.folder and not is_document_name(name))
    filled = {name.partition("/")[0] for name in images if "/" in name}
    if not filled or (all_needed and filled != set(classes)):
        raise DataError(f"{where}: no images of {some(set(classes) - filled)}; add some, or remove the folder")


def _check_nested(tree: Tree, where: str) -> None:
    """Check that folders inside those of classes are not splits or classes themselves."""
    inside = {name: name.split("/")[:-1] for name, member in tree.items() if not member.folder and "/" in name}
    nested = [name for name, (_, *between) in inside.items() if between]
    tops = {inside[name][0] for name in nested}
    if wrong := [name for name in nested if any(map(split_named, inside[name][1:]))]:
        raise DataError(f"{where}: split folders inside a class folder: {some(wrong)}; {EXPECTED_SPLITS}")
    if wrong := [name for name in tops if ANY_IMAGES.fullmatch(name) or meant_split([name])]:
        raise DataError(f"{where}: folders inside {some(wrong)}, not a name of a class{meant_split(wrong)}")
    levels: dict[int, dict[str, set[str]]] = {}  # by depth, folders that may be classes, each with its holders
    for top, *between in inside.values():
        for depth, name in enumerate(map(str.casefold, between)):
            if name != top.casefold() and not (_DIVIDES.fullmatch(name) or ANY_IMAGES.fullmatch(name)):
                levels.setdefault(depth, {}).setdefault(name, set()).add(top)
    holders = set().union(*levels.values())
    shared = {name for level in levels.values() for name, above in level.items() if len(above) > 1 < len(level)}
    if tops <= {folders[0] for name, folders in inside.items() if name not in nested}:
        shared = set()  # each class has images of its own beside the folders
    shared |= holders & {name.casefold() for name in _folders(tree)}
    if holders and (shared or all(map(_DIVIDES.fullmatch, _folders(tree)))):
        raise DataError(
            f"{where}: {some(tops)} may be the classes, or folders in them, {some(shared or holders)}; put the "
            f"images of a class directly into one folder, or {known.TABLE}"
        )


def _require_no_loose_images(tree: Tree, where: object) -> list[str]:
    """Check that files outside the class folders are documents; return these."""
    loose = _loose(tree)
    if wrong := [name for name in loose if not is_document_name(name)]:
        records = "; for TFRecords, set dataset.name to tfrecord" if any(map(is_shard, wrong)) else ""
        sheets = [name for name in wrong if name.lower().endswith(SHEETS)]
        records += f"; save {sheets[0]!r} as CSV if it holds the labels" if sheets else ""
        raise DataError(
            f"{where}: files outside of class folders: {some(wrong)}; put them into the folders of their "
            f"classes, or move them away{records}"
        )
    return loose


def _loose(tree: Tree) -> list[str]:
    return [name for name, member in tree.items() if "/" not in name and not member.folder]


def _folders(tree: Tree) -> set[str]:
    return {name.partition("/")[0] for name, member in tree.items() if "/" in name or member.folder}


def _inside(tree: Tree, folder: str) -> Tree:
    prefix = f"{folder}/"
    return {name.removeprefix(prefix): member for name, member in tree.items() if name.startswith(prefix)}
