# Origin: research/slim/datasets of github.com/tensorflow/models (Apache-2.0):
# names of files, splits and shards.
"""Planning of shards, before any image is read, and writing them.

Shards are written part by part, so that memory does not grow with the data.
"""

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perennial.base import files
from perennial.base.choices import SPLITS, Split
from perennial.base.errors import DataError
from perennial.base.parallel import threads
from perennial.data.datasets.dataset import DRAWN, TESTED, Examples, Images, Source
from perennial.data.datasets.readers.fixed_size import FixedSizeImages
from perennial.data.images import BadImage
from perennial.data.records import manifest, splits
from perennial.data.tfrecord import bulk, example, framing, label_arrays

SHARD_BYTES = 100_000_000  # minimum size with `auto`, if there are several shards
RECORD_BYTES = 150  # approximate size of a record without its image
DRAWN_SALT = "measures"
TEST_SALT = "test"  # not the seed: the test examples must stay the same whatever is tried on validation
SLIM_VALIDATION = 350  # flowers
SLIM_SHARDS = 5
SLIM_WHOLE = ("mnist", "cifar10", "digits")  # a file for each split
SLIM_IMAGENET_SEED = 12345
# Split in the source, split in slim, start of the file name, and number of files.
SLIM_NUMBERED: Mapping[str, Sequence[tuple[Split, Split, str, int]]] = {
    "imagenet": (("train", "train", "train", 1024), ("test", "validation", "validation", 128)),
    "visualwakewords": (("train", "train", "train.record", 100), ("test", "validation", "val.record", 10)),
}
# Split, split in the source, name of a file without its number, and the examples of each file.
SlimSplit = tuple[Split, Split, str, list[list[int]]]


@dataclass(frozen=True, kw_only=True)
class PlannedShard:
    """A TFRecord file to write: indices of examples of a source split."""

    name: str
    split: Split
    source: Split
    indices: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class ShardPart:
    """A part of a shard, small enough to be held in memory."""

    source: Split
    indices: NDArray[np.int64]
    labels: label_arrays.LabelArray


class Cut(NamedTuple):
    """A split to cut from train: a share of each class, chosen by the SHA-256 of a salt and the names."""

    split: Split
    share: float
    salt: str
    group: str | None  # the column whose equal values stay together


