"""Problems of the data: their codes, fixes and messages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perennial.base.errors import printable
from perennial.data.tfrecord import example

SHOWN = 20  # problems in a message
_RESTORE = "restore the version in dvc.lock with `dvc repro`, or rebuild the records with `perennial convert`"
_SOURCE = "correct or remove the image in the source data, then run `dvc repro`"
_SEVERITY = "set its validate.severity to warn or ignore if this is intended"
_TWICE = "remove one of the images from the source data, or its row of labels/labels.csv"
# By code; `perennial docs problem-codes` has the meanings. `validate.severity` decides what the last ones do.
FIXES = {
    **dict.fromkeys(("labels_mismatch", "shard_missing", "shard_bytes", "shard_digest"), _RESTORE),
    **dict.fromkeys(("shard_examples", "per_class", "record_truncated", "length_crc", "data_crc"), _RESTORE),
    "shard_unexpected": "remove the file from the folder, or " + _RESTORE,
    "split_examples": "give every split examples (dataset.validation_fraction, dataset.layout), or " + _RESTORE,
    "schema": "correct the program that writes the TFRecord files, or " + _RESTORE,
    "label_range": "correct the labels or labels.txt of the source data, or " + _RESTORE,
    **dict.fromkeys(("image_format", "image_size", "image_decode"), f"{_SOURCE}; or {_RESTORE}"),
    "label_conflict": f"correct the wrong label, or remove the images from the source data; {_SEVERITY}",
    **dict.fromkeys(("duplicate_across_splits", "duplicate_in_split"), f"{_TWICE}; {_SEVERITY}"),
    "near_duplicate": f"remove one of the images, or lower validate.near_duplicate_bits; {_SEVERITY}",
    "class_missing": f"add examples or label more images of the class, or remove the class; {_SEVERITY}",
    "class_imbalance": f"add examples of the small class, or raise validate.max_class_ratio; {_SEVERITY}",
    "drift_labels": f"check what changed in the data, or raise validate.max_label_drift; {_SEVERITY}",
    "drift_brightness": f"check what changed in the data, or raise validate.max_brightness_drift; {_SEVERITY}",
}


@dataclass(frozen=True)
class Place:
    """A record: its number counts from 0 within the file."""

    file: str
    record: int


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A problem and its place: record counts from 0 within the file, offset is in bytes."""

    code: str
    severity: str = "error"  # or warn
    file: str
    record: int | None = None
    offset: int | None = None
    message: str
    like: Place | None = None  # the record that this one is a copy of

    def __str__(self) -> str:
        """The problem on one line, without terminal control characters."""
        place = f" record {self.record} at byte {self.offset}" if self.record is not None else ""
        return printable(f"{self.file}{place}: {self.message} [{self.code}]")


def describe(folder: Path, problems: Sequence[Problem], codes: Mapping[str, int], where: str) -> str:
    """Describe the first problems, one per line; then the count per code, fixes, and where all are listed."""
    total = sum(codes.values())
    lines = [f"{folder} has {total:,} problem{'s' * (total != 1)}:"]
    lines += [f"  {problem}" for problem in problems[:SHOWN]]
    if total > SHOWN:
        counts = ", ".join(f"{count:,} x {code}" for code, count in sorted(codes.items()))
        lines.append(f"  ... and {total - SHOWN:,} more; in all: {counts}")
    by_fix: dict[str, list[str]] = {}
    for code in codes:
        by_fix.setdefault(FIXES[code], []).append(code)
    lines += [f"To fix {', '.join(fixed)}: {fix}." for fix, fixed in by_fix.items()]
    lines.append(f"The folder was left as it is. {where}")
    return "\n".join(lines)


def image_name(data: bytes) -> str | None:
    """The file name of a record's image, if it can be read from the data, which may be damaged."""
    try:
        found: bytes = example.only(example.features_of(data), "image/filename", "bytes_list")
    except ValueError:
        return None
    return printable(found.decode("utf-8", "replace"))
