r"""Labelled images of traffic, which join those of a source: `labels/labels.csv` and `labels/images/`.

    sha256,class,reason,who,time,version,served,candidate_version,candidate[,split]

Each image is in one of two pools, by a hash of its digest. Images of the first are only drawn at random, and
only measure: they are in validation and test. Images of the second may be chosen, because the model was
unsure, two models disagreed or the image is typical, and only train. If an image could be either, the hard
ones would be chosen first, and those that are left to be drawn would be too easy. A hash divides the first
pool between test and validation; a row whose `split` is `test` is in test however the table changes.

A row is one line, so that git can join the rows of two branches: in a cell, `\\` is a backslash, `\n` a line
break, `\r` a carriage return and `\uXXXX` another character that a line does not show.
"""

import csv
import hashlib
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from perennial.base.choices import Task
from perennial.base.errors import DataError, listed
from perennial.base.project import pins
from perennial.data import archives
from perennial.data.datasets import image_folder
from perennial.data.datasets.dataset import CHOSEN, DRAWN, TESTED, Examples, Images, Source
from perennial.data.datasets.own import label_table
from perennial.data.datasets.own.class_lists import class_name, decoded_text
from perennial.data.datasets.own.names import require_classes
from perennial.data.datasets.own.split_folders import Item
from perennial.data.datasets.readers import tfrecords
from perennial.data.images import BadImage, Image, accept

TABLE = pins.LABELS
FOLDER, IMAGES = TABLE.parent, TABLE.parent / "images"
TAR = "labels.tar"  # in the raw folder
POINTER = ".dvc"  # after the name of an image that DVC keeps
COLUMN = "traffic"  # further column of the records: why an image was labelled, empty for those of the source
SHA256 = re.compile(r"[0-9a-f]{64}")
POOL_SALT = "drawn or chosen"  # a constant: all queues, branches and machines agree
# What a cell does not show as it is: controls, separators of lines, halves of surrogate pairs, outer blanks.
HIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\\]|\A\s|\s\Z")
ESCAPE = re.compile(r"\\(u[0-9a-f]{4}|.?)", re.DOTALL)
ESCAPES = {"\\": "\\", "n": "\n", "r": "\r"}
LONGEST = 10_000  # characters of a cell
SHOWN = 3
FIRST = 300  # random labels that test gets before validation gets any, with `gate.traffic`
Reason = Literal["random", "disagreement", "typical", "margin"]


@dataclass(frozen=True, kw_only=True)
class Label:
    """A row of the table: what a person said of an image."""

    sha256: str  # of the image file
    class_: str  # empty: none of the classes, so the image is left out; of several labels, a JSON list
    reason: Reason  # why it was to be labelled
    who: str = ""
    time: str = ""  # ISO 8601, UTC
    version: str = ""  # that answered
    served: str = ""  # the class that it answered
    candidate_version: str = ""  # in the shadow, if one was
    candidate: str = ""  # the class that it answered
    split: str = ""  # `test`, as recorded when it was committed; empty: by a hash

    @property
    def labels(self) -> list[str]:
        """The labels of a row of a data set with several an image."""
        return label_table.of_cell(self.class_, None)

    @property
    def measures(self) -> bool:
        """Whether the image may only measure; the others may only train."""
        return self.reason == "random" and may_be_drawn(self.sha256)


def may_be_drawn(sha256: str) -> bool:
    """Whether an image is of the pool that is only drawn at random; it is never chosen."""
    return hashlib.sha256(f"{POOL_SALT}:{sha256}".encode()).digest()[0] < 128


def lacking(labels: Iterable[Label]) -> int:
    """How many random labels test lacks: it has those that say so, and about half of the others."""
    tested = [each.split == "test" for each in labels if each.class_ and each.measures]
    return FIRST - (len(tested) + sum(tested)) // 2


def with_splits(new: Mapping[str, Label], known: Mapping[str, Label], *, first: bool) -> dict[str, Label]:
    """New labels with their split: a known image keeps its own; `first`: random ones go to test as it lacks."""
    found, left = dict[str, Label](), lacking(known.values()) if first else 0
    for name, each in new.items():
        split = known[name].split if name in known else ""
        if name not in known and each.class_ and each.measures and left > 0:
            split, left = "test", left - 1
        found[name] = replace(each, split=split)
    return found


COLUMNS = tuple(each.name.rstrip("_") for each in fields(Label))
NEEDED = COLUMNS[:3]


