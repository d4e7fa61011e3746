"""Everything that can be wrong with a record folder, found without TensorFlow."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perennial.config.sections import ComputeConfig
from perennial.errors import DataError
from perennial.images.statistics import Fingerprints, Statistics
from perennial.records import inspection, manifest
from perennial.records.inspection import Decode, Inspection, Part, Question
from perennial.records.manifest import Manifest, Shard, Split
from perennial.records.problems import Problem, describe
from perennial.runtime import parallel
from perennial.tfrecord import framing
from perennial.tfrecord.framing import Fault, Places

PART_BYTES = 4 << 20  # of a shard that one process looks at in one go
# Less is looked at sooner than processes start.
SMALL_BYTES = {"all": 32 << 20, "sample": 256 << 20, "none": 512 << 20}
HERE = ComputeConfig(engine="processes", processes=1)


@dataclass
class Findings:
    """What a check saw: problems, and facts about the records that were in order."""

    problems: list[Problem] = field(default_factory=list)
    codes: Counter[str] = field(default_factory=Counter)  # of all problems, also of those not listed
    per_class: dict[Split, NDArray[np.int64]] = field(default_factory=dict)
    statistics: dict[Split, Statistics] = field(default_factory=lambda: defaultdict(Statistics))
    places: dict[str, Places] = field(default_factory=dict)  # by shard
    seen: list["Seen"] = field(default_factory=list)

    def add(self, problem: Problem) -> None:
        """Adds a problem."""
        self.problems.append(problem)
        self.codes[problem.code] += 1


@dataclass(frozen=True)
class Seen:
    """Records of a shard that are without a problem, and the fingerprints of their images."""

    split: Split
    file: str
    numbers: NDArray[np.uint32]  # within the shard
    tiny: NDArray[np.bool_]  # too small for near duplicates
    fingerprints: Fingerprints


def check(
    folder: Path,
    splits: Sequence[Split] | None = None,
    *,
    decode: Decode = "all",
    fingerprints: bool = False,
    where: ComputeConfig = HERE,
) -> Findings:
    """All problems of a record folder's splits (all that it has), in reading order.

    Raises:
        DataError: there is no readable manifest to check against.
    """
    folder = folder.absolute()  # other machines start elsewhere
    expected, findings = manifest.load(folder), Findings()
    for problem in (*_labels(folder, expected), *_unexpected(folder, expected)):
        findings.add(problem)
    splits = splits or [split for split in manifest.SPLITS if split in expected.splits]
    if not splits:
        message = "the manifest has no splits"
        findings.add(Problem(code="split_examples", file=manifest.FILE, message=message))
    chosen = [(split, shard) for split in splits for shard in _shards(expected, split)]
    question = Question(classes=len(expected.classes), decode=decode, fingerprints=fingerprints)
    faults: dict[str, Fault | None] = {}
    answers = parallel.map_ordered(
        where,
        inspection.inspect,
        question,
        (part for _, shard in chosen for part in _parts(folder / shard.file, findings, faults)),
        small=sum(shard.bytes for _, shard in chosen) < SMALL_BYTES[decode],
    )
    for split, shard in chosen:
        _check_shard(folder / shard.file, split, shard, answers, findings, faults)
    for split in splits:
        _check_split(expected, split, findings)
    return findings


def require_sound(folder: Path, splits: Sequence[Split]) -> Manifest:
    """The manifest of a record folder whose splits passed every check but the decoding of images.

    Raises:
        DataError: lists what is wrong, a line each.
    """
    findings = check(folder, splits, decode="none")
    if findings.problems:
        where = "`perennial validate` lists them."
        raise DataError(describe(folder, findings.problems, findings.codes, where))
    return manifest.load(folder)


def _shards(expected: Manifest, split: Split) -> Sequence[Shard]:
    return expected.splits[split].shards if split in expected.splits else ()


def _labels(folder: Path, expected: Manifest) -> list[Problem]:
    file = folder / manifest.LABELS_FILE
    content = file.read_bytes() if file.is_file() else None
    if content == manifest.labels_text(expected.classes).encode():
        return []
    found = "it is missing" if content is None else f"it has {len(content.splitlines())} lines of other content"
    message = f"expected the {len(expected.classes)} classes of the manifest, {found}"
    return [Problem(code="labels_mismatch", file=manifest.LABELS_FILE, message=message)]


def _unexpected(folder: Path, expected: Manifest) -> list[Problem]:
    known = {shard.file for split in expected.splits.values() for shard in split.shards}
    return [
        Problem(code="shard_unexpected", file=path.name, message="the manifest does not list it")
        for path in sorted(folder.glob("*.tfrecord*"))
        if path.name not in known
    ]


def _parts(file: Path, findings: Findings, faults: dict[str, Fault | None]) -> Iterator[Part]:
    """What is to be looked at in a shard; notes where its records are."""
    if not file.is_file():
        return
    with file.open("rb") as stream:
        places, faults[file.name] = framing.scan(stream, file.stat().st_size)
    findings.places[file.name] = places
    yield Part(file=file, first=0, places=None)
    first = 0
    ends = places.sum(1)
    while first < len(places):
        most = int(places[first, 0]) + PART_BYTES
        after = max(int(np.searchsorted(ends, most)), first + 1)
        yield Part(file=file, first=first, places=places[first:after])
        first = after


def _check_shard(
    file: Path,
    split: Split,
    shard: Shard,
    answers: Iterator[Inspection],
    findings: Findings,
    faults: dict[str, Fault | None],
) -> None:
    """Gathers what was found in a shard and compares it with the manifest."""

    def found(code: str, message: str, record: int | None = None, offset: int | None = None) -> None:
        findings.add(Problem(code=code, file=file.name, record=record, offset=offset, message=message))

    if not file.is_file():
        found("shard_missing", f"no such file; expected {shard.bytes} bytes, {shard.examples} examples")
        return
    whole = next(answers)
    places, size, inspected = findings.places[file.name], file.stat().st_size, 0
    per_class = findings.per_class.setdefault(split, np.zeros_like(whole.labels))
    while inspected < len(places):
        answer = next(answers)
        findings.problems += answer.problems
        findings.codes += answer.codes
        findings.statistics[split].add(answer.statistics)
        per_class += answer.labels
        inspected += answer.records
        if answer.fingerprints is not None and answer.numbers is not None and answer.tiny is not None:
            findings.seen.append(Seen(split, file.name, answer.numbers, answer.tiny, answer.fingerprints))
    if (fault := faults[file.name]) is not None:
        found(fault.code, fault.message, len(places), fault.offset)
    if len(places) != shard.examples:
        found("shard_examples", f"{len(places)} records, expected {shard.examples}")
    if size != shard.bytes:
        found("shard_bytes", f"{size} bytes, expected {shard.bytes}")
    elif whole.sha256 != shard.sha256:
        found("shard_digest", f"sha256 {whole.sha256}, expected {shard.sha256}")


def _check_split(expected: Manifest, split: Split, findings: Findings) -> None:
    wanted = expected.splits.get(split)
    if wanted is None:
        message = (
            f"the manifest has no split {split}: records in slim's layout are for other programs; "
            "set dataset.layout to perennial and run `dvc repro`"
        )
        findings.add(Problem(code="split_examples", file=manifest.FILE, message=message))
        return
    if not wanted.examples:
        message = f"expected examples in split {split}, the manifest has none"
        findings.add(Problem(code="split_examples", file=manifest.FILE, message=message))
        return
    listed = sum(shard.examples for shard in wanted.shards)
    if listed != wanted.examples:
        message = f"split {split} has {wanted.examples} examples, its shards add up to {listed}"
        findings.add(Problem(code="split_examples", file=manifest.FILE, message=message))
    found = findings.per_class[split].tolist() if split in findings.per_class else []
    if found != wanted.per_class and not findings.problems:
        message = f"split {split} has {found} examples per class, expected {wanted.per_class}"
        findings.add(Problem(code="per_class", file=manifest.FILE, message=message))
