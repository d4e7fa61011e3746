"""Labelled images in the files of a source: class folders, archives of them, or TFRecords."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from perennial.base import files
from perennial.base.config.data import DatasetConfig
from perennial.base.errors import DataError
from perennial.data import archives
from perennial.data.archives import Member, leftover
from perennial.data.archives.write import ARCHIVES
from perennial.data.datasets import tfrecord
from perennial.data.datasets.own import class_lists, foreign, image_assignment, shards, table_rows
from perennial.data.datasets.own.names import is_document_name
from perennial.data.datasets.readers import tfrecords
from perennial.data.images import BadImage
from perennial.data.tfrecord import label_arrays

Named = tuple[str, Path]  # name in the source, and file
Labels = tuple[str, ...]  # of an image: the name of its class, or of several


class LabelledImage(NamedTuple):
    """The file of an image, or its bytes in a record."""

    name: str  # in the source or archive
    labels: Labels
    content: bytes


def of_files(
    dataset: DatasetConfig, found: Sequence[Named], scratch: Path, labels: Mapping[str, Labels] | None = None
) -> Iterator[LabelledImage]:
    """The images in files of a source, or in raw files of the download stage; `scratch` is an empty folder.

    `labels`: of files by name, if class folders or a table of the source give them.
    """
    if dataset.name == "tfrecord":
        yield from _of_tfrecords(found, scratch, dataset)
        return
    for number, (name, file) in enumerate(found):
        if is_document(name) or (labels and name not in labels):
            continue
        if "/" in name or not name.lower().endswith(ARCHIVES):
            yield LabelledImage(name, _labels(labels, name), file.read_bytes())
        else:
            archives.expand(file, tar := scratch / f"{number}.tar")
            yield from _of_tar(tar, dataset)


def is_document(name: str) -> bool:
    """Whether a file of a source is a document; an archive such as readme.zip is not."""
    return is_document_name(name) and not name.lower().endswith(ARCHIVES)


def raw_name(dataset: str, name: str) -> str:
    """The name in the raw folder of a file of a source."""
    return (dataset == "tfrecord" and shards.raw_name(name)) or name


def _labels(known: Mapping[str, Labels] | None, name: str) -> Labels:
    """The labels of an image; where the folders of all images are no class folders, its own names its class."""
    return known[name] if known else (PurePosixPath(name).parent.name,)


def is_table(name: str) -> bool:
    """Whether a file of a source may be a table of labels, or a list of the classes in one."""
    return table_rows.is_table(name) or class_lists.is_class_list(name)


def labels_of(
    members: Iterable[Member], read: foreign.Read, where: Path, dataset: DatasetConfig
) -> dict[str, Labels]:
    """The labels of images by name, from class folders or a table; none if neither gives them."""
    try:
        found = image_assignment.find(members, read, where, table=dataset.table, task=dataset.task)
    except DataError:
        if dataset.table is not None:
            raise
        return {}
    items = chain.from_iterable(found.splits.values())
    return {item.member.name: tuple(found.classes[label] for label in item.labels) for item in items}


def _of_tar(tar: Path, dataset: DatasetConfig) -> Iterator[LabelledImage]:
    members = [each for each in archives.contents(tar) if not each.folder and not leftover(each.name)]
    labels = labels_of(members, partial(archives.content, tar), tar, dataset)
    with files.naming(tar), tar.open("rb", buffering=0) as stream:
        for member in members:
            if not is_document(member.name) and (not labels or member.name in labels):
                stream.seek(member.offset)
                yield LabelledImage(member.name, _labels(labels, member.name), stream.read(member.size))


def _of_tfrecords(found: Iterable[Named], scratch: Path, dataset: DatasetConfig) -> Iterator[LabelledImage]:
    links, lists = list[Path](), list[Path]()
    for name, file in found:
        if "/" not in name and name.lower().endswith(ARCHIVES):
            (unpacked := scratch / "unpacked").mkdir()
            tfrecord.collect(file, unpacked)
            of_archive = sorted(unpacked.iterdir())
            links += [path for path in of_archive if shards.is_shard(path.name)]
            lists += [path for path in of_archive if class_lists.is_class_list(path.name)]
        elif (target := shards.raw_name(name)) is not None:
            (link := scratch / target).symlink_to(file.resolve())
            (links if shards.is_shard(target) else lists).append(link)
    texts: class_lists.Texts = {}
    plain = [tfrecords.plain(link, scratch / "plain") for link in links]
    examples = [tfrecords.examples([shard], texts, dataset.task) for shard in plain]
    used = tfrecords.used_labels(examples) if examples else []
    classes = class_lists.classes(lists, texts, used, whole=False) if examples else ()
    for shard, each in zip(links, examples, strict=True):
        labels = label_arrays.each(each.labels)
        for number, (label, image) in enumerate(zip(labels, each.images(range(len(labels))), strict=True)):
            content = b"" if isinstance(image, BadImage) else image.encoded
            names = tuple(classes[one] for one in (label if isinstance(label, tuple) else (label,)))
            yield LabelledImage(f"{shard.name} record {number}", names, content)
