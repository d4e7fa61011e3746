"""What can be wrong with a record folder: the codes, and how a problem is told."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

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
