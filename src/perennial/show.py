"""One record as a person wants to see it: where it stands, what it says, what its image looks like."""

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from perennial import files
from perennial.config import Config
from perennial.errors import ConfigError, DataError
from perennial.images.decode import array, decoded
from perennial.images.header import header
from perennial.images.terminal import Picture
from perennial.records import access, manifest
from perennial.records.access import Record, Records
from perennial.records.manifest import Split
from perennial.records.problems import printable


def show(
    config: Config, number: int, *, split: Split | None = None, save: Path | None = None, as_json: bool = False
) -> None:
    """Prints a record, by its number among all or within a split; draws its image where stdout is a terminal.

    `save` names a file that the encoded image is written to, byte for byte as the record holds it.

    Raises:
        ConfigError: the file to save to exists.
        DataError: there is no such record, or it is damaged; what it says all the same is printed first.
    """
    records = Records(config.paths.records, config.paths.index)
    _tell(records.record(number, split), records.manifest.classes, save, as_json=as_json)


def show_in_file(shard: Path, number: int, *, save: Path | None = None, as_json: bool = False) -> None:
    """Prints a record as `show` does, by its number in a TFRecord file; needs neither manifest nor index.

    Raises:
        ConfigError: the file to save to exists.
        DataError: there is no such record, or it is damaged; what it says all the same is printed first.
    """
    known = (shard.parent / manifest.FILE).is_file()
    classes = manifest.load(shard.parent).classes if known else []
    _tell(access.in_file(shard, number), classes, save, as_json=as_json)


def _tell(record: Record, classes: Sequence[str], save: Path | None, *, as_json: bool) -> None:
    if save is not None and save.exists():
        raise ConfigError(f"{save} exists and was left as it is; name another file for --save")
    if save is not None and record.encoded is not None:
        files.write_bytes(save, record.encoded)
    facts = described(record, classes)
    if as_json:
        sys.stdout.write(files.json_bytes(facts).decode())
    else:
        console = Console(highlight=False)
        console.print(Text("\n".join(_lines(facts, classes))), soft_wrap=True)
        if console.is_terminal and record.encoded is not None:
            console.print(_picture(record.encoded))
    if record.damage is not None:
        sys.stdout.flush()
        raise DataError(
            f"{record.file} record {record.record} at byte {record.offset}: {record.damage}; what it says may "
            "be wrong; `perennial validate` checks all records, `dvc repro` restores what dvc.lock names"
        )


def described(record: Record, classes: Sequence[str]) -> dict[str, object]:
    """What there is to say of a record; what does not stand in it is None."""
    place, fields, encoded = record.place, record.fields, record.encoded
    found = None if encoded is None else header(encoded)
    label = None if fields is None else fields.label
    return {
        "number": place and place.number,
        "split": place and place.split,
        "shard": record.file.name,
        "record": record.record,
        "offset": record.offset,
        "bytes": record.length,
        "label": label,
        "class": classes[label] if label is not None and 0 <= label < len(classes) else None,
        "format": fields and fields.format,
        "height": fields and fields.height,
        "width": fields and fields.width,
        "channels": found and found.channels,
        "filename": fields and fields.filename,
        "image_bytes": None if encoded is None else len(encoded),
        "image_sha256": None if encoded is None else hashlib.sha256(encoded).hexdigest(),
        "damage": record.damage,
    }


def _lines(facts: dict[str, object], classes: Sequence[str]) -> list[str]:
    where = "{shard}, record {record}".format(**facts)
    if facts["number"] is not None:
        where = "{number} in all: {split}, {where}".format(where=where, **facts)
    told = {"record": where, "place": "byte {offset}, {bytes} bytes of data".format(**facts)}
    if facts["label"] is not None:
        none = "none of the classes" if classes else "no manifest beside the file names its class"
        name = none if facts["class"] is None else printable(str(facts["class"]))
        channels = "unknown" if facts["channels"] is None else facts["channels"]
        told["label"] = f"{facts['label']}: {name}"
        told["image"] = (
            f"{facts['format']}, {facts['height']} x {facts['width']} x {channels} "
            f"(height x width x channels), {facts['image_bytes']} bytes"
        )
        told["sha256"] = str(facts["image_sha256"])
    if facts["filename"] is not None:
        told["file"] = printable(str(facts["filename"]))
    if facts["damage"] is not None:
        told["damage"] = printable(str(facts["damage"]))
    return [f"{key:<8}{value}" for key, value in told.items()]


def _picture(encoded: bytes) -> Picture | Text:
    try:
        return Picture(array(decoded(encoded)))
    except ValueError as error:
        return Text(f"The image does not decode: {printable(str(error))}")
