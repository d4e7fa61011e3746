"""Search for an image among those that versions were trained, validated and tested on."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from perennial.base.choices import SPLITS, Split
from perennial.base.errors import DataError, PerennialError
from perennial.data.images import BadImage, decode, statistics
from perennial.data.images.accept import accepted
from perennial.data.validation.image_index import ImageIndex
from perennial.data.validation.inspection import SMALL_PIXELS, TINY_PIXELS
from perennial.reproduce.lineage.trainings import Indices, PastTraining

LISTED = 20  # maximum images listed per kind and version; all are counted
Kind = Literal["file", "pixels", "near"]


@dataclass(frozen=True, kw_only=True)
class Query:
    """An image to look for."""

    sha256: Sequence[bytes]  # of its file, and of the file that a record would hold of it
    pixels: NDArray[np.uint64] | None = None  # [2], digest of size and pixels
    hash: np.uint64 | None = None  # perceptual; None for tiny images, and where it is not known


@dataclass(frozen=True, kw_only=True)
class Match:
    """A matching image of a version's records: the same file, equal pixels, or a look-alike."""

    kind: Kind
    split: Split
    record: int  # number in its split, as `perennial show N --split SPLIT` counts
    digest: str  # SHA-256 of the image file in the record
    bits: int  # differing bits of the perceptual hashes


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """The images that one training saw."""

    training: PastTraining
    same: Counter[Split]  # images with the same file or pixels
    near: Counter[Split]  # images that look alike
    matches: Sequence[Match]


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The trainings that saw an image, and those for which this is unknown, with the reason."""

    trainings: int
    sightings: Sequence[Sighting]
    unknown: Sequence[tuple[PastTraining, str]]


def of_file(file: Path) -> Query:
    """The query for an image file."""
    content = file.read_bytes()
    image = accepted(content, file.name)
    if isinstance(image, BadImage):
        raise DataError(f"{file}: {image.reason}")
    white = accepted(content, file.name, "white")
    stored = [each.encoded for each in (image, white) if not isinstance(each, BadImage)]
    digests = dict.fromkeys(hashlib.sha256(each).digest() for each in (content, *stored))
    opened = decode.decoded(image.encoded)
    # Compute them as the validate stage does.
    if isinstance(opened, PIL.Image.Image) and opened.width * opened.height >= SMALL_PIXELS:
        _, found = statistics.of_image(opened)
    else:
        _, found = statistics.of_batch(decode.array(opened)[np.newaxis])
    tiny = image.height * image.width < TINY_PIXELS
    return Query(sha256=list(digests), pixels=found.digests[0], hash=None if tiny else found.hashes[0])


def search(
    query: Query, trainings: Sequence[PastTraining], indices: Indices, *, bits: int | None, ask: bool = False
) -> SearchResult:
    """Look for an image in what each training read, up to `bits` of distance; `ask`: again for missing data."""
    found: list[tuple[PastTraining, ImageIndex]] = []
    unknown = []
    for training in trainings:
        try:
            found.append((training, indices.of(training.recorded, ask=ask or training.version is not None)))
        except PerennialError as error:
            unknown.append((training, str(error)))
    if query.pixels is None:
        query = _completed(query, [index for _, index in found])
    sightings = [each for training, index in found if (each := _sighting(query, training, index, bits))]
    return SearchResult(trainings=len(trainings), sightings=sightings, unknown=unknown)


def _completed(query: Query, indices: Sequence[ImageIndex]) -> Query:
    """Complete a query for a digest with the fingerprints of the records that have this digest."""
    for index in indices:
        for entry in index[_same_file(query, index)]:
            return Query(
                sha256=query.sha256, pixels=entry["pixels"], hash=None if entry["tiny"] else entry["hash"]
            )
    return query


def _sighting(query: Query, training: PastTraining, index: ImageIndex, bits: int | None) -> Sighting | None:
    masks: dict[Kind, NDArray[np.bool_]] = {"file": _same_file(query, index)}
    if query.pixels is not None:
        masks["pixels"] = (index["pixels"] == query.pixels).all(axis=1) & ~masks["file"]
    distances = np.zeros(len(index), np.uint8)
    if query.hash is not None and bits is not None:
        distances = np.bitwise_count(index["hash"] ^ query.hash)
        alike = (distances <= bits) & (index["tiny"] == 0)
        masks["near"] = alike & ~masks["file"] & ~masks["pixels"]
    counts: dict[Kind, Counter[Split]] = {
        kind: Counter(SPLITS[split] for split in index["split"][mask].tolist()) for kind, mask in masks.items()
    }
    if not any(counts.values()):
        return None
    matches = [
        Match(
            kind=kind,
            split=SPLITS[index["split"][record]],
            record=record - int(np.argmax(index["split"] == index["split"][record])),
            digest=index["sha256"][record].tobytes().hex(),
            bits=int(distances[record]),
        )
        for kind, mask in masks.items()
        for record in sorted(np.flatnonzero(mask).tolist(), key=lambda record: (distances[record], record))[
            :LISTED
        ]
    ]
    same = counts["file"] + counts.get("pixels", Counter())
    return Sighting(training=training, same=same, near=counts.get("near", Counter()), matches=matches)


def _same_file(query: Query, index: ImageIndex) -> NDArray[np.bool_]:
    found = np.zeros(len(index), np.bool_)
    for digest in query.sha256:
        # Comparing first bytes leaves few candidates.
        few = np.flatnonzero(index["sha256"][:, 0] == digest[0])
        found[few[(index["sha256"][few] == np.frombuffer(digest, np.uint8)).all(axis=1)]] = True
    return found
