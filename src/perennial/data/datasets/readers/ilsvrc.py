"""Read the archives of the ImageNet challenge of 2012: images, development kit and bounding boxes.

Training images are in a tar file of tar files, one for each synset; their names start with the synset.
Validation images are numbered, and the development kit has the class of each number. Boxes are in XML files
`<synset>/<image>.xml`, in pixels of the image that the annotator saw. Sources: readme.txt of the development
kit; https://image-net.org/download-bboxes; slim's datasets/process_bounding_boxes.py.
"""

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray

from perennial.base.errors import DataError
from perennial.data import archives
from perennial.data.archives import Member
from perennial.data.datasets.dataset import Examples
from perennial.data.datasets.readers import tar_images
from perennial.data.images import Annotations, Box, Refused

FIRST_LABEL = 1  # of the synsets; 0 is the background, as in slim
VALIDATION_NAME = re.compile(r"ILSVRC2012_val_([0-9]{8})\.JPEG")


class Synset(NamedTuple):
    """A class of the challenge."""

    wnid: str  # such as n01440764
    words: str  # such as "tench, Tinca tinca"
    images: int  # for training


def development_kit(tar: Path) -> tuple[list[Synset], NDArray[np.int64]]:
    """Read the synsets, sorted by name, and the synset index of each validation image."""
    members = {member.file_name: member for member in archives.contents(tar)}
    found = {}
    for name in ("meta.mat", "ILSVRC2012_validation_ground_truth.txt"):
        if name not in members:
            raise DataError(f"{tar} holds no {name}")
        found[name] = archives.content(tar, members[name])
    by_id = _synsets(found["meta.mat"], tar / "meta.mat")
    synsets = sorted(by_id.values())
    position = {synset: index for index, synset in enumerate(synsets)}
    truth = []
    for line, text in enumerate(found["ILSVRC2012_validation_ground_truth.txt"].split(), 1):
        if not text.isdigit() or int(text) not in by_id:
            shown = text.decode("ascii", "backslashreplace")
            raise DataError(
                f"{tar}/ILSVRC2012_validation_ground_truth.txt, line {line}: {shown!r}, expected the "
                f"ILSVRC2012_ID of a synset, 1 to {len(by_id)}"
            )
        truth.append(position[by_id[int(text)]])
    return synsets, np.array(truth, np.int64)


def _synsets(content: bytes, file: Path) -> dict[int, Synset]:
    """Read the synsets without children, by number, from 1."""
    from scipy.io import loadmat  # noqa: PLC0415 - only this data set needs it

    try:
        rows: Any = np.atleast_1d(loadmat(io.BytesIO(content), squeeze_me=True)["synsets"])
        leaves = {
            int(row["ILSVRC2012_ID"]): Synset(str(row["WNID"]), str(row["words"]), int(row["num_train_images"]))
            for row in rows
            if not int(row["num_children"])
        }
    except Exception as error:  # SciPy's reader raises almost any type
        raise DataError(f"{file} is damaged or not from ILSVRC2012: {error}") from error
    if sorted(leaves) != list(range(1, len(leaves) + 1)) or len(set(leaves.values())) != len(leaves):
        raise DataError(f"{file}: the synsets without children are not numbered from 1")
    return leaves


def training(tar: Path, synsets: Sequence[Synset], boxes: Path) -> Examples:
    """Read the images of all synsets."""
    inner = {member.name: member for member in archives.contents(tar) if not member.folder}
    expected = {f"{synset.wnid}.tar" for synset in synsets}
    if wrong := sorted(expected ^ inner.keys()):
        have = "lacks" if wrong[0] in expected else "holds"
        raise DataError(f"{tar} {have} {wrong[0]}; expected {len(expected)} synsets, found {len(inner)}")
    members: list[Member] = []
    for synset in synsets:
        found = archives.contents(tar, inner[f"{synset.wnid}.tar"])
        for member in found:
            if member.folder or not re.fullmatch(rf"{synset.wnid}_[0-9]+\.JPEG", member.name):
                raise DataError(f"{tar}/{synset.wnid}.tar holds {member.name!r}, which is not an image of it")
        if len(found) != synset.images:
            raise DataError(
                f"{tar}/{synset.wnid}.tar holds {len(found)} images, expected {synset.images} by meta.mat"
            )
        members += found
    owners = np.repeat(np.arange(len(synsets)), [synset.images for synset in synsets])
    return _examples(tar, members, owners, synsets, boxes)


