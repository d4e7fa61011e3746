"""One record by its number, without reading those before it; of a damaged one what can be read."""

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perennial.errors import DataError
from perennial.records import manifest
from perennial.records.manifest import SPLITS, Manifest, Shard, Split
from perennial.tfrecord import example, framing
from perennial.tfrecord.example import Fields


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a record stands among all."""

    number: int  # shard after shard, of train, then validation, then test
    split: Split
    shard: Shard
    record: int  # within the shard


@dataclass(frozen=True, kw_only=True)
class Record:
    """A record, as far as it can be read."""

    file: Path
    record: int  # within the file
    place: Place | None  # None where only the file was looked at
    offset: int  # of its frame in the file
    length: int  # of its data, in bytes
    fields: Fields | None
    encoded: bytes | None  # the image
    damage: str | None  # what is wrong; None where it is as it was written


class Records:
    """The records of a folder, by number."""

    def __init__(self, folder: Path, index: Path) -> None:
        """Opens the records of a folder, which `validate` made an index of if they are sound.

        Raises:
            DataError: there is no readable manifest.
        """
        self.folder, self.index = folder, index
        self.manifest = manifest.load(folder)

    def record(self, number: int, split: Split | None = None) -> Record:
        """A record by its number, from 0, among all records or those of one split.

        Raises:
            DataError: there is no such record, or its shard or the index of that cannot be read.
        """
        found = place(self.manifest, number, split)
        file = self.folder / found.shard.file
        index = self.index / f"{file.name}.npy"
        if not index.exists():
            return in_file(file, found.record, found)
        return _record(file, found.record, *_indexed(index, file, found), found)


def in_file(file: Path, number: int, place: Place | None = None) -> Record:
    """A record by its number, from 0, in a TFRecord file, found by walking over those before it.

    Raises:
        DataError: the file cannot be read, or holds no such record that can be found.
    """
    try:
        with file.open("rb") as stream:
            places, fault = framing.scan(stream, file.stat().st_size)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error}; `dvc repro` makes or restores its records") from error
    if number < len(places):
        return _record(file, number, int(places[number, 0]), int(places[number, 1]), place)
    numbers = f"records 0 to {len(places) - 1}" if len(places) else "no records"
    end = f", then at byte {fault.offset} {fault.message}: what follows cannot be found" if fault else ""
    raise DataError(f"there is no record {number}: {file} has {numbers}{end}")


def data(file: Path, offset: int, length: int) -> bytes:
    """The data of a record, less where the file ends; its checksums are not looked at."""
    return _bytes(file, offset + framing.HEADER.size, length)


def place(manifest: Manifest, number: int, split: Split | None = None) -> Place:
    """Where the record with this number stands, counted among all records or those of one split.

    Raises:
        DataError: there is no such record.
    """
    first = 0
    shards = _shards(manifest, split)
    for part, shard in shards:
        if 0 <= number - first < shard.examples:
            before = _before(manifest, split) if split is not None else 0
            return Place(number=before + number, split=part, shard=shard, record=number - first)
        first += shard.examples
    where = f"split {split}" if split is not None else "the data set"
    numbers = f"records 0 to {first - 1}" if first else "no records"
    raise DataError(f"there is no record {number}: {where} has {numbers}")


def _shards(manifest: Manifest, split: Split | None) -> list[tuple[Split, Shard]]:
    """The shards of all splits, or of one, in their order."""
    wanted = [part for part in SPLITS if part in manifest.splits and split in {None, part}]
    return [(part, shard) for part in wanted for shard in manifest.splits[part].shards]


def _before(manifest: Manifest, split: Split) -> int:
    """How many records the splits before one have."""
    earlier = SPLITS[: SPLITS.index(split)]
    return sum(shard.examples for part, shard in _shards(manifest, None) if part in earlier)


def _indexed(index: Path, file: Path, place: Place) -> tuple[int, int]:
    """Offset of the frame and bytes of the data, of which only these 16 bytes are read."""
    remedy = (
        f"`perennial validate` makes the index anew; "
        f"`perennial show {place.record} --shard {file}` does without it"
    )
    try:
        # Unlike np.load it takes no archive and no pickle, whatever the file begins with.
        spans: NDArray[np.uint64] = np.lib.format.open_memmap(index, mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{index} is damaged: {error}; {remedy}") from error
    expected = (place.shard.examples, 2)
    if spans.dtype != np.uint64 or spans.shape != expected:
        raise DataError(
            f"{index} holds {spans.dtype} {list(spans.shape)}, expected uint64 {list(expected)} as in the "
            f"manifest; {remedy}"
        )
    return int(spans[place.record, 0]), int(spans[place.record, 1])


def _record(file: Path, number: int, offset: int, length: int, place: Place | None) -> Record:
    """A record by its place; no more is asked for than the file has, whatever a damaged index says."""
    try:
        size = file.stat().st_size
        short = offset + length + framing.AROUND > size
        block = b"" if short else _bytes(file, offset, length + framing.AROUND)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error}; `dvc repro` makes or restores it") from error
    damage = f"{length} bytes expected, but the file ends at {size}" if short else _damage(block, length)
    fields, encoded = None, None
    try:
        fields, encoded = example.parse(block[framing.HEADER.size :][:length])
    except ValueError as error:
        damage = damage or str(error)
    return Record(
        file=file, record=number, place=place, offset=offset, length=length,
        fields=fields, encoded=encoded, damage=damage,
    )  # fmt: skip


def _bytes(file: Path, start: int, count: int) -> bytes:
    with file.open("rb") as stream:
        stream.seek(start)
        return stream.read(count)


def _damage(block: bytes, length: int) -> str | None:
    """What is wrong with the frame of a record, if anything."""
    spans, _ = framing.scan(io.BytesIO(block), len(block))
    # A damaged length, or one that is not the index's: either way this is not the record that was checked.
    if spans.tolist() != [[0, length]]:
        return f"expected a record of {length} bytes, its header says otherwise"
    return None if framing.sound(block, spans)[0] else "the checksum of the record's data does not match"
