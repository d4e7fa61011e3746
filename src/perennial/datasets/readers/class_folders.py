"""Read images from one folder per class in a plain tar file: `<class>/<image>` or `<split>/<class>/<image>`.

A single enclosing folder is allowed. Documents beside the folders (LICENSE, README.md, *.txt) and leftovers of
desktops and tools are ignored; other hidden files are errors.
The content of a file in a class folder, never its name, determines whether it is an image or a BadImage.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perennial import archives
from perennial.archives import Member, hidden, leftover
from perennial.choices import SPLITS, Split
from perennial.datasets.dataset import Examples, Source
from perennial.errors import DataError, listed
from perennial.images import BadImage, Image
from perennial.images.accept import accepted

DOCUMENTS = {".csv", ".htm", ".html", ".json", ".md", ".pdf", ".rst", ".tsv", ".txt", ".xml", ".yaml", ".yml"}
DOCUMENT_NAMES = {"authors", "changelog", "citation", "copying", "licence", "license", "notice", "readme"}
NAMES_SHOWN = 3

_Tree = dict[str, Member]  # by the name within some folder


class FolderLayout(NamedTuple):
    """Which files belong to which class and split."""

    classes: tuple[str, ...]  # sorted
    splits: dict[Split, dict[str, Member]]  # by names such as `<class>/<image>`; includes folders
    split_folders: bool  # whether there is a folder for each split


def read(tar: Path, classes: tuple[str, ...] = ()) -> Source:
    """Read the classes, sorted by name, and the examples, sorted by the SHA-256 of their names.

    A name is `<class>/<image>`. If classes are given, the tar file must contain exactly those.

    Raises:
        DataError: the tar file is damaged, or its folders are not class folders.
    """
    found = layout(archives.contents(tar), tar, classes)
    return Source(
        classes=found.classes,
        splits={
            split: _examples(tar, part, found.classes, f"{split}/" if found.split_folders else "")
            for split, part in found.splits.items()
        },
    )


def layout(members: Iterable[Member], where: Path, classes: tuple[str, ...] = ()) -> FolderLayout:
    """Find the classes and splits in files and folders; if classes are given, there must be exactly those.

    Raises:
        DataError: the folders are not class folders.
    """
    tree = {member.name: member for member in members if not leftover(member.name)}
    if lost := [name for name in tree if hidden(name)]:
        raise DataError(f"{where}: hidden files or folders: {_some(lost)}; rename or remove them")
    tree = _without_folder_around(tree, where)
    _refuse_loose(tree, where)
    parts = _parts(tree, where)
    found = tuple(sorted(_folders(parts["train"])))
    if len(found) < 2:
        raise DataError(f"{where}: images of one class, {_some(found)}; expected folders for two or more")
    if classes and found != tuple(sorted(classes)):
        raise DataError(f"{where}: the classes are {list(found)}, expected {sorted(classes)}")
    for split, part in parts.items():
        _check_classes(part, found, f"{where}, {split}", all_needed=split == "train")
    return FolderLayout(found, parts, split_folders=parts["train"] is not tree)


def _without_folder_around(tree: _Tree, tar: Path) -> _Tree:
    """Return the content of the single enclosing folder; the tree itself if there is none."""
    folders = _folders(tree)
    if len(folders) == 1 and not folders & set(SPLITS):
        inside = _inside(tree, *folders)
        if _folders(inside):
            _refuse_loose(tree, tar)
            return inside
    return tree


def _parts(tree: _Tree, tar: Path) -> dict[Split, _Tree]:
    """Return the tree of each split; if no folder has the name of a split, everything is for training."""
    folders = _folders(tree)
    if folders.isdisjoint(SPLITS):
        return {"train": tree}
    if others := folders.difference(SPLITS):
        raise DataError(f"{tar}: {_some(others)} beside split folders; the names of splits are {list(SPLITS)}")
    if "train" not in folders:
        raise DataError(f"{tar}: no folder 'train' beside {_some(folders)}")
    parts = {split: _inside(tree, split) for split in SPLITS if split in folders}
    for split, part in parts.items():
        _refuse_loose(part, f"{tar}, {split}")
    return parts


def _check_classes(tree: _Tree, classes: tuple[str, ...], where: str, *, all_needed: bool) -> None:
    """Check that class folders contain only files, and that the classes are those of the training split."""
    if nested := [name for name, member in tree.items() if name.count("/") > 1 - member.folder]:
        raise DataError(f"{where}: folders inside a class folder: {_some(nested)}")
    if extra := _folders(tree).difference(classes):
        raise DataError(f"{where}: no images of {_some(extra)} in the training split")
    filled = {name.partition("/")[0] for name, member in tree.items() if "/" in name}
    if not filled or (all_needed and filled != set(classes)):
        raise DataError(f"{where}: no images of {_some(set(classes) - filled)}")


def _refuse_loose(tree: _Tree, where: object) -> None:
    """Check that files outside the class folders are documents."""
    loose = [name for name, member in tree.items() if "/" not in name and not member.folder]
    if wrong := [name for name in loose if not is_document(name)]:
        raise DataError(f"{where}: files outside of class folders: {_some(wrong)}")


def is_document(name: str) -> bool:
    """Whether a name is that of a document, such as a licence, beside the class folders."""
    path = PurePosixPath(name)
    return path.suffix.lower() in DOCUMENTS or path.stem.lower() in DOCUMENT_NAMES


def _folders(tree: _Tree) -> set[str]:
    """Return the names of the top-level folders."""
    return {name.partition("/")[0] for name, member in tree.items() if "/" in name or member.folder}


def _inside(tree: _Tree, folder: str) -> _Tree:
    prefix = f"{folder}/"
    return {name.removeprefix(prefix): member for name, member in tree.items() if name.startswith(prefix)}


def _some(names: Iterable[str]) -> str:
    """List the first names and the number of remaining ones."""
    return listed(map(repr, sorted(names)), NAMES_SHOWN) or "nothing"


def _examples(tar: Path, tree: _Tree, classes: tuple[str, ...], above: str) -> Examples:
    found = [name for name, member in tree.items() if "/" in name and not member.folder]
    names = tuple(sorted(found, key=lambda name: hashlib.sha256(name.encode()).digest()))
    number = {name: label for label, name in enumerate(classes)}
    spans = np.array([(tree[name].offset, tree[name].size) for name in names], np.int64).reshape(-1, 2)
    return Examples(
        labels=np.array([number[name.partition("/")[0]] for name in names], np.int64),
        images=partial(_images, tar, spans, names, above),
        image_bytes=spans[:, 1],
        names=names,
        originals=partial(_contents, tar, spans, names, above),
    )


def _images(
    tar: Path, spans: NDArray[np.int64], names: Sequence[str], above: str, indices: Sequence[int]
) -> Iterator[Image | BadImage]:
    """Yield images by index, each read from its span (offset, bytes) of the tar file.

    The names of rejected files include the split's folder.
    """
    for index, content in zip(indices, _contents(tar, spans, names, above, indices), strict=True):
        image = accepted(content, names[index])
        yield image if isinstance(image, Image) else replace(image, filename=above + image.filename)


def _contents(
    tar: Path, spans: NDArray[np.int64], names: Sequence[str], above: str, indices: Sequence[int]
) -> Iterator[bytes]:
    return archives.read_members(tar, (Member(above + names[i], *spans[i].tolist()) for i in indices))
