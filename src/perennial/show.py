"""One record as a person wants to see it: where it stands, what it says, what its image looks like."""

import hashlib
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from perennial import files
from perennial.config import Config
from perennial.errors import ConfigError
from perennial.images.decode import array, decoded
from perennial.images.header import header
from perennial.images.terminal import Picture, printable
from perennial.records.access import Record, Records
from perennial.records.manifest import Split


def show(
    config: Config, number: int, *, split: Split | None = None, save: Path | None = None, as_json: bool = False
) -> None:
    """Prints a record, by its number among all or within a split; draws its image where stdout is a terminal.

    `save` names a file that the encoded image is written to, byte for byte as the record holds it.

    Raises:
        ConfigError: the file to save to exists.
        DataError: there is no such record, or it is not what the index says.
    """
    if save is not None and save.exists():
        raise ConfigError(f"{save} exists and was left as it is; name another file for --save")
    records = Records(config.paths.records, config.paths.index)
    record = records.record(number, split)
    if save is not None:
        files.write_bytes(save, record.encoded)
    facts = described(record, records.manifest.classes)
    if as_json:
        sys.stdout.write(files.json_bytes(facts).decode())
        return
    console = Console(highlight=False)
    console.print(Text("\n".join(_lines(facts))), soft_wrap=True)
    if console.is_terminal:
        console.print(_picture(record))


def described(record: Record, classes: list[str]) -> dict[str, object]:
    """What there is to say of a record; what does not stand in it is None."""
    fields, place, found = record.fields, record.place, header(record.encoded)
    return {
        "number": place.number,
        "split": place.split,
        "shard": place.shard.file,
        "record": place.record,
        "offset": record.offset,
        "bytes": record.length,
        "label": fields.label,
        "class": classes[fields.label] if 0 <= fields.label < len(classes) else None,
        "format": fields.format,
        "height": fields.height,
        "width": fields.width,
        "channels": found.channels if found else None,
        "filename": fields.filename,
        "image_bytes": len(record.encoded),
        "image_sha256": hashlib.sha256(record.encoded).hexdigest(),
    }


def _lines(facts: dict[str, object]) -> list[str]:
    name = "none of the classes" if facts["class"] is None else printable(str(facts["class"]))
    channels = "unknown" if facts["channels"] is None else facts["channels"]
    told = {
        "record": "{number} in all: {split}, {shard}, record {record}".format(**facts),
        "place": "byte {offset}, {bytes} bytes of data".format(**facts),
        "label": f"{facts['label']}: {name}",
        "image": f"{facts['format']}, {facts['height']} x {facts['width']} x {channels} "
        f"(height x width x channels), {facts['image_bytes']} bytes",
        "sha256": facts["image_sha256"],
    }
    if facts["filename"] is not None:
        told["file"] = printable(str(facts["filename"]))
    return [f"{key:<8}{value}" for key, value in told.items()]


def _picture(record: Record) -> Picture | Text:
    try:
        return Picture(array(decoded(record.encoded)))
    except ValueError as error:
        return Text(f"The image does not decode: {printable(str(error))}")
