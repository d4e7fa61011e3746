"""Convert stage: original files to TFRecord shards with labels and a manifest."""

import json
import logging
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perennial.base import files
from perennial.base.choices import SPLITS, Split
from perennial.base.config import Config
from perennial.base.config.fields import is_component, short_name
from perennial.base.errors import ConfigError, DataError, listed
from perennial.base.parallel import parallel_map, threads
from perennial.base.project.pins import Exclusions
from perennial.base.stage_state import outputs
from perennial.data import datasets
from perennial.data.datasets.dataset import Examples, Source
from perennial.data.images import BadImage
from perennial.data.records import columns, manifest, selection, sharding
from perennial.data.records.manifest import Manifest, SplitManifest
from perennial.data.records.sharding import Encoded, PlannedShard, ShardPart
from perennial.data.tfrecord import label_arrays

log = logging.getLogger(__name__)
CHUNK_BYTES = 1 << 20  # records that one process encodes at a time
SMALL_BYTES = 16 << 20  # below this, encoding takes less time than starting processes
LARGE_BYTES = 32 << 10  # mean record from which decoders, without the interpreter lock, take most of the time
SHOWN = 20  # rejected files listed in a message
HIDDEN_SHOWN = 3
REJECTED_FILE = "rejected.json"
Indices = Mapping[Split, NDArray[np.int64]]  # of examples, by the split of the source


def convert(config: Config) -> None:
    """Write the record folder: the shards of every split, labels.txt, rejected.json and, last, manifest.json.

    If a table gives the labels, columns.csv has its further columns. The output depends only on raw files,
    exclusions and parameters, not on the machine or the number of processes.
    """
    started, excluded = time.monotonic(), Exclusions.read()
    digests = threads.start(partial(files.digests, config.paths.raw))
    # Sending raw pixels to another process takes longer than encoding them here.
    raw_bytes = sum(path.stat().st_size for path in config.paths.raw.glob("*"))
    small = not datasets.named(config.dataset.name).decoded or raw_bytes < SMALL_BYTES
    if not small:
        parallel_map.prepare(config.compute, sharding.encode)
    with _scratch(config.paths.work / "convert") as scratch:
        source = _source(config, scratch)
        kept = selection.kept(config.compute, source, excluded, small=small)
        shards = _shards(config, source, kept)
        with outputs.new_folder(config.paths.records, "convert") as folder:
            splits, lost = _write(folder, config, source, shards, small=small)
            every = (bad for found in lost.files.values() for bad in found.values())
            rejected = sorted(every, key=lambda bad: bad.filename)
            _require_wanted(config, rejected, sum(len(shard.indices) for shard in shards))
            if rejected:
                left = {split: np.setdiff1d(found, list(lost.files[split])) for split, found in kept.items()}
                _require_left(source, kept, left, rejected)
            if lost.hidden:
                log.warning(
                    "%d images are of one colour in the records: their picture is in the alpha channel, which "
                    "dataset.transparency: drop leaves out (%s); white composites it on white",
                    len(lost.hidden),
                    listed(sorted(lost.hidden), HIDDEN_SHOWN),
                )
            _write_columns(folder, source, shards, rejected)
            classes, origin = list(source.classes), digests()
            made = Manifest(
                dataset=config.dataset.name, task=source.task, classes=classes, source=origin, splits=splits
            )
            _describe(folder, made, rejected)
    counts = ", ".join(f"{split} {part.examples}" for split, part in splits.items())
    skipped = f"; skipped {len(rejected)} files, listed in {REJECTED_FILE}" if rejected else ""
    log.info("converted %s in %.1f s: %s%s", config.dataset.name, time.monotonic() - started, counts, skipped)


