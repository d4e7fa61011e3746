"""Everything that can be wrong with a record folder, found without TensorFlow."""

import hashlib
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import PIL.Image

from perennial.errors import DataError
from perennial.images import Image
from perennial.records import example, framing, manifest
from perennial.records.manifest import Manifest, Shard, Split

# Every code that a problem can have, with what it says of the data.
CODES = {
    "labels_mismatch": "labels.txt does not list the manifest's classes",
    "shard_missing": "a shard of the manifest is not there",
    "shard_unexpected": "a TFRecord file is there that the manifest does not list",
    "shard_bytes": "a shard has another size than the manifest says",
    "shard_digest": "a shard has another content than the manifest says",
    "shard_examples": "a shard has another number of records than the manifest says",
    "split_examples": "a split has no examples, or others than its shards add up to",
    "per_class": "a split has other examples per class than the manifest says",
    "record_truncated": "a record ends before its length says",
    "length_crc": "the checksum of a record's length does not match",
    "data_crc": "the checksum of a record's data does not match",
    "schema": "a record is no tf.Example with the five keys",
    "label_range": "a label is none of the classes",
    "image_decode": "an image cannot be decoded",
    "image_size": "an image has another size than its record says",
}
DECODERS = ("PNG", "JPEG")  # of all that Pillow reads, what a record may hold


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something wrong, and where: record counts from 0 within the file, offset is in bytes."""

    code: str
    file: str
    record: int | None = None
    offset: int | None = None
    message: str

    def __str__(self) -> str:
        place = self.file
        if self.record is not None:
            place += f" record {self.record} at byte {self.offset}"
        return f"{place}: {self.message} [{self.code}]"


@dataclass
class Findings:
    """What a check saw: problems, and facts about what was in order."""

    problems: list[Problem] = field(default_factory=list)
    examples: Counter[str] = field(default_factory=Counter)  # by split
    places: dict[str, list[tuple[int, int]]] = field(default_factory=dict)  # by shard: offset, length
    sizes: Counter[tuple[int, int, int]] = field(default_factory=Counter)  # height, width, channels
    pixel_sum: int = 0
    pixels: int = 0


def check(folder: Path, splits: Sequence[Split] = manifest.SPLITS, *, decode: bool = True) -> Findings:
    """All problems of a record folder's splits, in reading order; without `decode` images stay closed.

    Raises:
        DataError: there is no readable manifest to check against.
    """
    expected, findings = manifest.load(folder), Findings()
    findings.problems += _labels(folder, expected) + _unexpected(folder, expected)
    for split in splits:
        _check_split(folder, expected, split, findings, decode=decode)
    return findings


def require_sound(folder: Path, splits: Sequence[Split]) -> Manifest:
    """The manifest of a record folder whose splits passed every check but the decoding of images.

    Raises:
        DataError: lists what is wrong, a line each.
    """
    problems = check(folder, splits, decode=False).problems
    if problems:
        raise DataError(describe(folder, problems))
    return manifest.load(folder)


def describe(folder: Path, problems: Sequence[Problem], most: int = 20) -> str:
    """The problems, a line each, and what to do about them."""
    lines = [f"{folder} has {len(problems)} problem{'s' * (len(problems) != 1)}:"]
    lines += [f"  {problem}" for problem in problems[:most]]
    if len(problems) > most:
        lines.append(f"  ... and {len(problems) - most} more")
    lines.append(
        "The folder was left as it is. `dvc repro` puts the version back that dvc.lock names; "
        "`perennial convert` makes the records anew from the raw files."
    )
    return "\n".join(lines)


def as_json(problem: Problem) -> dict[str, object]:
    """A problem as it stands in the validation report."""
    return asdict(problem)


def _labels(folder: Path, expected: Manifest) -> list[Problem]:
    file = folder / manifest.LABELS_FILE
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else None
    if text == manifest.labels_text(expected.classes):
        return []
    found = "it is missing" if text is None else f"it lists {len(text.splitlines())} lines"
    message = f"expected the {len(expected.classes)} classes of the manifest, {found}"
    return [Problem(code="labels_mismatch", file=manifest.LABELS_FILE, message=message)]


def _unexpected(folder: Path, expected: Manifest) -> list[Problem]:
    known = {shard.file for split in expected.splits.values() for shard in split.shards}
    return [
        Problem(code="shard_unexpected", file=path.name, message="the manifest does not list it")
        for path in sorted(folder.glob("*.tfrecord*"))
        if path.name not in known
    ]


def _check_split(folder: Path, expected: Manifest, split: Split, findings: Findings, *, decode: bool) -> None:
    wanted, per_class = expected.splits.get(split), Counter[int]()
    if wanted is None or not wanted.examples:
        message = f"expected examples in split {split}, the manifest has none"
        findings.problems.append(Problem(code="split_examples", file=manifest.FILE, message=message))
        return
    before = len(findings.problems)
    for shard in wanted.shards:
        for label in _check_shard(folder / shard.file, shard, len(expected.classes), findings, decode=decode):
            per_class[label] += 1
    findings.examples[split] = per_class.total()
    listed = sum(shard.examples for shard in wanted.shards)
    if listed != wanted.examples:
        message = f"split {split} has {wanted.examples} examples, its shards add up to {listed}"
        findings.problems.append(Problem(code="split_examples", file=manifest.FILE, message=message))
    found = [per_class[label] for label in range(len(expected.classes))]
    if found != wanted.per_class and len(findings.problems) == before:
        message = f"split {split} has {found} examples per class, expected {wanted.per_class}"
        findings.problems.append(Problem(code="per_class", file=manifest.FILE, message=message))


def _check_shard(file: Path, shard: Shard, classes: int, findings: Findings, *, decode: bool) -> Iterator[int]:
    """The label of each sound record; adds what it finds on the way."""

    def found(code: str, message: str, record: int | None = None, offset: int | None = None) -> None:
        findings.problems.append(
            Problem(code=code, file=file.name, record=record, offset=offset, message=message)
        )

    if not file.is_file():
        found("shard_missing", f"no such file; expected {shard.bytes} bytes, {shard.examples} examples")
        return
    content, records = file.read_bytes(), 0
    for record, (offset, data) in enumerate(framing.walk(content)):
        records += 1
        if isinstance(data, framing.Fault):
            found(data.code, data.message, record, offset)
            continue
        findings.places.setdefault(file.name, []).append((offset, len(data)))
        label, faults = _examined(data, classes, findings, decode=decode)
        for code, message in faults:
            found(code, message, record, offset)
        if not faults:
            yield label
    if records != shard.examples:
        found("shard_examples", f"{records} records, expected {shard.examples}")
    if len(content) != shard.bytes:
        found("shard_bytes", f"{len(content)} bytes, expected {shard.bytes}")
    elif (digest := hashlib.sha256(content).hexdigest()) != shard.sha256:
        found("shard_digest", f"sha256 {digest}, expected {shard.sha256}")


def _examined(
    data: bytes, classes: int, findings: Findings, *, decode: bool
) -> tuple[int, list[tuple[str, str]]]:
    """A record's label (-1 where it has none), and code and message of what is wrong with it."""
    try:
        parsed = example.parse(data)
    except ValueError as error:
        return -1, [("schema", str(error))]
    faults = list(_image_faults(parsed.image, findings)) if decode else []
    if not 0 <= parsed.label < classes:
        faults.append(("label_range", f"label {parsed.label}, expected 0 to {classes - 1}"))
    return parsed.label, faults


def _image_faults(image: Image, findings: Findings) -> Iterator[tuple[str, str]]:
    try:
        # Reading pixels ignores a missing end and wrong checksums, which TensorFlow refuses; `verify` does not.
        with PIL.Image.open(io.BytesIO(image.encoded), formats=DECODERS) as opened:
            opened.verify()
        with PIL.Image.open(io.BytesIO(image.encoded), formats=DECODERS) as opened:
            size = (opened.height, opened.width)
            if size != (image.height, image.width):
                yield (
                    "image_size",
                    f"image of {size}, its record says {(image.height, image.width)}",
                )
                return
            pixels = np.asarray(opened)
            findings.sizes[*size, len(opened.getbands())] += 1
            findings.pixels += pixels.size
            findings.pixel_sum += int(pixels.sum())
    except PIL.UnidentifiedImageError:  # its message holds an address in memory
        yield "image_decode", f"the {image.format} image is neither PNG nor JPEG"
    except (OSError, ValueError, SyntaxError, PIL.Image.DecompressionBombError) as error:
        yield "image_decode", f"the {image.format} image does not decode: {error}"
