"""What can be wrong with a record folder: the codes, and how a problem is told."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from perennial.tfrecord import example

# Every code that a problem can have, with what it says of the data. These stop a run.
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
    "image_format": "an image is of another format than its record says, or of none that is known",
    "image_size": "an image has another size than its record says",
    "image_decode": "an image cannot be decoded",
}
# These are a matter of judgement: `validate.severity` says what each does.
JUDGED_CODES = {
    "duplicate_across_splits": "the same image is in two splits",
    "duplicate_in_split": "the same image is in a split more than once",
    "near_duplicate": "almost the same image is in two splits",
    "class_missing": "a class has no example in a split",
    "class_imbalance": "a class has far fewer examples than another",
    "drift_labels": "a class's share of the training examples has changed since the version before",
    "drift_brightness": "the brightness of the training images has changed since the version before",
}


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something wrong, and where: record counts from 0 within the file, offset is in bytes."""

    code: str
    severity: str = "error"  # or warn
    file: str
    record: int | None = None
    offset: int | None = None
    message: str

    def __str__(self) -> str:
        place = self.file
        if self.record is not None:
            place += f" record {self.record} at byte {self.offset}"
        return f"{place}: {self.message} [{self.code}]"


def describe(
    folder: Path, problems: Sequence[Problem], codes: Mapping[str, int], where: str, most: int = 20
) -> str:
    """The first problems, a line each; how many there are, listed or not; where they are and what to do."""
    total = sum(codes.values())
    lines = [f"{folder} has {total:,} problem{'s' * (total != 1)}:"]
    lines += [f"  {problem}" for problem in problems[:most]]
    if total > most:
        kinds = ", ".join(f"{count:,} x {code}" for code, count in sorted(codes.items()))
        lines.append(f"  ... and {total - most:,} more; in all: {kinds}")
    lines.append(
        "The folder was left as it is. `dvc repro` puts the version back that dvc.lock names; "
        f"`perennial convert` makes the records anew from the raw files. {where}"
    )
    return "\n".join(lines)


def image_name(data: bytes) -> str | None:
    """The file that the image of a record was made of, as far as the data say, which may be damaged."""
    try:
        found: bytes = example.only(example.features_of(data), "image/filename", "bytes_list")
    except ValueError:
        return None
    return printable(found.decode("utf-8", "replace"))


def printable(text: str) -> str:
    """A text with everything escaped that could steer a terminal: names come from data."""
    if text.isprintable():
        return text
    return "".join(mark if mark.isprintable() else repr(mark)[1:-1] for mark in text)


def as_json(problem: Problem) -> dict[str, object]:
    """A problem as it stands in the validation report."""
    return asdict(problem)
