"""Original files into TFRecord shards with labels and a manifest."""

import hashlib
import logging
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from perennial import files
from perennial.config import Config, DatasetConfig
from perennial.datasets import DATASETS
from perennial.datasets.dataset import Examples
from perennial.errors import DataError
from perennial.records import example, framing, manifest, splits
from perennial.records.manifest import Manifest, Shard, Split, SplitManifest

log = logging.getLogger(__name__)


def convert(config: Config) -> None:
    """Writes the record folder: shards of train, validation and test, labels.txt and, last, manifest.json.

    The same raw files and parameters give the same bytes on every machine.

    Raises:
        DataError: a raw file is missing or damaged.
    """
    started = time.monotonic()
    dataset, raw = DATASETS[config.dataset.name], config.paths.raw
    for source in dataset.files:
        if not (raw / source.name).is_file():
            raise DataError(f"{raw / source.name} does not exist; `dvc repro download` fetches it")
    train, test = dataset.read(raw, "train"), dataset.read(raw, "test")
    parts = _split(train, test, config.dataset)
    with files.new_folder(config.paths.records) as folder:
        written = {
            split: _write_split(folder, config.dataset, split, *part, classes=len(dataset.classes))
            for split, part in parts.items()
        }
        files.write_bytes(folder / manifest.LABELS_FILE, manifest.labels_text(list(dataset.classes)).encode())
        source_digests = {source.name: files.sha256(raw / source.name) for source in dataset.files}
        # Last: a folder without a manifest is one that was not finished.
        manifest.write(
            folder,
            Manifest(
                dataset=config.dataset.name,
                classes=list(dataset.classes),
                source=source_digests,
                splits=written,
            ),
        )
    counts = ", ".join(f"{split} {part.examples}" for split, part in written.items())
    log.info("converted %s in %.1f s: %s", config.dataset.name, time.monotonic() - started, counts)


def _split(
    train: Examples, test: Examples, config: DatasetConfig
) -> dict[Split, tuple[Examples, Sequence[int]]]:
    """The examples of each split and the numbers of those that belong to it, in source order."""
    try:
        held_out = splits.held_out(train.labels.tolist(), fraction=config.validation_fraction, seed=config.seed)
    except ValueError as error:
        raise DataError(f"{config.name}: no validation split can be cut: {error}") from error
    return {
        "train": (train, [index for index in range(len(train.labels)) if index not in held_out]),
        "validation": (train, sorted(held_out)),
        "test": (test, range(len(test.labels))),
    }


def _write_split(
    folder: Path,
    config: DatasetConfig,
    split: Split,
    examples: Examples,
    members: Sequence[int],
    *,
    classes: int,
) -> SplitManifest:
    """Writes the shards of a split."""
    parts = splits.even(len(members), config.shards)
    shards = []
    for number, part in enumerate(parts):
        name = f"{config.name}_{split}_{number:05d}-of-{len(parts):05d}.tfrecord"
        shards.append(_write_shard(folder / name, examples, [members[index] for index in part]))
    per_class = Counter(int(examples.labels[index]) for index in members)
    return SplitManifest(
        examples=len(members),
        per_class=[per_class[label] for label in range(classes)],
        shards=shards,
    )


def _write_shard(file: Path, examples: Examples, members: Sequence[int]) -> Shard:
    """Writes one TFRecord file, a record at a time."""
    digest, size = hashlib.sha256(), 0
    with file.open("wb") as stream:
        for index in members:
            record = framing.frame(example.serialize(examples.image(index), int(examples.labels[index])))
            stream.write(record)
            digest.update(record)
            size += len(record)
    return Shard(file=file.name, examples=len(members), bytes=size, sha256=digest.hexdigest())
