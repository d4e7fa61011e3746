"""Labelled images of traffic, which join a folder of images: `labels/labels.csv` and `labels/images/`.

    sha256,class,reason,who,time,version,served,candidate_version,candidate

Images that were drawn at random are split like those of the source. Images that were chosen, because the model
was unsure or two models disagreed, are for training only: a test split with them would measure how hard the
chosen images are.
"""

import csv
import hashlib
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from perennial.base.errors import DataError, listed
from perennial.base.project import pins
from perennial.data import archives
from perennial.data.datasets.dataset import CHOSEN, DRAWN, Examples, Source
from perennial.data.datasets.own.class_lists import class_name
from perennial.data.datasets.own.folders import Item
from perennial.data.datasets.readers import class_folders

TABLE = pins.LABELS
FOLDER, IMAGES = TABLE.parent, TABLE.parent / "images"
TAR = "labels.tar"  # in the raw folder
COLUMN = "traffic"  # further column of the records: why an image was labelled, empty for those of the source
SHA256 = re.compile(r"[0-9a-f]{64}")
SHOWN = 3
Reason = Literal["random", "disagreement", "margin"]


@dataclass(frozen=True, kw_only=True)
class Label:
    """A row of the table: what a person said of an image."""

    sha256: str  # of the image file
    class_: str  # empty: none of the classes, so the image is left out
    reason: Reason  # why it was to be labelled
    who: str = ""
    time: str = ""  # ISO 8601, UTC
    version: str = ""  # that answered
    served: str = ""  # the class that it answered
    candidate_version: str = ""  # in the shadow, if one was
    candidate: str = ""  # the class that it answered


COLUMNS = tuple(each.name.rstrip("_") for each in fields(Label))
NEEDED = COLUMNS[:3]


def parse(text: str, where: object = TABLE) -> dict[str, Label]:
    """The rows of a table, by SHA-256; further columns are left out.

    After a merge of branches, an image may have two rows: it counts as drawn at random if one of them says so.

    Raises:
        DataError: a column is missing, or a row is not valid, or two rows of an image have different classes.
    """
    rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    found: dict[str, Label] = {}
    try:
        missing = [name for name in NEEDED if name not in (rows.fieldnames or ())]
        if missing:
            raise DataError(f"{where} has no column {listed(missing, SHOWN)}; expected {','.join(COLUMNS)}")
        for row in rows:
            values = {name: row.get(name) or "" for name in COLUMNS}
            if wrong := _wrong(values):
                raise DataError(f"{where} line {rows.line_num}: {wrong}; correct the row, or remove it")
            values["class_"] = class_name(values.pop("class").strip())
            each = Label(**values)  # type: ignore[arg-type]  # `_wrong` checked the reason
            before = found.get(each.sha256, each)
            if before.class_ != each.class_:
                raise DataError(
                    f"{where} line {rows.line_num}: {each.sha256} is {each.class_ or 'no class'} here and "
                    f"{before.class_ or 'no class'} in another row; remove one of the two rows"
                )
            found[each.sha256] = min(before, each, key=lambda one: (one.reason != "random", one.time))
    except csv.Error as error:
        raise DataError(f"{where} line {rows.line_num} is not CSV: {error}") from error
    return found


