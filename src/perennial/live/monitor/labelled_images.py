"""Labelled images in the files of a source: class folders, archives of them, or TFRecords."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from perennial.base import files
from perennial.base.config.data import DatasetConfig, TableConfig
from perennial.base.errors import DataError
from perennial.data import archives
from perennial.data.archives import Member, leftover
from perennial.data.archives.write import ARCHIVES
from perennial.data.datasets import tfrecord
from perennial.data.datasets.own import class_lists, image_assignment, shards, table_rows
from perennial.data.datasets.own.names import is_document_name
from perennial.data.datasets.readers import tfrecords
from perennial.data.images import BadImage

Named = tuple[str, Path]  # name in the source, and file


class LabelledImage(NamedTuple):
    """The file of an image, or its bytes in a record."""

    name: str  # in the source or archive
    label: str  # name of its class
    content: bytes


def of_files(
    dataset: DatasetConfig, found: Sequence[Named], scratch: Path, labels: Mapping[str, str] | None = None
) -> Iterator[LabelledImage]:
    """The images in files of a source, or in raw files of the download stage; `scratch` is an empty folder.

    `labels`: of files by name, if class folders or a table of the source give them.
    """
    if dataset.name == "tfrecord":
        yield from _of_tfrecords(found, scratch)
        return
    for number, (name, file) in enumerate(found):
        if is_document(name) or (labels and name not in labels):
            continue
        if "/" in name or not name.lower().endswith(ARCHIVES):
            yield LabelledImage(name, (labels or {}).get(name) or _label(name), file.read_bytes())
        else:
            archives.expand(file, tar := scratch / f"{number}.tar")
            yield from _of_tar(tar, dataset.table)


def is_document(name: str) -> bool:
    """Whether a file of a source is a document; an archive such as readme.zip is not."""
    return is_document_name(name) and not name.lower().endswith(ARCHIVES)


def raw_name(dataset: str, name: str) -> str:
    """The name in the raw folder of a file of a source."""
    return (dataset == "tfrecord" and shards.raw_name(name)) or name


def _label(name: str) -> str:
    """The folder of an image, which names its class where the folders of all images are no class folders."""
    return PurePosixPath(name).parent.name


def is_table(name: str) -> bool:
    """Whether a file of a source may be a table of labels, or a list of the classes in one."""
    return table_rows.is_table(name) or class_lists.is_class_list(name)


def labels_of(
    members: Iterable[Member], read: table_rows.Read, where: Path, table: TableConfig | None
) -> dict[str, str]:
    """The labels of images by name, from class folders or a table; none if neither gives them."""
    try:
        found = image_assignment.find(members, read, where, table=table)
    except DataError:
        if table is not None:
            raise
        return {}
    return {item.member.name: found.shown(item) for item in chain.from_iterable(found.splits.values())}


def _of_tar(tar: Path, table: TableConfig | None) -> Iterator[LabelledImage]:
    members = [each for each in archives.contents(tar) if not each.folder and not leftover(each.name)]
    labels = labels_of(members, partial(archives.content, tar), tar, table)
    with files.naming(tar), tar.open("rb", buffering=0) as stream:
        for member in members:
            if not is_document(member.name) and (not labels or member.name in labels):
                stream.seek(member.offset)
                yield LabelledImage(
                    member.name, labels.get(member.name) or _label(member.name), stream.read(member.size)
                )


def _of_tfrecords(found: Iterable[Named], scratch: Path) -> Iterator[LabelledImage]:
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
    examples = [tfrecords.examples([tfrecords.plain(link, scratch / "plain")], texts) for link in links]
    used = tfrecords.used_labels(examples) if examples else []
    classes = class_lists.classes(lists, texts, used, whole=False) if examples else ()
    for shard, each in zip(links, examples, strict=True):
        for number, image in enumerate(each.images(range(len(each.labels)))):
            content = b"" if isinstance(image, BadImage) else image.encoded
            yield LabelledImage(f"{shard.name} record {number}", classes[each.labels[number]], content)
