"""The images of two versions of the records, compared one by one: added, removed, relabelled, moved."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from perennial.base.choices import SPLITS, Split
from perennial.base.errors import DataError
from perennial.data.records import manifest
from perennial.data.records.manifest import Manifest, Shard
from perennial.data.tfrecord import example, framing
from perennial.release.audit.sides import DvcObjects


class RecordImage(NamedTuple):
    """An image of the records."""

    sha256: bytes  # of its encoded bytes
    label: str  # name of its class, or names of its labels
    split: Split


@dataclass(frozen=True, kw_only=True)
class ImageChange:
    """An image that changed; None on the side where it is missing."""

    sha256: str
    a: RecordImage | None
    b: RecordImage | None

    @property
    def kind(self) -> str:
        """added, removed, relabelled or moved."""
        if self.a is None or self.b is None:
            return "added" if self.a is None else "removed"
        return "relabelled" if self.a.label != self.b.label else "moved"


@dataclass(frozen=True, kw_only=True)
class Images:
    """Two versions of the records, compared."""

    examples: dict[str, tuple[int, int]]  # by split, in both
    changes: list[ImageChange] = field(default_factory=list)
    labels: tuple[str, str] = ("", "")  # digests of the labels of the relabelled images

    @property
    def only_labels(self) -> bool:
        """Whether images were relabelled, but none added or removed; relabelled ones may also change splits."""
        return self.count("relabelled") > 0 and not self.count("added") + self.count("removed")

    def count(self, kind: str) -> int:
        """Count the images with this kind of change."""
        return sum(change.kind == kind for change in self.changes)


class RevisionRecords:
    """The records of a revision; fetches only what is needed."""

    def __init__(self, objects: DvcObjects, digest: str, what: str) -> None:
        """Reads the manifest."""
        self._objects, self._what = objects, what
        self._members = objects.members(digest, what)
        if manifest.FILE not in self._members:
            raise DataError(f"{what} holds no {manifest.FILE}")
        file = self._file(manifest.FILE)
        try:
            self.manifest = Manifest.model_validate_json(file.read_bytes())
        except ValueError as error:
            raise DataError(f"{what}/{manifest.FILE} is not valid: {str(error).splitlines()[0]}") from error

    def images(self, split: Split, shards: Sequence[Shard]) -> Iterator[RecordImage]:
        """The images of shards, in their order."""
        for shard in shards:
            known = dict(enumerate(self.manifest.classes))
            for labels, encoded in _examples(self._file(shard.file), f"{self._what}/{shard.file}"):
                name = ", ".join(known.get(label, str(label)) for label in labels)
                yield RecordImage(hashlib.sha256(encoded).digest(), name, split)

    def _file(self, name: str) -> Path:
        if name not in self._members:
            raise DataError(f"{self._what}/{name} is not in the list of the folder")
        return self._objects.file(self._members[name], f"{self._what}/{name}")


def compare(a: RevisionRecords, b: RevisionRecords) -> Images:
    """Find images that were added, removed, relabelled or moved to another split; skips equal shards."""
    one, other = a.manifest, b.manifest
    left, right = Counter[RecordImage](), Counter[RecordImage]()
    for split in SPLITS:
        shards = [list(each.splits[split].shards) if split in each.splits else [] for each in (one, other)]
        same = Counter(s.sha256 for s in shards[0]) & Counter(s.sha256 for s in shards[1])
        same = same if one.classes == other.classes else Counter()
        left.update(a.images(split, _others(shards[0], same)))
        right.update(b.images(split, _others(shards[1], same)))
    common = left & right
    changes = list(_pairs(left - common, right - common))
    return Images(
        examples={split: (_count(one, split), _count(other, split)) for split in SPLITS},
        changes=sorted(changes, key=lambda each: (each.kind, each.sha256)),
        labels=_label_digests(changes),
    )


def rows(a: RevisionRecords, b: RevisionRecords, split: Split) -> tuple[list[int], list[int]]:
    """The row numbers of images that both versions have in a split, in the order of `a`."""
    places: dict[bytes, list[int]] = defaultdict(list)
    for row, image in enumerate(b.images(split, b.manifest.splits[split].shards)):
        places[image.sha256].append(row)
    found: tuple[list[int], list[int]] = ([], [])
    for row, image in enumerate(a.images(split, a.manifest.splits[split].shards)):
        if places[image.sha256]:
            found[0].append(row)
            found[1].append(places[image.sha256].pop(0))
    return found


def _others(shards: Sequence[Shard], same: Counter[str]) -> list[Shard]:
    """The shards that the other version does not have."""
    left, found = Counter(same), []
    for shard in shards:
        if left[shard.sha256]:
            left[shard.sha256] -= 1
        else:
            found.append(shard)
    return found


def _pairs(left: Counter[RecordImage], right: Counter[RecordImage]) -> Iterator[ImageChange]:
    before: dict[bytes, list[RecordImage]] = defaultdict(list)
    for image in left.elements():
        before[image.sha256].append(image)
    for image in right.elements():
        was = before[image.sha256]
        yield ImageChange(sha256=image.sha256.hex(), a=was.pop() if was else None, b=image)
    for gone in before.values():
        yield from (ImageChange(sha256=image.sha256.hex(), a=image, b=None) for image in gone)


def _label_digests(changes: Sequence[ImageChange]) -> tuple[str, str]:
    relabelled = sorted((each for each in changes if each.kind == "relabelled"), key=lambda each: each.sha256)
    texts = ["".join(f"{each.sha256} {image.label}\n" for each in relabelled if (image := getattr(each, side)))
             for side in ("a", "b")]  # fmt: skip
    one, other = (hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest() for text in texts)
    return one, other


def _count(data: Manifest, split: Split) -> int:
    return data.splits[split].examples if split in data.splits else 0


def _examples(file: Path, what: str) -> Iterator[tuple[tuple[int, ...], bytes]]:
    """The labels and the encoded image of each record."""
    with file.open("rb") as stream:
        spans, fault = framing.scan(stream, file.stat().st_size)
        if fault is not None:
            raise DataError(f"{what} is damaged at byte {fault.offset}: {fault.message}")
        for offset, length in spans.tolist():
            stream.seek(offset + framing.HEADER.size)
            try:
                fields, encoded = example.parse(stream.read(length))
            except ValueError as error:
                raise DataError(f"{what} is damaged at byte {offset}: {error}") from error
            yield fields.labels, encoded
