"""One record by its number, without reading those before it."""

import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from perennial.errors import DataError
from perennial.records import manifest
from perennial.records.manifest import SPLITS, Manifest, Shard, Split
from perennial.tfrecord import example, framing
from perennial.tfrecord.example import Fields


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a record stands."""

    number: int  # among all records: shard after shard, of train, then validation, then test
    split: Split
    shard: Shard
    record: int  # within the shard


@dataclass(frozen=True, kw_only=True)
class Record:
    """A record and where it stands."""

    place: Place
    offset: int  # of its frame in the shard
    length: int  # of its data, in bytes
    fields: Fields
    encoded: bytes  # the image


class Records:
    """The records of a folder, by number."""

    def __init__(self, folder: Path, index: Path) -> None:
        """Opens the records of a folder that `validate` made an index of.

        Raises:
            DataError: there is no readable manifest.
        """
        self.folder, self.index = folder, index
        self.manifest = manifest.load(folder)

    def __len__(self) -> int:
        """How many records there are, of all splits."""
        return sum(shard.examples for _, shard in _shards(self.manifest, None))

    def record(self, number: int, split: Split | None = None) -> Record:
        """A record by its number, from 0, among all records or those of one split.

        Raises:
            DataError: there is no such record, or no index, or shard and index do not agree, or the record is
                damaged; names file, record and offset.
        """
        found = place(self.manifest, number, split)
        file = self.folder / found.shard.file
        offset, length = self._span(found)
        block = _block(file, found.record, offset, length)
        spans, fault = framing.scan(io.BytesIO(block), len(block))
        # A damaged length, or one that is not the index's: either way this is not the record that was checked.
        if fault is not None or spans.tolist() != [[0, length]]:
            _refuse(file, found.record, offset, f"expected a record of {length} bytes as in the index")
        if not framing.sound(block, spans)[0]:
            _refuse(file, found.record, offset, "the checksum of the record's data does not match")
        try:
            fields, encoded = example.parse(block[framing.HEADER.size :][:length])
        except ValueError as error:
            _refuse(file, found.record, offset, str(error))
        return Record(place=found, offset=offset, length=length, fields=fields, encoded=encoded)

    def _span(self, place: Place) -> tuple[int, int]:
        """Offset of the frame and bytes of the data, of which only these 16 bytes are read."""
        file = self.index / f"{place.shard.file}.npy"
        try:
            # Unlike np.load it takes no archive and no pickle, whatever the file begins with.
            spans: NDArray[np.uint64] = np.lib.format.open_memmap(file, mode="r")
        except FileNotFoundError as error:
            raise DataError(f"{file} does not exist; `perennial validate` makes the index") from error
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{file} is damaged: {error}; `perennial validate` makes the index anew") from error
        expected = (place.shard.examples, 2)
        if spans.dtype != np.uint64 or spans.shape != expected:
            raise DataError(
                f"{file} holds {spans.dtype} {list(spans.shape)}, expected uint64 {list(expected)} as in the "
                "manifest; `perennial validate` makes the index anew"
            )
        return int(spans[place.record, 0]), int(spans[place.record, 1])


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


def _block(file: Path, record: int, offset: int, length: int) -> bytes:
    """A record with its frame; no more is asked for than the file has, whatever a damaged index says."""
    try:
        with file.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if offset + length + framing.AROUND > size:
                _refuse(file, record, offset, f"{length} bytes expected, but the file ends at {size}")
            stream.seek(offset)
            return stream.read(length + framing.AROUND)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error}; `dvc repro` makes or restores it") from error


def _refuse(file: Path, record: int, offset: int, message: str) -> NoReturn:
    remedy = "`perennial validate` says what is wrong and makes the index anew"
    raise DataError(f"{file} record {record} at byte {offset}: {message}; {remedy}")