def cell(labels: Iterable[str]) -> str:
    """Several labels as the class of a row: a JSON list in order, so that equal ones are equal."""
    return json.dumps(sorted(set(labels)), ensure_ascii=False)


def read(table: Path) -> dict[str, Label]:
    """The rows of a table, as `parse` gives them; none without a table."""
    return parse(decoded_text(table.read_bytes(), table), table) if table.exists() else {}


def parse(text: str, where: object = TABLE) -> dict[str, Label]:
    """The rows of a table, by SHA-256; of two rows of an image, which a merge may make, a random one counts."""
    head, *lines = [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]
    names = _cells(head, where, 1)
    if unclear := [name for name in NEEDED if names.count(name) != 1]:
        raise DataError(
            f"{where} line 1: expected {unclear[0]} in one column, as in {','.join(NEEDED)}, got {head!r:.100}"
        )
    found: dict[str, Label] = {}
    for number, line in enumerate(lines, 2):
        if not line:
            continue
        cells = _cells(line, where, number)
        if cells[:1] == ["sha256"]:  # a merge kept the heads of tables with and without `split`
            names = cells
            continue
        row = dict(zip(names, cells, strict=False))
        values = {name: row.get(name, "") for name in COLUMNS}
        wrong = f"it has {len(cells)} cells" if any(cells[len(names) :]) else ""
        if not SHA256.fullmatch(values["sha256"]):
            wrong = f"{values['sha256']!r} is no SHA-256 in 64 lower-case hexadecimal digits"
        elif values["reason"] not in get_args(Reason):
            wrong = f"the reason {values['reason']!r} is none of {', '.join(get_args(Reason))}"
        elif values["split"] not in {"", "test"}:
            wrong = f"the split {values['split']!r} is not test or empty"
        if wrong:
            raise DataError(f"{where} line {number}: {wrong}; correct the row, or remove it")
        values["class_"] = values.pop("class")
        each = Label(**values)  # type: ignore[arg-type]  # the reason was checked
        before = found.get(each.sha256, each)
        if before.class_ != each.class_:
            raise DataError(
                f"{where} line {number}: {each.sha256} is {each.class_ or 'no class'} here and "
                f"{before.class_ or 'no class'} in another row; remove one of the two rows"
            )
        counts = min(before, each, key=lambda one: (one.reason != "random", one.time))
        found[each.sha256] = replace(counts, split=max(before.split, each.split))
    return found


def text_of(labels: Iterable[Label]) -> str:
    """The table of labels, in their order, with the column `split` if one is recorded."""
    stream, rows = io.StringIO(newline=""), [tuple(asdict(each).values()) for each in labels]
    columns = len(COLUMNS) if any(row[-1] for row in rows) else len(COLUMNS) - 1
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS[:columns])
    writer.writerows(map(_escaped, row[:columns]) for row in rows)
    return stream.getvalue()


def _cells(line: str, where: object, number: int) -> list[str]:
    try:
        cells = next(csv.reader([line], strict=True), [])
        return [ESCAPE.sub(_character, cell.strip()) for cell in cells]
    except (csv.Error, ValueError) as error:
        raise DataError(f"{where} line {number} is not CSV: {error}; correct the row, or remove it") from error


def _character(escape: "re.Match[str]") -> str:
    name = escape[1]
    if name not in ESCAPES and len(name) < 2:
        raise ValueError(f"{escape[0]} means nothing; expected \\\\ for a backslash")
    return ESCAPES.get(name) or chr(int(name[1:], 16))


def _escaped(cell: str) -> str:
    if len(cell) > LONGEST:
        raise DataError(f"the text {cell[:20]!r}... has {len(cell):,} characters, expected at most {LONGEST:,}")
    names = {text: name for name, text in ESCAPES.items()}
    return HIDDEN.sub(lambda found: "\\" + names.get(found[0], f"u{ord(found[0]):04x}"), cell)


