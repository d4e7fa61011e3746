"""The labels of a model: the records' labels without the first `model.labels_offset` classes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perennial.base.choices import Split
from perennial.base.errors import ConfigError, DataError
from perennial.data.records.manifest import Manifest
from perennial.data.tfrecord import example


@dataclass(frozen=True)
class LabelMap:
    """Maps the labels of records to those of a model."""

    offset: int = 0  # classes that the model leaves out: model.labels_offset

    def __call__(self, labels: Any) -> Any:
        """Convert the records' labels to the model's; array or tensor in, same type out."""
        return labels[:, self.offset :] if len(labels.shape) == 2 else labels - self.offset

    def classes(self, data: Manifest) -> list[str]:
        """The classes of the model."""
        return data.classes[self.offset :]

    def per_class(self, data: Manifest, split: Split) -> list[int]:
        """Examples of each class of the model."""
        return data.splits[split].per_class[self.offset :]

    def require_classes(self, data: Manifest) -> None:
        """Check that the offset leaves at least two classes."""
        if len(self.classes(data)) < 2:
            raise ConfigError(
                f"model.labels_offset must leave at least two of {len(data.classes)} classes, got {self.offset}"
            )

    def require_none_below(self, folder: Path, data: Manifest, split: Split) -> None:
        """Check that no example of a split has a class that the model leaves out as its only label."""
        count = sum(data.splits[split].per_class[: self.offset]) if data.task == "multiclass" else 0
        for shard in data.splits[split].shards if count else ():
            for record, (fields, _) in enumerate(example.in_order(folder / shard.file)):
                if fields.label < self.offset:
                    raise DataError(
                        f"{folder / shard.file} record {record}: label {fields.label}, expected at least "
                        f"{self.offset}: model.labels_offset leaves out the classes before; {split} has "
                        f"{count} such examples; lower it, or convert data without them"
                    )
