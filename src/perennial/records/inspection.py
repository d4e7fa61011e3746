"""A closer look at a part of a shard: what each of its records says, and whether that is so."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from perennial import files
from perennial.images import decode, png, statistics
from perennial.images.decode import Pixels
from perennial.images.header import Header, header
from perennial.images.statistics import Fingerprints, Statistics
from perennial.records.problems import Problem, image_name
from perennial.tfrecord import example, framing, kinds
from perennial.tfrecord.example import Fields
from perennial.tfrecord.framing import Places
from perennial.tfrecord.kinds import Kind

Decode = Literal["all", "sample", "none"]
SAMPLE_EVERY = 10  # records
SMALL_PIXELS = 1 << 12  # an image of fewer is looked at together with others
BATCH = 256  # images of one size that are looked at together
FORMATS = {"jpeg": "jpg"}  # names of the same
CHANNELS = {1: 1, 2: 1, 3: 3, 4: 3}  # without alpha, and RGB where an image is CMYK
TINY_PIXELS = 32 * 32  # images of fewer look alike by the thousand: MNIST's 28x28 digits do
LISTED = 1000  # problems of a part that are listed one by one; all are counted


@dataclass(frozen=True, kw_only=True)
class Question:
    """What to expect of every record."""

    classes: int
    decode: Decode
    fingerprints: bool  # whether duplicates will be looked for, which takes a look at the images


@dataclass(frozen=True, kw_only=True)
class Part:
    """Records of a shard that stand one after the other; or, without places, the file as a whole."""

    file: Path
    first: int  # number of the first record within the shard
    places: Places | None


@dataclass(kw_only=True)
class Inspection:
    """What was found in a part."""

    records: int = 0
    problems: list[Problem] = field(default_factory=list)
    codes: Counter[str] = field(default_factory=Counter)  # of all problems, listed or not
    labels: NDArray[np.int64]  # records without a problem, by label
    statistics: Statistics = field(default_factory=Statistics)
    fingerprints: Fingerprints | None = None
    numbers: NDArray[np.uint32] | None = None  # of the records that have a fingerprint, within the shard
    tiny: NDArray[np.bool_] | None = (
        None  # which of these are too small for their perceptual hash to tell them apart
    )
    sha256: str | None = None  # of the file as a whole


def inspect(question: Question, part: Part) -> Inspection:
    """Checks the records of a part one by one; of a part without places the file's digest."""
    if part.places is None:
        return Inspection(labels=np.zeros(question.classes, np.int64), sha256=files.sha256(part.file))
    return _Inspector(question, part, part.places).inspection()


FINDER = kinds.Finder()  # a process looks at many parts, and they hold the same kinds