def pack(raw: Path) -> int:
    """Put the project's table and its images into the raw folder; returns the number of images."""
    labels = read(TABLE)
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
    """Add labelled images, in the one shape of the others if they have one; new classes come last."""
    members = archives.contents(tar)
    table = next((each for each in members if each.name == TABLE.name), None)
    if table is None:
        raise DataError(f"{tar} holds no {TABLE.name}; `dvc repro download` writes it")
    labels = parse(decoded_text(archives.content(tar, table), TABLE), TABLE)
    used = {name: each for name, each in labels.items() if each.class_}
    given = {name: _labels(each, source.task) for name, each in used.items()}
    there = {Path(each.name).stem: each for each in members if each is not table and not each.folder}
    if lost := used.keys() - there.keys():
        raise DataError(f"{tar} lacks {len(lost)} images of {TABLE}; `dvc repro download` writes it")
    if not used:
        return source
    new = sorted(set(chain.from_iterable(given.values())).difference(source.classes))
    classes = (*source.classes, *new)
    if new:
        _require_names(classes, new, source.task)
    number = {name: label for label, name in enumerate(classes)}
    empty = ("",) * len(source.columns)  # of a split without further columns; the new one is empty, too
    items = [
        Item(
            f"{FOLDER}/{there[name].file_name}",
            tuple(sorted(number[label] for label in given[name])),
            there[name],
            (*empty, each.reason),
        )
        for name, each in used.items()
    ]
    several = source.task == "multilabel"
    if several:
        source = replace(source, splits=tfrecords.with_columns(source.splits, len(classes)))
    added = image_folder.examples(tar, items, "", len(classes) if several else 0)
    rows = [used[Path(name).stem] for name in added.names]
    drawn = np.where([each.split == "test" for each in rows], TESTED, DRAWN)
    kinds = np.where([each.measures for each in rows], drawn, CHOSEN).astype(np.uint8)
    splits = {
        split: replace(own, further=tuple((*row, "") for row in own.further or (empty,) * len(own.labels)))
        for split, own in source.splits.items()
    }
    splits["train"] = _together(splits["train"], replace(added, kinds=kinds))
    return replace(source, classes=classes, splits=splits, columns=(*source.columns, COLUMN))


def _labels(row: Label, task: Task) -> list[str]:
    try:
        found = [row.class_] if task == "multiclass" else row.labels
    except ValueError as error:
        raise DataError(f"{TABLE}: the class {row.class_!r} of {row.sha256} is {error}") from error
    return [class_name(each) for each in found]


def _require_names(classes: Sequence[str], new: Sequence[str], task: Task) -> None:
    """Check that new classes are no other spelling of one, no word for none, and not several classes."""
    require_classes(classes, TABLE)
    several = label_table.among(dict.fromkeys(classes, 1)) if task == "multiclass" else []
    for name in new:
        if name.casefold() in label_table.UNLABELLED:
            raise DataError(f"{TABLE}: {name!r} is a word for no class; leave the class of its rows empty")
        if name in several:
            raise DataError(f"{TABLE}: {name!r} holds several labels, but an image has one; correct its rows")


def _together(one: Examples, other: Examples) -> Examples:
    """The examples of both, in this order."""
    count = len(one.labels)
    own = np.zeros(count, np.uint8) if one.kinds is None else one.kinds
    shaped = partial(_shaped, other.images, one.shape) if one.shape else other.images
    own_files = one.originals or partial(_encoded, one.images)
    assert other.originals is not None
    assert other.kinds is not None
    return Examples(
        labels=np.concatenate((one.labels, other.labels), dtype=other.labels.dtype),
        images=partial(_read, one.images, shaped, count, one.alpha),
        image_bytes=np.concatenate((one.image_bytes, other.image_bytes)),
        names=(*(one.names or ("",) * count), *other.names),
        originals=partial(_read, own_files, other.originals, count, one.alpha),
        alpha=True,
        further=(*one.further, *other.further),
        kinds=np.concatenate((own, other.kinds)),
        shape=one.shape,
    )


def _shaped(
    images: Any, shape: tuple[int, int, int], indices: Sequence[int], **options: str
) -> Iterator[Image | BadImage]:
    return (accept.shaped(image, shape) for image in images(indices, **options))


def _encoded(images: Images, indices: Sequence[int]) -> Iterator[bytes]:
    """What records hold of images without files of their own; nothing of one that is rejected."""
    return (image.encoded if isinstance(image, Image) else b"" for image in images(indices))


def _read(
    one: Any, other: Any, count: int, alpha: bool, indices: Sequence[int], **options: str
) -> Iterator[Any]:
    """Yield what two functions read, the first `count` by the first one, which takes options with `alpha`."""
    for second, part in groupby(indices, count.__le__):
        chosen = [index - count * second for index in part]
        yield from other(chosen, **options) if second else one(chosen, **(options if alpha else {}))
