"""Checks of each record in a part of a shard, in bulk where records are alike: framing, fields and images."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Literal

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from perennial.base import files
from perennial.base.choices import SPLITS, Split
from perennial.data.images import decode, png, statistics
from perennial.data.images.statistics import Fingerprints, Statistics
from perennial.data.tfrecord import bulk, example, framing, label_arrays
from perennial.data.validation import image_index
from perennial.data.validation.problems import Problem, image_name

Decode = Literal["all", "sample", "none"]
SMALL_PIXELS = 1 << 12  # smaller images are analysed in batches
LISTED = 1000  # problems of a part at most; all are counted
BATCH = 256  # images of one size that are analysed together
TINY_PIXELS = 32 * 32  # smaller images look alike by the thousand, such as MNIST's 28x28 digits


@dataclass(frozen=True, kw_only=True)
class Checks:
    """The checks to make on every record."""

    classes: int
    several: bool = False  # labels an image
    decode: Decode = "all"
    fingerprints: bool = False


@dataclass(frozen=True, kw_only=True)
class Part:
    """Consecutive records of a shard; without spans, the file as a whole."""

    split: Split
    file: Path
    first: int = 0  # number of the first record within the shard
    spans: framing.Spans | None = None


@dataclass(kw_only=True)
class Inspection:
    """Problems of a part and facts about its valid records."""

    records: int = 0
    problems: list[Problem] = field(default_factory=list)
    codes: Counter[str] = field(default_factory=Counter)  # of all problems, listed or not
    labels: NDArray[np.int64]  # valid records by label
    examples: int = 0  # valid records
    unlabelled: int = 0  # ... without any label
    pairs: Counter[tuple[int, int]] = field(default_factory=Counter)  # ... by two of their labels
    most_labels: int = 0  # ... of a record
    statistics: Statistics = field(default_factory=Statistics)
    # Of valid records, with packed labels.
    hashed: tuple[image_index.ImageIndex, label_arrays.LabelArray] | None = None
    sha256: str | None = None  # of the file as a whole


def inspect(request: Checks, part: Part) -> Inspection:
    """Check each record of a part; if the part has no spans, compute the digest of the file."""
    if part.spans is None:
        return Inspection(labels=np.zeros(request.classes, np.int64), sha256=files.sha256(part.file))
    return _Inspector(request, part, part.spans).inspection()


_LAYOUTS = bulk.LayoutFinder()  # all parts that a process checks share them


class _Inspector:
    def __init__(self, request: Checks, part: Part, spans: framing.Spans) -> None:
        self.request, self.part, self.spans = request, part, spans
        self.found = Inspection(records=len(spans), labels=np.zeros(request.classes, np.int64))
        self.valid = np.zeros(len(spans), np.bool_)  # records without a problem
        self.labels: label_arrays.LabelArray = np.zeros(len(spans), np.int64)
        if request.several:
            self.labels = np.zeros((len(spans), request.classes), np.uint8)
        self.image_spans = np.zeros((len(spans), 2), np.int64)  # in the block
        self.encoded: dict[int, bytes] = {}  # images that were not parsed in bulk
        self.block = b""
        self.layouts: list[tuple[bulk.Layout, NDArray[np.int64]]] = []
        self.entries = np.zeros(len(spans), image_index.ENTRY)
        self.entries["split"] = SPLITS.index(part.split)

    def inspection(self) -> Inspection:
        start = int(self.spans[0, 0])
        size = int(self.spans[-1].sum()) + framing.OVERHEAD - start
        with self.part.file.open("rb") as stream:
            stream.seek(start)
            self.block = stream.read(size)
        if len(self.block) < size:
            self._add("record_truncated", "the file became shorter while it was read", 0)
            return self.found
        self._parse(self.spans - np.array([start, 0], np.uint64))
        self._analyse()
        labels = self.labels[self.valid]
        self.found.labels = label_arrays.per_class(labels, self.request.classes)
        self.found.examples, self.found.unlabelled = len(labels), label_arrays.unlabelled(labels)
        for each in label_arrays.each(labels) if self.request.several else ():
            assert isinstance(each, tuple)
            self.found.pairs.update(combinations(each, 2))
            self.found.most_labels = max(self.found.most_labels, len(each))
        self.found.problems.sort(key=lambda problem: problem.record or 0)
        return self.found

    def _parse(self, spans: framing.Spans) -> None:
        valid = framing.valid_data(self.block, spans)
        for index in np.flatnonzero(~valid).tolist():
            self._add("data_crc", "the checksum of the record's data does not match", index)
        others, starts = valid.copy(), spans[:, 0] + framing.HEADER.size
        for layout, members in _LAYOUTS.find(self.block, starts[valid], spans[valid, 1]):
            if self._mismatch(layout.fields, layout.header) is None:
                indices = np.flatnonzero(valid)[members]
                others[indices] = False
                self._set_labels(indices, layout.fields)
                begins = starts[indices].astype(np.int64)[:, None]
                self.image_spans[indices] = begins + np.array([layout.start, layout.stop])
                self.found.statistics.sizes[layout.header.size] += len(indices)
                self.layouts.append((layout, indices))
        stops = starts + spans[:, 1]
        for index in np.flatnonzero(others).tolist():
            self._parse_one(index, self.block[int(starts[index]) : int(stops[index])])

    def _parse_one(self, index: int, data: bytes) -> None:
        try:
            fields, encoded = example.parse(data)
        except ValueError as error:
            self._add("schema", str(error), index)
            return
        found = decode.header(encoded)
        if (mismatch := self._mismatch(fields, found)) is not None:
            self._add(*mismatch, index)
        elif found is not None:
            self._set_labels(index, fields)
            self.encoded[index] = encoded
            self.found.statistics.sizes[found.size] += 1

    def _set_labels(self, indices: int | NDArray[np.int64], fields: example.Fields) -> None:
        self.valid[indices] = True
        if self.request.several:
            self.labels[indices] = label_arrays.of_lists([fields.labels], self.request.classes)[0]
        else:
            self.labels[indices] = fields.label

    def _mismatch(self, fields: example.Fields, image: decode.Header | None) -> tuple[str, str] | None:
        """Return the code and message of a label or image mismatch."""
        labels, ordered = fields.labels, sorted(set(fields.labels))
        if not self.request.several and len(labels) != 1:
            return "schema", f"{example.LABEL} has {len(labels)} values, expected 1"
        if list(labels) != ordered:
            return "schema", f"{example.LABEL} is {list(labels)}, expected ascending labels, each once"
        if wrong := [label for label in labels if not 0 <= label < self.request.classes]:
            return "label_range", f"label {wrong[0]}, expected 0 to {self.request.classes - 1}"
        if image is None or image.format != fields.format.replace("jpeg", "jpg"):
            found = "neither PNG nor JPEG" if image is None else image.format
            return "image_format", f"image/format is {fields.format}, the image is {found}"
        if (image.height, image.width) != (fields.height, fields.width):
            sizes = f"image of {(image.height, image.width)}, its record has {(fields.height, fields.width)}"
            return "image_size", sizes
        return None

    def _analyse(self) -> None:
        """Decode the chosen images and fingerprint all of them."""
        every = {"all": 1, "sample": 10, "none": 0}[self.request.decode]
        if not every:
            return
        chosen = self.valid & ((np.arange(len(self.labels)) + self.part.first) % every == 0)
        for layout, indices in self.layouts:
            if layout.header.format == "png":
                self._decode_stored(indices[chosen[indices]], chosen)
        self._decode(np.flatnonzero(chosen))
        if self.request.fingerprints:
            valid = np.flatnonzero(self.valid)
            entries = self.entries[valid]
            entries["sha256"] = statistics.sha256(self._images(valid))
            if every > 1:
                entries["pixels"] = statistics.encoded_digests(self._images(valid))
            self.found.hashed = entries, label_arrays.packed(self.labels[valid], self.request.classes)

    def _decode_stored(self, indices: NDArray[np.int64], chosen: NDArray[np.bool_]) -> None:
        """Read the pixels of PNGs that `convert` stored in one layout; remove those images from `chosen`."""
        for start in range(0, len(indices), BATCH):
            batch = indices[start : start + BATCH]
            stored = png.all_stored_pixels(list(self._images(batch)))
            if stored is not None:
                pixels, valid = stored
                self._add_batch(batch[valid], pixels[valid])
                chosen[batch[valid]] = False

    def _decode(self, indices: NDArray[np.int64]) -> None:
        """Decode images one by one and analyse small ones of equal size in batches."""
        by_shape: dict[tuple[int, ...], list[tuple[int, decode.Pixels]]] = defaultdict(list)
        for index, encoded in zip(indices.tolist(), self._images(indices), strict=True):
            try:
                image = decode.decoded(encoded)
            except ValueError as error:
                self.valid[index] = False
                self._add("image_decode", f"the image does not decode: {error}", index)
                continue
            if isinstance(image, PIL.Image.Image) and image.width * image.height >= SMALL_PIXELS:
                self._note(np.array([index]), *statistics.of_image(image))
            else:
                pixels = decode.array(image)
                by_shape[pixels.shape].append((index, pixels))
        for group in by_shape.values():
            members, batch = zip(*group, strict=True)
            self._add_batch(np.array(members), np.stack(batch))

    def _add_batch(self, indices: NDArray[np.int64], pixels: NDArray[np.uint8]) -> None:
        if len(indices):
            self.entries["tiny"][indices] = pixels[0, ..., 0].size < TINY_PIXELS
            self._note(indices, *statistics.of_batch(pixels))

    def _note(self, indices: NDArray[np.int64], found: Statistics, fingerprints: Fingerprints) -> None:
        self.found.statistics.add(found)
        self.entries["pixels"][indices], self.entries["hash"][indices] = (
            fingerprints.digests,
            fingerprints.hashes,
        )

    def _images(self, indices: NDArray[np.int64]) -> Iterator[bytes]:
        for index, (start, stop) in zip(indices.tolist(), self.image_spans[indices].tolist(), strict=True):
            yield self.block[start:stop] if stop else self.encoded[index]

    def _add(self, code: str, message: str, index: int) -> None:
        self.found.codes[code] += 1
        if len(self.found.problems) == LISTED:
            return
        offset, length = map(int, self.spans[index])
        start = offset - int(self.spans[0, 0]) + framing.HEADER.size
        if name := image_name(self.block[start : start + length]):
            message += f"; image {name}"
        file, record = self.part.file.name, index + self.part.first
        self.found.problems.append(Problem(code=code, file=file, record=record, offset=offset, message=message))