def text_of(labels: Iterable[Label]) -> str:
    """The table of labels, in their order."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(asdict(each).values() for each in labels)
    return stream.getvalue()


def pack(raw: Path) -> int:
    """Put the project's table and its images into the raw folder; returns the number of images.

    Raises:
        DataError: an image is missing, or has other bytes than its name says.
    """
    labels = parse(TABLE.read_text(encoding="utf-8"))
    files = {path.stem: path for path in sorted(IMAGES.glob("*")) if SHA256.fullmatch(path.stem)}
    used = sorted(each.sha256 for each in labels.values() if each.class_)
    if lost := [name for name in used if name not in files]:
        raise DataError(
            f"{TABLE} has {len(lost)} images that {IMAGES} lacks: {listed(lost, SHOWN)}; `git checkout "
            f"{FOLDER}` restores them, or remove the rows"
        )
    for name in used:
        if hashlib.sha256(files[name].read_bytes()).hexdigest() != name:
            raise DataError(f"{files[name]} is damaged; `git checkout {files[name]}` restores it")
    found = [(TABLE.name, TABLE), *((f"{IMAGES.name}/{files[name].name}", files[name]) for name in used)]
    archives.pack_files(found, raw / TAR)
    return len(used)


def join(source: Source, tar: Path) -> Source:
    """Add the labelled images of a packed table to the training images of a source.

    Classes that the source lacks come after its own, so that those keep their numbers.

    Raises:
        DataError: the table is not valid, or the tar file lacks one of its images.
    """
    members = archives.contents(tar)
    table = next((each for each in members if each.name == TABLE.name), None)
    if table is None:
        raise DataError(f"{tar} holds no {TABLE.name}; `dvc repro download` writes it")
    labels = parse(archives.content(tar, table).decode("utf-8"), TABLE)
    used = {name: each for name, each in labels.items() if each.class_}
    there = {Path(each.name).stem: each for each in members if each is not table and not each.folder}
    if lost := used.keys() - there.keys():
        raise DataError(f"{tar} lacks {len(lost)} images of {TABLE}; `dvc repro download` writes it")
    if not used:
        return source
    new = sorted({each.class_ for each in used.values()}.difference(source.classes))
    classes = (*source.classes, *new)
    number = {name: label for label, name in enumerate(classes)}
    items = [
        Item(f"{FOLDER}/{Path(there[name].name).name}", number[each.class_], there[name], (each.reason,))
        for name, each in used.items()
    ]
    added = class_folders.examples(tar, items, "")
    drawn = np.array([each[0] == "random" for each in added.further])
    kinds = np.where(drawn, DRAWN, CHOSEN).astype(np.uint8)
    splits = {split: _with_column(found, len(source.columns)) for split, found in source.splits.items()}
    added = replace(added, further=tuple((*("",) * len(source.columns), *each) for each in added.further))
    splits["train"] = _together(splits["train"], replace(added, kinds=kinds))
    return Source(classes=classes, splits=splits, columns=(*source.columns, COLUMN))


def _wrong(row: dict[str, str]) -> str | None:
    """What is wrong with a row."""
    if not SHA256.fullmatch(row["sha256"]):
        return f"{row['sha256']!r} is no SHA-256 in 64 lower-case hexadecimal digits"
    if row["reason"] not in get_args(Reason):
        return f"the reason {row['reason']!r} is none of {', '.join(get_args(Reason))}"
    return None


def _with_column(found: Examples, columns: int) -> Examples:
    """Examples of the source with an empty value in the new column."""
    rows = found.further or (("",) * columns,) * len(found.labels)
    return replace(found, further=tuple((*row, "") for row in rows))


def _together(one: Examples, other: Examples) -> Examples:
    """The examples of both, in this order."""
    count = len(one.labels)
    own = np.zeros(count, np.uint8) if one.kinds is None else one.kinds
    assert one.originals is not None
    assert other.originals is not None
    assert other.kinds is not None
    return Examples(
        labels=np.concatenate((one.labels, other.labels)),
        images=partial(_read, one.images, other.images, count),
        image_bytes=np.concatenate((one.image_bytes, other.image_bytes)),
        names=(*one.names, *other.names),
        originals=partial(_read, one.originals, other.originals, count),
        alpha=True,
        further=(*one.further, *other.further),
        kinds=np.concatenate((own, other.kinds)),
    )


def _read(one: Any, other: Any, count: int, indices: Sequence[int], **options: str) -> Iterator[Any]:
    """Yield what two functions read, the first `count` by the first one."""
    for second, part in groupby(indices, count.__le__):
        chosen = [index - count * second for index in part]
        yield from (other if second else one)(chosen, **options)
