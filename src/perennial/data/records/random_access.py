"""Random access to records by number through the record index; reads what is readable of damaged records."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perennial.base.choices import SPLITS, Split
from perennial.base.errors import DataError
from perennial.data.records import manifest
from perennial.data.records.manifest import Manifest, Shard
from perennial.data.tfrecord import example, framing


@dataclass(frozen=True, kw_only=True)
class Position:
    """The position of a record in the data set."""

    number: int  # shard after shard, of train, then validation, then test
    split: Split
    shard: Shard
    record: int  # within the shard


@dataclass(frozen=True, kw_only=True)
class Record:
    """A record, as far as it is readable."""

    file: Path
    record: int  # within the file
    position: Position | None  # None if only the file was read
    offset: int  # of its frame in the file
    length: int  # of its data, in bytes
    fields: example.Fields | None
    encoded: bytes | None  # the image
    damage: str | None  # None if intact


class Records:
    """The records of a folder, by number."""

    def __init__(self, folder: Path, index: Path) -> None:
        """Open a record folder and its index."""
        self.folder, self.index = folder, index
        self.manifest = manifest.load(folder)

    def record(self, number: int, split: Split | None = None) -> Record:
        """Read the record with this number, from 0, among all records or in one split."""
        found = position(self.manifest, number, split)
        file = self.folder / found.shard.file
        index = self.index / f"{file.name}.npy"
        if not index.exists():
            return in_file(file, found.record, found)
        return _record(file, found.record, *_indexed(index, file, found), found)


def write_index(folder: Path, shards: Mapping[str, framing.Spans]) -> None:
    """Write `<shard>.npy` for each shard into a folder: uint64 [records, 2], offset and bytes."""
    for shard, spans in shards.items():
        np.save(folder / f"{shard}.npy", spans)


def in_file(file: Path, number: int, position: Position | None = None) -> Record:
    """Read the record with this number, from 0, in a TFRecord file; scans the headers before it."""
    try:
        with file.open("rb") as stream:
            spans, fault = framing.scan(stream, file.stat().st_size)
    except OSError as error:
        raise DataError(
            f"{file} cannot be read: {error}; `dvc repro` restores or rebuilds its records"
        ) from error
    if number < len(spans):
        return _record(file, number, int(spans[number, 0]), int(spans[number, 1]), position)
    end = f", then at byte {fault.offset} {fault.message}; nothing after it is readable" if fault else ""
    raise _no_record(number, str(file), len(spans), end)


def data(file: Path, offset: int, length: int) -> bytes:
    """The data of a record, shorter if the file ends early; its checksums are not verified."""
    return _bytes(file, offset + framing.HEADER.size, length)


def position(manifest: Manifest, number: int, split: Split | None = None) -> Position:
    """Find the position of the record with this number, among all records or in one split."""
    before = skipped = 0  # records of shards before this one; of splits before the chosen one
    for part in SPLITS:
        skipped = before if part == split else skipped
        for shard in manifest.splits[part].shards if part in manifest.splits else ():
            record = number - (before - skipped)
            if split in {None, part} and 0 <= record < shard.examples:
                return Position(number=before + record, split=part, shard=shard, record=record)
            before += shard.examples
        if part == split:
            break
    raise _no_record(number, f"split {split}" if split else "the data set", before - skipped)


def _no_record(number: int, where: str, count: int, end: str = "") -> DataError:
    known = f"records 0 to {count - 1}" if count else "no records"
    return DataError(f"there is no record {number}: {where} has {known}{end}")


def _indexed(index: Path, file: Path, position: Position) -> tuple[int, int]:
    """Read the offset of the frame and the size of the data; reads only these 16 bytes of the index."""
    remedy = (
        f"`perennial validate` rebuilds the index; "
        f"`perennial show {position.record} --shard {file}` works without it"
    )
    try:
        # Unlike np.load, it accepts neither archives nor pickles.
        spans: NDArray[np.uint64] = np.lib.format.open_memmap(index, mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{index} is damaged: {error}; {remedy}") from error
    expected = (position.shard.examples, 2)
    if spans.dtype != np.uint64 or spans.shape != expected:
        raise DataError(
            f"{index} holds {spans.dtype} {list(spans.shape)}, expected uint64 {list(expected)} as in the "
            f"manifest; {remedy}"
        )
    return int(spans[position.record, 0]), int(spans[position.record, 1])


def _record(file: Path, number: int, offset: int, length: int, position: Position | None) -> Record:
    """Read the record at an offset; never more than the size of the file, even if the index is damaged."""
    try:
        size = file.stat().st_size
        short = offset + length + framing.OVERHEAD > size
        block = b"" if short else _bytes(file, offset, length + framing.OVERHEAD)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error}; `dvc repro` restores or rebuilds it") from error
    damage = f"{length} bytes expected, but the file ends at {size}" if short else _damage(block, length)
    fields, encoded = None, None
    try:
        fields, encoded = example.parse(block[framing.HEADER.size :][:length])
    except ValueError as error:
        damage = damage or str(error)
    return Record(
        file=file, record=number, position=position, offset=offset, length=length,
        fields=fields, encoded=encoded, damage=damage,
    )  # fmt: skip


def _bytes(file: Path, start: int, count: int) -> bytes:
    with file.open("rb") as stream:
        stream.seek(start)
        return stream.read(count)


def _damage(block: bytes, length: int) -> str | None:
    spans, _ = framing.scan(io.BytesIO(block), len(block))
    # The length is damaged or differs from the index: either way, this is not the record that was checked.
    if spans.tolist() != [[0, length]]:
        return f"expected a record of {length} bytes, its header has another length"
    return None if framing.valid_data(block, spans)[0] else "the checksum of the record's data does not match"
