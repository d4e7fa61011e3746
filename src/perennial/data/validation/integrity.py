"""Integrity checks of record folders, without TensorFlow: the folder and its shards against the manifest."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perennial.base.choices import SPLITS, Split
from perennial.base.config.data import ComputeConfig
from perennial.base.errors import DataError, printable
from perennial.base.parallel import parallel_map
from perennial.data.images.statistics import Statistics
from perennial.data.records import manifest
from perennial.data.tfrecord import framing
from perennial.data.validation.image_index import Collected
from perennial.data.validation.inspection import Checks, Decode, Inspection, Part, inspect
from perennial.data.validation.problems import Problem, describe

PART_BYTES = 4 << 20  # of a shard, that a process checks at once
# Below these sizes, checking takes less time than starting processes.
PARALLEL_BYTES: Mapping[Decode, int] = {"all": 32 << 20, "sample": 256 << 20, "none": 512 << 20}
HERE = ComputeConfig(engine="processes", processes=1)


@dataclass
class Findings:
    """Problems of a record folder and facts about its valid records."""

    problems: list[Problem] = field(default_factory=list)
    codes: Counter[str] = field(default_factory=Counter)  # of all problems, listed or not
    per_class: dict[Split, NDArray[np.int64]] = field(default_factory=dict)
    examples: Counter[Split] = field(default_factory=Counter)
    unlabelled: Counter[Split] = field(default_factory=Counter)  # examples without any label
    pairs: Counter[tuple[int, int]] = field(default_factory=Counter)  # examples by two of their labels
    most_labels: int = 0  # of an example
    statistics: dict[Split, Statistics] = field(default_factory=lambda: defaultdict(Statistics))
    spans: dict[str, framing.Spans] = field(default_factory=dict)  # by shard
    faults: dict[str, framing.FramingFault | None] = field(default_factory=dict)  # of its framing, by shard
    images: Collected | None = None  # their entries in the image index

    def add(self, code: str, file: str, message: str, at: tuple[int, int] | None = None) -> None:
        """Add a problem of a file or, with its number and offset, of a record."""
        record, offset = at or (None, None)
        self.problems.append(Problem(code=code, file=file, record=record, offset=offset, message=message))
        self.codes[code] += 1


def check(
    folder: Path,
    splits: Sequence[Split] | None = None,
    *,
    decode: Decode = "all",
    fingerprints: Path | None = None,
    where: ComputeConfig = HERE,
) -> Findings:
    """Find all problems in splits of a record folder (by default all splits), in reading order.

    With `fingerprints`, a folder for a temporary file, the images are fingerprinted.
    """
    folder = folder.absolute()  # worker processes on other machines have another current folder
    expected = manifest.load(folder)
    findings = Findings(images=Collected(fingerprints) if fingerprints else None)
    _check_files(folder, expected, findings)
    splits = splits or [split for split in SPLITS if split in expected.splits]
    if not splits:
        findings.add("split_examples", manifest.FILE, "the manifest has no splits")
    present = [split for split in splits if split in expected.splits]
    chosen = [(split, shard) for split in present for shard in expected.splits[split].shards]
    request = Checks(
        classes=len(expected.classes),
        several=expected.task == "multilabel",
        decode=decode,
        fingerprints=fingerprints is not None,
    )
    parts = (part for split, shard in chosen for part in _parts(split, folder / shard.file, findings))
    small = sum(shard.bytes for _, shard in chosen) < PARALLEL_BYTES[decode]
    inspections = parallel_map.map_ordered(where, inspect, request, parts, small=small)
    for split, shard in chosen:
        _check_shard(folder / shard.file, split, shard, inspections, findings)
    for split in (each for each in splits if each != "validation" or expected.validates):
        _check_split(expected, split, findings)
    return findings


def require_valid(folder: Path, splits: Sequence[Split]) -> manifest.Manifest:
    """Check the splits, except for decoding images, and return the manifest of the record folder."""
    findings = check(folder, splits, decode="none")
    if findings.problems:
        raise DataError(describe(folder, findings.problems, findings.codes, "`perennial validate` lists all."))
    return manifest.load(folder)


def _check_files(folder: Path, expected: manifest.Manifest, findings: Findings) -> None:
    file = folder / manifest.LABELS_FILE
    content = file.read_bytes() if file.is_file() else None
    if content != manifest.labels_text(expected.classes).encode():
        found = "missing" if content is None else f"{len(content.splitlines())} lines of other content"
        message = f"expected the {len(expected.classes)} classes of the manifest; {found}"
        findings.add("labels_mismatch", manifest.LABELS_FILE, message)
    known = {shard.file for split in expected.splits.values() for shard in split.shards}
    for path in sorted(folder.glob("*.tfrecord*")):
        if path.name not in known:
            findings.add("shard_unexpected", printable(path.name), "the manifest does not list it")


def _parts(split: Split, file: Path, findings: Findings) -> Iterator[Part]:
    """Split a shard into parts; record its spans, and a framing fault that ends them."""
    if not file.is_file():
        return
    with file.open("rb") as stream:
        spans, findings.faults[file.name] = framing.scan(stream, file.stat().st_size)
    findings.spans[file.name] = spans
    yield Part(split=split, file=file)
    first, ends = 0, spans.sum(1)
    while first < len(spans):
        most = int(spans[first, 0]) + PART_BYTES
        after = max(int(np.searchsorted(ends, most)), first + 1)
        yield Part(split=split, file=file, first=first, spans=spans[first:after])
        first = after


def _check_shard(
    file: Path, split: Split, shard: manifest.Shard, inspections: Iterator[Inspection], findings: Findings
) -> None:
    """Collect the inspections of a shard and compare it with the manifest."""
    if not file.is_file():
        message = f"no such file; expected {shard.bytes} bytes, {shard.examples} examples"
        findings.add("shard_missing", file.name, message)
        return
    whole = next(inspections)
    spans, size, inspected = findings.spans[file.name], file.stat().st_size, 0
    per_class = findings.per_class.setdefault(split, np.zeros_like(whole.labels))
    while inspected < len(spans):
        part = next(inspections)
        findings.problems += part.problems
        findings.codes += part.codes
        findings.statistics[split].add(part.statistics)
        per_class += part.labels
        findings.examples[split] += part.examples
        findings.unlabelled[split] += part.unlabelled
        findings.pairs += part.pairs
        findings.most_labels = max(findings.most_labels, part.most_labels)
        inspected += part.records
        if findings.images and part.hashed:
            findings.images.add(*part.hashed)
    if (fault := findings.faults[file.name]) is not None:
        findings.add(fault.code, file.name, fault.message, (len(spans), fault.offset))
    if len(spans) != shard.examples:
        findings.add("shard_examples", file.name, f"{len(spans)} records, expected {shard.examples}")
    if size != shard.bytes:
        findings.add("shard_bytes", file.name, f"{size} bytes, expected {shard.bytes}")
    elif whole.sha256 != shard.sha256:
        findings.add("shard_digest", file.name, f"sha256 {whole.sha256}, expected {shard.sha256}")


def _check_split(expected: manifest.Manifest, split: Split, findings: Findings) -> None:
    part = expected.splits.get(split)
    if part is None or not part.examples:
        message = f"the manifest has no examples in split {split}"
        if part is None:
            message += "; records in slim's layout are for other programs: set dataset.layout to perennial"
        findings.add("split_examples", manifest.FILE, message)
        return
    listed = sum(shard.examples for shard in part.shards)
    if listed != part.examples:
        message = f"split {split} has {part.examples} examples, its shards add up to {listed}"
        findings.add("split_examples", manifest.FILE, message)
    found = findings.per_class[split].tolist() if split in findings.per_class else []
    if found != part.per_class and not findings.problems:
        message = f"split {split} has {len(found)} classes, the manifest {len(part.per_class)}"
        if len(found) == len(part.per_class):
            labels = [label for label in range(len(found)) if found[label] != part.per_class[label]]
            first, classes = labels[0], f"{len(labels)} of {len(found)} classes differ"
            message = f"split {split} has {found[first]} examples of class {expected.classes[first]}, "
            message += f"expected {part.per_class[first]}; {classes}"
        findings.add("per_class", manifest.FILE, message)
    elif (count := findings.unlabelled[split]) != part.unlabelled and not findings.problems:
        message = f"split {split} has {count} examples without a label, expected {part.unlabelled}"
        findings.add("per_class", manifest.FILE, message)
