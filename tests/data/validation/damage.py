"""Damage to the small record folder of support.records, one kind for each code of a problem."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.records import data_in, offsets_in

from perennial.base import documents, files
from perennial.data.images import Image
from perennial.data.records import manifest
from perennial.data.tfrecord import example, framing

SHARD = "train.tfrecord"


def content(folder: Path) -> bytes:
    return (folder / SHARD).read_bytes()


def offset(folder: Path, number: int) -> int:
    return offsets_in(content(folder))[number]


def edit_manifest(folder: Path, **changes: object) -> None:
    """Changes values of the train split's manifest, or, with `shard_` before them, of its only shard's."""
    value = documents.read_json(folder / manifest.FILE)
    split = value["splits"]["train"]
    for key, change in changes.items():
        part = split["shards"][0] if key.startswith("shard_") else split
        part[key.removeprefix("shard_")] = change
    files.write_json(folder / manifest.FILE, value)


def rewrite(folder: Path, changed: bytes) -> None:
    """Gives the training shard another content, and the manifest its size and digest."""
    (folder / SHARD).write_bytes(changed)
    edit_manifest(folder, shard_bytes=len(changed), shard_sha256=files.sha256(folder / SHARD))


def flip(folder: Path, place: int) -> bytes:
    """The training shard with one bit flipped."""
    damaged = bytearray(content(folder))
    damaged[place] ^= 1
    return bytes(damaged)


def with_record(folder: Path, number: int, change: Callable[[bytes], bytes]) -> bytes:
    """The training shard with one record changed, all its checksums right."""
    records = data_in(content(folder))
    records[number] = change(records[number])
    return b"".join(map(framing.frame, records))


def changed_record(data: bytes, **changes: Any) -> bytes:
    """A record with another image or field: `encoded=`, `label=`, `height=`, `format=`."""
    fields, encoded = example.parse(data)
    known = {"encoded": encoded, "format": fields.format, "height": fields.height, "width": fields.width}
    label = changes.pop("label", fields.label)
    return example.serialize(Image(**(known | changes)), label)


def blackened(data: bytes) -> bytes:
    """A record whose image has another pixel, which the checksum in the PNG file does not cover."""
    encoded = bytearray(example.parse(data)[1])
    encoded[-21] ^= 0xFF
    return changed_record(data, encoded=bytes(encoded))


# Each does one kind of damage; the rest of the manifest is made to agree with it.
DAMAGE: dict[str, Callable[[Path], object]] = {
    "labels_mismatch": lambda folder: (folder / "labels.txt").write_text("0:cat\n1:dgo\n"),
    "shard_missing": lambda folder: (folder / SHARD).unlink(),
    "shard_unexpected": lambda folder: (folder / "more.tfrecord").touch(),
    "shard_bytes": lambda folder: edit_manifest(folder, shard_bytes=1),
    "shard_digest": lambda folder: edit_manifest(folder, shard_sha256="0" * 64),
    "shard_examples": lambda folder: rewrite(folder, content(folder)[: offset(folder, 19)]),
    "split_examples": lambda folder: edit_manifest(folder, examples=21),
    "per_class": lambda folder: edit_manifest(folder, per_class=[9, 11]),
    "record_truncated": lambda folder: rewrite(folder, content(folder) + b"junk"),
    "length_crc": lambda folder: rewrite(folder, content(folder) + b"more than a header"),
    "data_crc": lambda folder: rewrite(folder, flip(folder, offset(folder, 7) + 20)),
    "schema": lambda folder: rewrite(folder, with_record(folder, 7, lambda data: b"")),
    "label_range": lambda folder: rewrite(
        folder, with_record(folder, 7, lambda data: changed_record(data, label=2))
    ),
    "image_format": lambda folder: rewrite(
        folder, with_record(folder, 7, lambda data: changed_record(data, encoded=b"no image"))
    ),
    "image_size": lambda folder: rewrite(
        folder, with_record(folder, 7, lambda data: changed_record(data, height=3))
    ),
    "image_decode": lambda folder: rewrite(folder, with_record(folder, 7, blackened)),
}
OF_RECORDS = ("data_crc", "schema", "label_range", "image_format", "image_size", "image_decode")