class _Inspector:
    def __init__(self, question: Question, part: Part, places: Places) -> None:
        self.question, self.part, self.places = question, part, places
        self.found = Inspection(records=len(places), labels=np.zeros(question.classes, np.int64))
        self.labels = np.full(len(places), -1, np.int64)  # -1: a record with a problem
        self.spans = np.zeros((len(places), 2), np.int64)  # of the encoded images in the block
        self.encoded: dict[int, bytes] = {}  # images that were not parsed together with others
        self.block = b""
        self.kinds: list[tuple[Kind, NDArray[np.int64]]] = []
        self.digests = np.zeros((len(places), 2), np.uint64)
        self.hashes = np.zeros(len(places), np.uint64)
        self.tiny = np.zeros(len(places), bool)

    def inspection(self) -> Inspection:
        start = int(self.places[0, 0])
        size = int(self.places[-1].sum()) + framing.AROUND - start
        with self.part.file.open("rb") as stream:
            stream.seek(start)
            self.block = stream.read(size)
        if len(self.block) < size:
            self._add("record_truncated", "the file became shorter while it was read", 0)
            return self.found
        self._parse(self.places - np.array([start, 0], np.uint64))
        self._look()
        self.found.labels = np.bincount(self.labels[self.labels >= 0], minlength=self.question.classes)
        self.found.problems.sort(key=lambda problem: problem.record or 0)
        return self.found

    def _parse(self, places: Places) -> None:
        """Finds label and image of every record, or what is wrong with it."""
        sound = framing.sound(self.block, places)
        for index in np.flatnonzero(~sound).tolist():
            self._add("data_crc", "the checksum of the record's data does not match", index)
        others, starts = sound.copy(), places[:, 0] + framing.HEADER.size
        for kind, members in FINDER.found(self.block, starts[sound], places[sound, 1]):
            if self._mismatch(kind.fields, kind.header) is None:
                indices = np.flatnonzero(sound)[members]
                others[indices] = False
                self.labels[indices] = kind.fields.label
                self.spans[indices] = starts[indices].astype(np.int64)[:, None] + (kind.start, kind.stop)
                self._count(kind.header, len(indices))
                self.kinds.append((kind, indices))
        stops = starts + places[:, 1]
        for index in np.flatnonzero(others).tolist():
            self._parse_one(index, self.block[int(starts[index]) : int(stops[index])])

    def _parse_one(self, index: int, data: bytes) -> None:
        try:
            fields, encoded = example.parse(data)
        except ValueError as error:
            self._add("schema", str(error), index)
            return
        said = header(encoded)
        mismatch = self._mismatch(fields, said)
        if mismatch is not None:
            self._add(*mismatch, index)
            return
        self.labels[index], self.encoded[index] = fields.label, encoded
        if said is not None:
            self._count(said, 1)

    def _mismatch(self, fields: Fields, said: Header | None) -> tuple[str, str] | None:
        """Code and message where label or image are not as expected."""
        if not 0 <= fields.label < self.question.classes:
            return "label_range", f"label {fields.label}, expected 0 to {self.question.classes - 1}"
        if said is None or said.format != FORMATS.get(fields.format, fields.format):
            found = "neither PNG nor JPEG" if said is None else said.format
            return "image_format", f"its record says {fields.format}, the image is {found}"
        if (said.height, said.width) != (fields.height, fields.width):
            sizes = f"image of {(said.height, said.width)}, its record says {(fields.height, fields.width)}"
            return "image_size", sizes
        return None

    def _count(self, said: Header, images: int) -> None:
        self.found.statistics.sizes[said.height, said.width, CHANNELS[said.channels]] += images

    def _look(self) -> None:
        """Decodes the images that are to be decoded, and takes fingerprints of all."""
        every = {"all": 1, "sample": SAMPLE_EVERY, "none": 0}[self.question.decode]
        if not every:
            return
        chosen = (self.labels >= 0) & ((np.arange(len(self.labels)) + self.part.first) % every == 0)
        for kind, indices in self.kinds:
            if kind.header.format == "png":
                self._decode_stored(indices[chosen[indices]], chosen)
        self._decode(np.flatnonzero(chosen))
        if self.question.fingerprints:
            sound = np.flatnonzero(self.labels >= 0)
            digests, hashes = self.digests[sound], self.hashes[sound]
            if every > 1:
                digests, hashes = statistics.encoded_digests(self._images(sound)), hashes[:0]
            self.found.fingerprints = Fingerprints(digests, hashes)
            self.found.numbers = (sound + self.part.first).astype(np.uint32)
            self.found.tiny = self.tiny[sound]

    def _decode_stored(self, indices: NDArray[np.int64], chosen: NDArray[np.bool_]) -> None:
        """Takes the pixels out of images of one kind, where `convert` stored them, and their indices off."""
        for start in range(0, len(indices), BATCH):
            batch = indices[start : start + BATCH]
            stored = png.all_stored_pixels(list(self._images(batch)))
            if stored is not None:
                pixels, sound = stored
                self._add_batch(batch[sound], pixels[sound])
                chosen[batch[sound]] = False

    def _decode(self, indices: NDArray[np.int64]) -> None:
        """Decodes images one by one; small ones of equal size are then looked at together."""
        alike: dict[tuple[int, ...], list[tuple[int, Pixels]]] = defaultdict(list)
        for index, encoded in zip(indices.tolist(), self._images(indices), strict=True):
            try:
                image = decode.decoded(encoded)
            except ValueError as error:
                self.labels[index] = -1
                self._add("image_decode", f"the image does not decode: {error}", index)
                continue
            if isinstance(image, PIL.Image.Image) and image.width * image.height >= SMALL_PIXELS:
                self._note(np.array([index]), *statistics.of_image(image))
            else:
                pixels = decode.array(image)
                alike[pixels.shape].append((index, pixels))
        for group in alike.values():
            members, batch = zip(*group, strict=True)
            self._add_batch(np.array(members), np.stack(batch))

    def _add_batch(self, indices: NDArray[np.int64], pixels: NDArray[np.uint8]) -> None:
        if len(indices):
            self.tiny[indices] = pixels[0, ..., 0].size < TINY_PIXELS
            self._note(indices, *statistics.of_batch(pixels))

    def _note(self, indices: NDArray[np.int64], found: Statistics, fingerprints: Fingerprints) -> None:
        self.found.statistics.add(found)
        self.digests[indices], self.hashes[indices] = fingerprints.digests, fingerprints.hashes

    def _images(self, indices: NDArray[np.int64]) -> Iterator[bytes]:
        """The encoded images of some records."""
        for index, (start, stop) in zip(indices.tolist(), self.spans[indices].tolist(), strict=True):
            yield self.block[start:stop] if stop else self.encoded[index]

    def _add(self, code: str, message: str, index: int) -> None:
        self.found.codes[code] += 1
        if len(self.found.problems) == LISTED:
            return
        offset, length = map(int, self.places[index])
        start = offset - int(self.places[0, 0]) + framing.HEADER.size
        name = image_name(self.block[start : start + length])
        self.found.problems.append(
            Problem(
                code=code,
                file=self.part.file.name,
                record=index + self.part.first,
                offset=offset,
                message=f"{message}; image {name}" if name else message,
            )
        )
