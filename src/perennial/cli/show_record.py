"""`perennial show`: print one record, where it is stored, and save its image."""

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from perennial.base import files
from perennial.base.choices import Split
from perennial.base.config import Config
from perennial.base.errors import ConfigError, DataError, printable
from perennial.cli.command import output
from perennial.data.images import decode
from perennial.data.records import manifest, random_access
from perennial.data.records.manifest import Manifest
from perennial.data.records.random_access import Record, Records


def show(config: Config, number: int, *, split: Split | None = None, save: Path | None = None) -> None:
    """Print a record by its number, overall or within a split; save: a file for its encoded image."""
    records = Records(config.paths.records, config.paths.index)
    _show(records.record(number, split), records.manifest, save)


def show_in_file(shard: Path, number: int, *, save: Path | None = None) -> None:
    """Print a record as `show` does, by its number in a TFRecord file; needs neither manifest nor index."""
    known = (shard.parent / manifest.FILE).is_file()
    _show(random_access.in_file(shard, number), manifest.load(shard.parent) if known else None, save)


def _show(record: Record, data: Manifest | None, save: Path | None) -> None:
    if save is not None and save.exists():
        raise ConfigError(f"{save} exists and was left unchanged; name another file for --save")
    if save is not None and record.encoded is not None:
        files.write_bytes(save, record.encoded)
    classes = data.classes if data else []
    facts = description(record, classes, several=data is not None and data.task == "multilabel")
    output(facts, _lines(facts, classes))
    if record.damage is not None:
        sys.stdout.flush()
        raise DataError(
            f"{record.file} record {record.record} at byte {record.offset}: {record.damage}; its fields may "
            "be wrong; `perennial validate` checks all records, `dvc repro` restores the version of dvc.lock"
        )


def description(record: Record, classes: Sequence[str], *, several: bool = False) -> dict[str, object]:
    """The facts about a record, for JSON; None where the record does not have them.

    several: whether records have several labels; these, and a record without just one, give lists.
    """
    place, fields, encoded = record.position, record.fields, record.encoded
    found = None if encoded is None else decode.header(encoded)
    labels = () if fields is None else fields.labels
    names = [classes[label] if 0 <= label < len(classes) else None for label in labels]
    one = len(labels) == 1 and not several
    return {
        "number": place and place.number, "split": place and place.split, "shard": record.file.name,
        "record": record.record, "offset": record.offset, "bytes": record.length,
        "label": None if fields is None else labels[0] if one else list(labels),
        "class": None if fields is None else names[0] if one else names,
        "format": fields and fields.format, "height": fields and fields.height,
        "width": fields and fields.width, "channels": found and found.channels,
        "filename": fields and fields.filename,
        "image_bytes": None if encoded is None else len(encoded),
        "image_sha256": None if encoded is None else hashlib.sha256(encoded).hexdigest(),
        "damage": record.damage,
    }  # fmt: skip


def _lines(facts: dict[str, object], classes: Sequence[str]) -> list[str]:
    where = "{shard}, record {record}".format(**facts)
    if facts["number"] is not None:
        where = "{number} in all: {split}, {where}".format(where=where, **facts)
    rows = {"record": where, "place": "byte {offset}, {bytes} bytes of data".format(**facts)}
    if facts["label"] is not None:
        unknown = "not one of the classes" if classes else "no manifest beside the file names its class"
        both = (facts["label"], facts["class"])
        labels, names = (each if isinstance(each, list) else [each] for each in both)
        channels = "unknown" if facts["channels"] is None else facts["channels"]
        rows["label"] = ", ".join(
            f"{label}: {unknown if name is None else printable(str(name))}"
            for label, name in zip(labels, names, strict=True)
        ) or "none"  # fmt: skip
        rows["image"] = (
            f"{facts['format']}, {facts['height']} x {facts['width']} x {channels} "
            f"(height x width x channels), {facts['image_bytes']} bytes"
        )
        rows["sha256"] = str(facts["image_sha256"])
    for key in ("filename", "damage"):
        if facts[key] is not None:
            rows[key.removesuffix("name")] = printable(str(facts[key]))
    return [f"{key:<8}{value}" for key, value in rows.items()]