def _source(config: Config, scratch: Path) -> Source:
    options, raw = config.dataset, config.paths.raw
    for path in raw.glob("*"):
        files.require_utf8(path)
    there = {path.name for path in raw.glob("*")}
    if missing := [file.name for file in datasets.of(options).files if file.name not in there]:
        raise DataError(f"{raw / missing[0]} does not exist; `dvc repro download` fetches it")
    source = datasets.read(options, raw, scratch)
    if source.task != options.task:
        raise ConfigError(
            f"dataset.task must be {source.task} for dataset.name {options.name}, got {options.task}: that is "
            "the task of its Source"
        )
    adapted = {
        split: examples.adapted(options.transparency, options.max_side)
        for split, examples in source.splits.items()
    }
    return replace(source, splits=adapted)


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """Create an empty folder for unpacked files and remove it afterwards; after a kill, the next call does."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder.absolute()  # worker processes on other machines have another current folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _shards(config: Config, source: Source, kept: Indices) -> list[PlannedShard]:
    """Plan the shards of the examples that are kept; their indices are those of the source."""
    options = config.dataset
    left = selection.without(source, kept)
    if options.layout == "slim":
        planned = sharding.plan_slim(short_name(options.name), left, fraction=options.validation_fraction)
    else:
        planned = sharding.plan(
            short_name(options.name),
            left,
            shards=options.shards,
            fraction=options.validation_fraction,
            seed=options.seed,
            test_fraction=options.test_fraction,
            group=options.table.group_column if options.table else None,
        )
    return [replace(shard, indices=kept[shard.source][shard.indices]) for shard in planned]


@dataclass(frozen=True, kw_only=True)
class Lost:
    """What the records lack."""

    files: dict[Split, dict[int, BadImage]] = field(
        default_factory=lambda: defaultdict(dict)
    )  # rejected, by source
    hidden: list[str] = field(default_factory=list)  # files whose picture was in the dropped alpha channel


def _write(
    folder: Path, config: Config, source: Source, shards: Sequence[PlannedShard], *, small: bool
) -> tuple[dict[Split, SplitManifest], Lost]:
    """Write the shards; parallel processes or threads encode their parts."""
    parts = [sharding.parts(shard, source.splits[shard.source], CHUNK_BYTES) for shard in shards]
    tasks = (
        ShardPart(source=shard.source, indices=indices, labels=source.splits[shard.source].labels[indices])
        for shard, own in zip(shards, parts, strict=True)
        for indices in own
    )
    encoded = parallel_map.map_ordered(
        config.compute,
        sharding.encode,
        {split: examples.images for split, examples in source.splits.items()},
        tasks,
        small=small,
        # The code of a component may know no threads.
        unlocked=sharding.record_bytes(source.splits["train"]) >= LARGE_BYTES
        and not is_component(config.dataset.name),
    )
    written: dict[Split, list[SplitManifest]] = {}
    lost = Lost()
    flushed: Callable[[], None] | None = None
    for shard, own in zip(shards, parts, strict=True):
        records = _noting(islice(encoded, len(own)), lost, shard.source, source.splits[shard.source])
        entry = sharding.write_shard(folder / shard.name, records, len(source.classes))
        written.setdefault(shard.split, []).append(entry)
        if flushed:
            flushed()
        flushed = threads.start(partial(files.sync, folder / shard.name))  # while the next shard is made
    if flushed:
        flushed()
    found = {split: _split(entries) for split, entries in written.items()}
    if config.dataset.layout == "perennial" and "validation" not in found:
        found["validation"] = SplitManifest(examples=0, per_class=[0] * len(source.classes), shards=[])
    return {split: found[split] for split in SPLITS if split in found}, lost


def _noting(parts: Iterable[Encoded], lost: Lost, split: Split, examples: Examples) -> Iterator[Encoded]:
    for part in parts:
        lost.files[split].update(part.rejected)
        lost.hidden.extend(part.hidden)
        yield sharding.completed(part, examples)


def _split(shards: Sequence[SplitManifest]) -> SplitManifest:
    return SplitManifest(
        examples=sum(each.examples for each in shards),
        per_class=np.sum([each.per_class for each in shards], axis=0).tolist(),
        unlabelled=sum(each.unlabelled for each in shards),
        shards=[entry for each in shards for entry in each.shards],
    )


def _require_left(source: Source, kept: Indices, left: Indices, rejected: Sequence[BadImage]) -> None:
    """Check that skipping left images in every split of the source, and images to train on in every class."""
    for split in source.splits:
        labels = source.splits[split].labels
        counted = partial(label_arrays.per_class, classes=len(source.classes))
        before, after = (counted(labels[each[split]]) for each in (kept, left))
        gone = [source.classes[index] for index in np.flatnonzero((before > 0) & (after == 0)).tolist()]
        if gone and (split == "train" or not after.any()):
            what = f"no image of {listed(gone, SHOWN)}" if after.any() else f"none of {before.sum()} images"
            raise DataError(
                f"dataset.on_bad_image: skip leaves {what} in {split}; {len(rejected)} files are not valid "
                f"images:\n{_lines(rejected)}"
                "Nothing was written. Correct the files, or remove the class from the source."
            )
        if gone:
            log.warning("every image of %s in %s was rejected", listed(gone, SHOWN), split)


def _lines(rejected: Sequence[BadImage]) -> str:
    """The first rejected files with their reasons, and the number of others."""
    lines = "".join(f"  {bad.filename}: {bad.reason}\n" for bad in rejected[:SHOWN])
    return lines + (f"  ... and {len(rejected) - SHOWN} more\n" if len(rejected) > SHOWN else "")


def _require_wanted(config: Config, rejected: Sequence[BadImage], examples: int) -> None:
    if rejected and config.dataset.on_bad_image == "fail":
        raise DataError(
            f"{len(rejected)} of {examples} files of {config.dataset.name} are not valid images:\n"
            f"{_lines(rejected)}"
            "Nothing was written. Correct or remove them, or set dataset.on_bad_image to skip."
        )


def _write_columns(
    folder: Path, source: Source, shards: Sequence[PlannedShard], rejected: Sequence[BadImage]
) -> None:
    """Write the further columns of a table of labels, a row for each record."""
    if not source.columns:
        return
    # The name of a rejected file may have the folder of its split in front.
    out = {"", *(name for bad in rejected for name in (bad.filename, bad.filename.partition("/")[2]))}
    rows = []
    for shard in shards:
        examples = source.splits[shard.source]
        rows += [
            (shard.split, name, _shown(source, examples, index), *examples.further[index])
            for index in shard.indices.tolist()
            if examples.names and (name := examples.names[index]) not in out
        ]
    columns.write(folder, source.columns, rows)


def _shown(source: Source, examples: Examples, index: int) -> str:
    """The class of an example; of several labels, a JSON list."""
    (label,) = label_arrays.each(examples.labels[index : index + 1])
    if isinstance(label, int):
        return source.classes[label]
    return json.dumps([source.classes[each] for each in label], ensure_ascii=False)


def _describe(folder: Path, described: Manifest, rejected: Sequence[BadImage]) -> None:
    """Write the remaining files. The manifest comes last: a folder without one is unfinished."""
    files.write_bytes(folder / manifest.LABELS_FILE, manifest.labels_text(described.classes).encode())
    files.write_json(
        folder / REJECTED_FILE,
        {
            "examples": sum(part.examples for part in described.splits.values()),
            "rejected": [{"file": bad.filename, "reason": bad.reason} for bad in rejected],
        },
    )
    manifest.write(folder, described)