def plan(
    dataset: str,
    source: Source,
    *,
    shards: int | Literal["auto"],
    fraction: float,
    seed: int,
    test_fraction: float = 0.1,
    group: str | None = None,
) -> list[PlannedShard]:
    """Plan the shards of train, validation and test; splits that the source lacks are cut from train.

    `test_fraction` is a share of all examples, `fraction` the share of the rest that is for validation; with 0
    it has no shards. Examples with the same value in the column `group` stay together. Images of traffic that
    were drawn at random are divided between test and validation, or are in test where their label says so.
    """
    train, kinds = source.splits["train"], _kinds(source)
    chosen: dict[Split, list[tuple[Split, NDArray[np.int64]]]] = {
        split: [(split, np.arange(len(examples.labels)))]
        for split, examples in source.splits.items()
        if examples is not train
    }
    measures = np.isin(kinds, (DRAWN, TESTED))
    rest, drawn = np.flatnonzero(~measures), np.flatnonzero(measures)
    test = Cut(split="test", share=test_fraction, salt=TEST_SALT, group=group)
    for cut in (test, Cut(split="validation", share=fraction, salt=str(seed), group=group)):
        if cut.share and cut.split not in source.splits:
            held_out = _held_out(dataset, source, cut, rest)
            if held_out.any():
                chosen[cut.split] = [("train", rest[held_out])]
                rest = rest[~held_out]
    chosen["train"] = [("train", rest)]
    in_test = np.ones(len(drawn), np.bool_)
    if "validation" in chosen and train.names:
        in_test = (kinds[drawn] == TESTED) | splits.half(DRAWN_SALT, [train.names[at] for at in drawn.tolist()])
    measured: dict[Split, NDArray[np.int64]] = {"test": drawn[in_test], "validation": drawn[~in_test]}
    for into, indices in measured.items():
        if len(indices):
            chosen.setdefault(into, []).append(("train", indices))
    planned = []
    for split in (split for split in SPLITS if split in chosen):
        ranges: list[tuple[Split, NDArray[np.int64]]] = []
        for number, (origin, indices) in enumerate(chosen[split]):
            fitting = int(len(indices) * record_bytes(source.splits[origin]) // SHARD_BYTES)
            parts = splits.even(len(indices), fitting if number or isinstance(shards, str) else shards)
            ranges += [(origin, indices[part.start : part.stop]) for part in parts]
        for number, (origin, part_indices) in enumerate(ranges):
            name = f"{dataset}_{split}_{number:05d}-of-{len(ranges):05d}.tfrecord"
            planned.append(PlannedShard(name=name, split=split, source=origin, indices=part_indices))
    return planned


def _kinds(source: Source) -> NDArray[np.uint8]:
    """What each training example is: the source's own (0), DRAWN, CHOSEN or TESTED."""
    train = source.splits["train"]
    return np.zeros(len(train.labels), np.uint8) if train.kinds is None else train.kinds


def _held_out(dataset: str, source: Source, cut: Cut, indices: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Choose the training examples, mask bool [M], that another split gets; chosen images never leave train."""
    train = source.splits["train"]
    own = indices[_kinds(source)[indices] == 0]
    counts = label_arrays.per_class(train.labels[indices], len(source.classes))
    of_own = label_arrays.per_class(train.labels[own], len(source.classes))
    for label in np.flatnonzero((counts == 1) & (of_own == 1)):
        raise DataError(
            f"{dataset}: no {cut.split} split can be cut: class {source.classes[label]!r} has 1 example, "
            "too few to hold one out"
        )
    held_out = np.zeros(len(train.labels), np.bool_)
    if cut.group is not None:
        held_out[own] = _held_out_groups(dataset, source, cut, cut.group, own)
        return held_out[indices]
    several = train.labels.ndim == 2
    if not several:
        own = own[of_own[train.labels[own]] > 1]  # the only one of a class stays
    names = [name for index in own if (name := train.names[index])] if train.names else ()
    choose = splits.held_out_several if several else splits.held_out
    held_out[own] = choose(train.labels[own], fraction=cut.share, salt=cut.salt, names=names)
    return held_out[indices]


def _held_out_groups(
    dataset: str, source: Source, cut: Cut, group: str, own: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Choose examples, mask bool [M], by whole groups; one without a value is a group of its own."""
    train, column = source.splits["train"], source.columns.index(group)
    names = [train.further[index][column].strip() or f"/{train.names[index]}" for index in own.tolist()]
    values, of = np.unique(np.array(names, object), return_inverse=True)
    found = splits.whole_groups(of, values.tolist(), labels := train.labels[own], len(source.classes))
    every = np.arange(len(values))
    held_out = np.isin(of, splits.held_out_groups(found, every, fraction=cut.share, salt=cut.salt))
    for label in np.unique(labels).tolist() if labels.ndim == 1 else ():
        if held_out[labels == label].all() or not held_out[labels == label].any():
            raise DataError(
                f"{dataset}: no {cut.split} split can be cut: class {source.classes[label]!r} is in "
                f"{len(np.unique(of[labels == label]))} groups of {group!r}, too few to hold one out"
            )
    return held_out


def plan_slim(dataset: str, source: Source, *, fraction: float) -> list[PlannedShard]:
    """Plan shards with TF-Slim's file names, splits and counts, for programs that expect them."""
    if any(examples.kinds is not None for examples in source.splits.values()):
        raise DataError("dataset.layout: slim takes no labelled images of traffic; set it to perennial")
    planned = []
    if dataset in SLIM_WHOLE:
        for split, examples in source.splits.items():
            indices, name = np.arange(len(examples.labels)), f"{dataset}_{split}.tfrecord"
            planned.append(PlannedShard(name=name, split=split, source=split, indices=indices))
        return planned
    numbered = dataset in SLIM_NUMBERED
    found = _slim_numbered(dataset, source) if numbered else _slim_flowers(dataset, source, fraction)
    for split, origin, name, shards in found:
        for shard, own in enumerate(shards):
            file, indices = name.format(f"{shard:05d}-of-{len(shards):05d}"), np.array(own, np.int64)
            planned.append(PlannedShard(name=file, split=split, source=origin, indices=indices))
    return planned


def _slim_flowers(dataset: str, source: Source, fraction: float) -> Iterator[SlimSplit]:
    """Slim's flowers, and other images in their layout: shuffled, the first ones held out."""
    orders: dict[Split, list[int]] = {}
    for split, examples in source.splits.items():
        names = examples.names or range(len(examples.labels))
        orders[split] = sorted(range(len(names)), key=names.__getitem__)
        random.Random(0).shuffle(orders[split])  # noqa: S311 - slim's own split and seed
    if set(orders) == {"train"}:
        order = orders["train"]
        held_out = SLIM_VALIDATION if dataset == "flowers" else round(len(order) * fraction)
        if len(order) <= held_out:
            raise DataError(
                f"slim's layout needs more than {held_out} photographs: it holds {held_out} out for "
                f"validation; the archive has {len(order)}"
            )
        orders = {"train": order[held_out:], **({"validation": order[:held_out]} if held_out else {})}
    for split in (split for split in SPLITS if split in orders):
        size, origin = -(-len(orders[split]) // SLIM_SHARDS), split if split in source.splits else "train"
        shards = [orders[split][shard * size : (shard + 1) * size] for shard in range(SLIM_SHARDS)]
        yield split, origin, f"{dataset}_{split}_{{}}.tfrecord", shards


def _slim_numbered(dataset: str, source: Source) -> Iterator[SlimSplit]:
    """Slim's ImageNet (shuffled, then split) or Visual Wake Words (dealt out in turn)."""
    for origin, split, name, count in SLIM_NUMBERED[dataset]:
        names = source.splits[origin].names
        order = sorted(range(len(names)), key=names.__getitem__)
        shards = [order[shard::count] for shard in range(count)]
        if dataset == "imagenet":
            random.Random(SLIM_IMAGENET_SEED).shuffle(order)  # noqa: S311 - slim's own seed
            bounds = [len(order) * shard // count for shard in range(count + 1)]
            shards = [order[start:stop] for start, stop in pairwise(bounds)]
        yield split, origin, f"{name}-{{}}", shards


def parts(shard: PlannedShard, examples: Examples, part_bytes: int) -> list[NDArray[np.int64]]:
    """Split a shard into the indices of its parts, in order."""
    size = max(int(part_bytes / record_bytes(examples)), 1)
    return [shard.indices[start : start + size] for start in range(0, len(shard.indices), size)]


def record_bytes(examples: Examples) -> float:
    """Mean size of a record."""
    return float(examples.image_bytes.sum()) / max(len(examples.labels), 1) + RECORD_BYTES


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """The records of a part of a shard; pickled without files of the source, which are faster to read again."""

    pieces: list[bytes]
    originals: list[tuple[int, int]] = field(default_factory=list)  # of such a file: its piece, and its example
    labels: label_arrays.LabelArray  # of those records
    # Files that gave no record, by the index of their example.
    rejected: dict[int, BadImage] = field(default_factory=dict)
    hidden: list[str] = field(default_factory=list)  # files whose picture was in the dropped alpha channel

    @property
    def records(self) -> bytes:
        """All pieces."""
        return b"".join(self.pieces)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the files out."""
        files_at = {place for place, _ in self.originals}
        pieces = [b"" if place in files_at else piece for place, piece in enumerate(self.pieces)]
        return {**vars(self), "pieces": pieces}


def encode(images: Mapping[Split, Images], part: ShardPart) -> Encoded:
    """Encode the examples of a part as records, in order."""
    read = images[part.source]
    if isinstance(read, FixedSizeImages):
        batches, done = list[bytes](), 0
        for pixels in read.batches(part.indices.tolist()):
            batches.append(bulk.frame_images(pixels, part.labels[done : done + len(pixels)]))
            done += len(pixels)
        return Encoded(pieces=batches, labels=part.labels)
    pieces, hidden, originals = list[bytes](), list[str](), list[tuple[int, int]]()
    rejected, indices = dict[int, BadImage](), part.indices.tolist()
    for index, label, image in zip(indices, label_arrays.each(part.labels), read(indices), strict=True):
        if isinstance(image, BadImage):
            rejected[index] = image
        else:
            sides = example.around(image, label)
            before, after = framing.around(sides[0], image.encoded, sides[1])
            originals += [(len(pieces) + 1, index)] if image.original else []
            pieces += [before, image.encoded, after]
            hidden += [image.filename or "an image without a name"] if image.hidden else []
    labels = part.labels[~np.isin(indices, list(rejected))]
    return Encoded(pieces=pieces, originals=originals, labels=labels, rejected=rejected, hidden=hidden)


def completed(part: Encoded, examples: Examples) -> Encoded:
    """Insert the files that another process left out, read from the source."""
    if not part.originals or part.pieces[part.originals[0][0]]:
        return part
    pieces = list(part.pieces)
    contents = examples.originals([index for _, index in part.originals]) if examples.originals else ()
    for (place, _), content in zip(part.originals, contents, strict=True):
        pieces[place] = content
    return replace(part, pieces=pieces)


def write_shard(file: Path, parts: Iterator[Encoded], classes: int) -> manifest.SplitManifest:
    """Write a TFRecord file; returns the manifest of a split that has only this file."""
    digest = hashlib.sha256()
    per_class, examples, unlabelled = np.zeros(classes, np.int64), 0, 0

    def records() -> Iterator[bytes]:
        nonlocal per_class, examples, unlabelled
        for part in parts:
            per_class = per_class + label_arrays.per_class(part.labels, classes)
            examples += len(part.labels)
            unlabelled += label_arrays.unlabelled(part.labels)
            yield part.records

    with files.naming(file), file.open("wb") as stream:
        threads.feed(records(), stream.write, digest.update)
        size = stream.tell()
    entry = manifest.Shard(file=file.name, examples=examples, bytes=size, sha256=digest.hexdigest())
    per_label: list[int] = per_class.tolist()
    return manifest.SplitManifest(examples=examples, per_class=per_label, unlabelled=unlabelled, shards=[entry])
