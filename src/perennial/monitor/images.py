"""Labelled images in the files of a source: class folders, archives of them, or TFRecords."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from perennial import archives, choices, files
from perennial.archives import leftover
from perennial.archives.write import ARCHIVES
from perennial.datasets.readers import class_folders, tfrecords
from perennial.images import BadImage

Named = tuple[str, Path]  # name in the source, and file


class LabelledImage(NamedTuple):
    """The file of an image, or its bytes in a record."""

    name: str  # in the source or archive
    label: str  # name of its class
    content: bytes


def of_files(dataset: choices.Dataset, found: Sequence[Named], scratch: Path) -> Iterator[LabelledImage]:
    """The images in files of a source, or in raw files of the download stage; `scratch` is an empty folder.

    Raises:
        DataError: an archive or TFRecord file is damaged.
    """
    if dataset == "tfrecord":
        yield from _of_tfrecords(found, scratch)
        return
    for number, (name, file) in enumerate(found):
        if is_document(name):
            continue
        if "/" in name or not name.lower().endswith(ARCHIVES):
            yield LabelledImage(name, _label(name), file.read_bytes())
        else:
            archives.expand(file, tar := scratch / f"{number}.tar")
            yield from _of_tar(tar)


def is_document(name: str) -> bool:
    """Whether a file of a source is a document; an archive such as readme.zip is not."""
    return class_folders.is_document(name) and not name.lower().endswith(ARCHIVES)


def is_list_of_labels(dataset: choices.Dataset, name: str) -> bool:
    """Whether a file of a source names the classes of its records."""
    return dataset == "tfrecord" and name in tfrecords.LABEL_FILES


def _label(name: str) -> str:
    """The folder of an image, which names its class, since class folders have no subfolders."""
    return PurePosixPath(name).parent.name


def _of_tar(tar: Path) -> Iterator[LabelledImage]:
    members = [each for each in archives.contents(tar) if not each.folder and not leftover(each.name)]
    with files.naming(tar), tar.open("rb", buffering=0) as stream:
        for member in members:
            if not is_document(member.name):
                stream.seek(member.offset)
                yield LabelledImage(member.name, _label(member.name), stream.read(member.size))


def _of_tfrecords(found: Iterable[Named], scratch: Path) -> Iterator[LabelledImage]:
    shards = []
    for name, file in found:
        (link := scratch / name).symlink_to(file.resolve())
        if tfrecords.split_of(name) is not None:
            shards.append(link)
    examples = [tfrecords.examples([shard]) for shard in shards]
    classes = tfrecords.class_names(scratch, examples) if examples else ()
    for shard, each in zip(shards, examples, strict=True):
        for number, image in enumerate(each.images(range(len(each.labels)))):
            content = b"" if isinstance(image, BadImage) else image.encoded
            yield LabelledImage(f"{shard.name} record {number}", classes[each.labels[number]], content)