def validation(tar: Path, truth: NDArray[np.int64], synsets: Sequence[Synset], boxes: Path) -> Examples:
    """Read the validation images, with labels from the development kit."""
    members = [member for member in archives.contents(tar) if not member.folder]
    for number, member in enumerate(members, 1):
        found = VALIDATION_NAME.fullmatch(member.file_name)
        if not found or int(found[1]) != number:
            raise DataError(f"{tar}: found {member.name!r}, expected ILSVRC2012_val_{number:08d}.JPEG")
    if len(members) != len(truth):
        raise DataError(f"{tar} holds {len(members)} images, but the development kit labels {len(truth)}")
    return _examples(tar, members, truth, synsets, boxes)


@dataclass(frozen=True)
class _Annotate:
    """Annotations of an example: the words of its synset and, if there is an XML file, its boxes."""

    tar: Path
    spans: NDArray[np.int64]  # [N, 2], offset and bytes of the XML file, 0 bytes if there is none
    synsets: Sequence[Synset]
    wnids: frozenset[str]
    indices: NDArray[np.int64]  # [N], of the synset

    def __call__(self, index: int) -> Annotations:
        synset, (offset, size) = self.synsets[self.indices[index]], self.spans[index].tolist()
        if not size:
            return Annotations(text=synset.words)
        content = archives.content(self.tar, Member(f"{synset.wnid}/*.xml", offset, size))
        return Annotations(text=synset.words, boxes=tuple(boxes(content, synset.wnid, self.wnids)))


def boxes(content: bytes, own: str, wnids: Collection[str]) -> list[Box]:
    """Read the boxes of an XML file as in slim: clipped, none without area, none of another synset."""
    try:
        text = content.decode()  # decode first: an encoding named in the file could hide a document type
        # A document type could define entities that expand without limit.
        if "<!DOCTYPE" in text or "<!ENTITY" in text:
            raise Refused("its bounding boxes are not plain XML")
        root = ET.fromstring(text)  # noqa: S314 - without entities
        width, height = (float(root.findtext(f"size/{side}") or 0) for side in ("width", "height"))
        found = [
            [float(each.findtext(end) or "") for end in ("xmin", "ymin", "xmax", "ymax")]
            for thing in root.iter("object")
            if (name := thing.findtext("name")) == own or name not in wnids
            for each in thing.iter("bndbox")
        ]
    except (ET.ParseError, expat.ExpatError, ValueError) as error:
        raise Refused(f"its bounding boxes cannot be read: {error}") from error
    if found and not (width > 0 and height > 0):
        raise Refused("its bounding boxes lack the image size")
    made = (tar_images.box(ends, width, height) for ends in found)
    return [box for box in made if box is not None]


def _examples(
    tar: Path,
    members: Sequence[Member],
    owners: NDArray[np.int64],  # [N], index of the synset of each
    synsets: Sequence[Synset],
    boxes: Path,
) -> Examples:
    order = tar_images.order([member.file_name for member in members])
    ordered, chosen = [members[index] for index in order], owners[order]
    files, names = _xml_files(boxes), tuple(member.file_name for member in ordered)
    xml = [files.get(name.removesuffix(".JPEG"), (0, 0)) for name in names]
    spans = np.array(xml, np.int64).reshape(-1, 2)
    wnids = frozenset(synset.wnid for synset in synsets)
    annotate = _Annotate(boxes, spans, tuple(synsets), wnids, chosen)
    return tar_images.examples(tar, ordered, names, chosen + FIRST_LABEL, annotate=annotate)


def _xml_files(tar: Path) -> Mapping[str, tuple[int, int]]:
    """Return the offset and size of each XML file, by its name without extension; none without the archive."""
    if not tar.is_file():
        return {}
    members = (member for member in archives.contents(tar) if member.name.endswith(".xml"))
    return {member.file_name.removesuffix(".xml"): (member.offset, member.size) for member in members}
