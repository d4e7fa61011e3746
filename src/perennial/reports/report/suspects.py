"""Examples to look at, with images: likely label errors, and copies of one image in two splits."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

from perennial.base import documents
from perennial.base.choices import Split
from perennial.base.config import Config
from perennial.base.errors import DataError, PerennialError
from perennial.data.images import Image
from perennial.data.records import manifest, random_access
from perennial.data.records.random_access import Record, Records
from perennial.data.validation.html import Thumbnail, thumbnail

LABELS, PAIRS = 36, 12  # shown
COPIES = ("duplicate_across_splits", "near_duplicate")  # codes
UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, PerennialError)


class Contradicted(NamedTuple):
    """An example whose label is likely wrong; of several labels, one that is likely missing or superfluous."""

    number: int  # of the record in its split
    name: str | None  # of the image
    answers: list[tuple[str, float, str]]  # what each is, its probability (0..1) and class, the suggested first
    image: Thumbnail | None  # None if the records are not those that were scored


class SuspectLabels(NamedTuple):
    """The first likely label errors, and how many there are."""

    split: str
    examples: int
    likely: int
    above_chance: bool  # of the model; below, no label is listed
    kinds: str  # of several labels an image, how many are missing and superfluous
    listed: list[Contradicted]


class CopySide(NamedTuple):
    """One of two copies."""

    place: str
    image: Thumbnail | None


class SuspectCopies(NamedTuple):
    """The first pairs of copies, the later split first, and how many there are."""

    pairs: int
    listed: list[tuple[CopySide, CopySide]]


def label_errors(config: Config, data: str, model: str) -> SuspectLabels | None:
    """The likely label errors of this model on the data with this manifest; None if they are not known."""
    paths = config.paths
    try:
        found = documents.read_json(paths.label_errors)
        if (found["data"], found["model"]) != (data, model):
            return None
        records = scored_records(paths.records, paths.index, data)
        listed = [_label_error(each, found["split"], records) for each in found["listed"][:LABELS]]
        kinds = [f"{found[kind]:,} {kind}" for kind in ("missing", "superfluous") if kind in found]
        return SuspectLabels(
            kinds=" and ".join(kinds),
            split=str(found["split"]),
            examples=int(found["examples"]),
            likely=int(found["likely"]),
            above_chance=bool(found["above_chance"]),
            listed=listed,
        )
    except UNREADABLE:
        return None


def copies(config: Config) -> SuspectCopies | None:
    """The pairs of equal or nearly equal images in two splits; None if they are not known."""
    paths = config.paths
    try:
        report = documents.read_json(paths.validation)
        if report["statistics"]["manifest"] != manifest.digest(paths.records):
            return None
        pairs = sum(report["problem_counts"].get(code, 0) for code in COPIES)
        chosen = [each for each in report["problems"] if each["code"] in COPIES and "like" in each][:PAIRS]
        return SuspectCopies(
            pairs, [(_side(paths.records, each), _side(paths.records, each["like"])) for each in chosen]
        )
    except UNREADABLE:
        return None


def _label_error(found: Mapping[str, Any], split: str, records: Records | None) -> Contradicted:
    if "kind" in found:
        answers = [(f"{found['kind']}?", float(found["p"]), str(found["label"]))]
    else:
        pairs = (("perhaps", "suggested"), ("label", "label"))
        answers = [(what, float(found[f"p_{key}"]), str(found[key])) for what, key in pairs]
    return Contradicted(int(found["record"]), found["image"], answers, picture(records, found["record"], split))


def _side(folder: Path, place: Mapping[str, Any]) -> CopySide:
    record = random_access.in_file(folder / Path(place["file"]).name, place["record"])
    name = record.fields.filename if record.fields is not None else None
    where = f"{place['file']} record {place['record']}"
    return CopySide(f"{name} ({where})" if name else where, _thumbnail(record))


def scored_records(folder: Path, index: Path, data: str) -> Records | None:
    """The records, if their manifest still has this digest."""
    try:
        return Records(folder, index) if manifest.digest(folder) == data else None
    except (DataError, OSError):  # converted again or removed since the model was scored
        return None


def picture(records: Records | None, number: int, split: str) -> Thumbnail | None:
    """The picture of a record of a split; None if the records are others, or if it cannot be read."""
    with suppress(DataError):
        return _thumbnail(records.record(number, cast(Split, split))) if records else None
    return None


def _thumbnail(record: Record) -> Thumbnail | None:
    """A small version of a record's image; None if the record is not readable."""
    if record.fields is None or record.encoded is None:
        return None
    return thumbnail(Image(record.encoded, record.fields.format, record.fields.height, record.fields.width))
