"""`perennial show`: print one record, where it is stored and its image."""

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import PIL.Image
import typer
from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.text import Text

from perennial.base import files
from perennial.base.choices import Split
from perennial.base.config import Config
from perennial.base.errors import ConfigError, DataError, printable
from perennial.cli.command import output
from perennial.data.images import decode
from perennial.data.images.decode import Pixels, array
from perennial.data.images.header import header
from perennial.data.records import manifest, random_access
from perennial.data.records.random_access import Record, Records

HALF_BLOCK = "▀"  # the upper pixel in the text's colour, the lower one in the background's
LINES_ABOVE = 2  # lines that stay visible above the image


def show(
    config: Config, number: int, *, split: Split | None = None, save: Path | None = None, as_json: bool = False
) -> None:
    """Print a record by its number, overall or within a split; draw its image if stdout is a terminal.

    `save` names a file for the encoded image, byte for byte as it is in the record.
    """
    records = Records(config.paths.records, config.paths.index)
    _show(records.record(number, split), records.manifest.classes, save, as_json=as_json)


def show_in_file(shard: Path, number: int, *, save: Path | None = None, as_json: bool = False) -> None:
    """Print a record as `show` does, by its number in a TFRecord file; needs neither manifest nor index."""
    known = (shard.parent / manifest.FILE).is_file()
    classes = manifest.load(shard.parent).classes if known else []
    _show(random_access.in_file(shard, number), classes, save, as_json=as_json)


def _show(record: Record, classes: Sequence[str], save: Path | None, *, as_json: bool) -> None:
    if save is not None and save.exists():
        raise ConfigError(f"{save} exists and was left unchanged; name another file for --save")
    if save is not None and record.encoded is not None:
        files.write_bytes(save, record.encoded)
    facts = description(record, classes)
    output(facts, _lines(facts, classes), as_json=as_json)
    if not as_json:
        _draw(record.encoded)
    if record.damage is not None:
        sys.stdout.flush()
        raise DataError(
            f"{record.file} record {record.record} at byte {record.offset}: {record.damage}; its fields may "
            "be wrong; `perennial validate` checks all records, `dvc repro` restores the version of dvc.lock"
        )


def description(record: Record, classes: Sequence[str]) -> dict[str, object]:
    """The facts about a record, for JSON; None where the record does not have them."""
    place, fields, encoded = record.position, record.fields, record.encoded
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
    rows = {"record": where, "place": "byte {offset}, {bytes} bytes of data".format(**facts)}
    if facts["label"] is not None:
        unknown = "not one of the classes" if classes else "no manifest beside the file names its class"
        name = unknown if facts["class"] is None else printable(str(facts["class"]))
        channels = "unknown" if facts["channels"] is None else facts["channels"]
        rows["label"] = f"{facts['label']}: {name}"
        rows["image"] = (
            f"{facts['format']}, {facts['height']} x {facts['width']} x {channels} "
            f"(height x width x channels), {facts['image_bytes']} bytes"
        )
        rows["sha256"] = str(facts["image_sha256"])
    for key in ("filename", "damage"):
        if facts[key] is not None:
            rows[key.removesuffix("name")] = printable(str(facts[key]))
    return [f"{key:<8}{value}" for key, value in rows.items()]


def _draw(encoded: bytes | None) -> None:
    """Draw an image if the terminal has colours and block characters."""
    console = Console()
    if encoded is None or not console.is_terminal:
        return
    try:
        pixels = array(decode.decoded(encoded))
    except ValueError as error:
        typer.echo(f"The image does not decode: {printable(str(error))}")
        return
    if console.color_system and not console.no_color and console.encoding.startswith("utf"):
        console.print(picture(pixels, console.width, 2 * max(console.height - LINES_ABOVE, 1)), end="")


def picture(pixels: Pixels, width: int, height: int) -> Text:
    """Draw pixels uint8 [height, width, 1 or 3] in at most width x height cells, two per character."""
    size = np.array(pixels.shape[1::-1])
    scale = min((width, height) / size)
    if scale >= 1:  # a whole factor keeps every pixel square and sharp
        fitted = pixels.repeat(int(scale), axis=0).repeat(int(scale), axis=1)
    else:
        image = PIL.Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[..., 0])
        new_width, new_height = np.maximum(size * scale, 1).astype(int)
        fitted = array(image.resize((new_width, new_height), PIL.Image.Resampling.BOX))
    colours = np.broadcast_to(fitted, (*fitted.shape[:2], 3)).tolist()
    text = Text()
    for row in range(0, len(colours), 2):
        below = colours[row + 1] if row + 1 < len(colours) else [None] * len(colours[row])
        for upper, lower in zip(colours[row], below, strict=True):
            background = Color.from_rgb(*lower) if lower else None
            text.append(HALF_BLOCK, Style(color=Color.from_rgb(*upper), bgcolor=background))
        text.append("\n")
    return text
