"""What is a matter of judgement in sound records: duplicates, balance, drift. `validate.severity` decides."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perennial.config.sections import ValidateConfig
from perennial.records import drift, duplicates, manifest
from perennial.records.checks import Findings, Seen
from perennial.records.manifest import SPLITS, Manifest
from perennial.records.problems import Problem
from perennial.validation.baseline import Version

LISTED = 200  # problems of a code that are listed; all are counted
ALIKE_PIXELS = 32 * 32  # MNIST's 28x28 digits share hashes by the thousand
NEAR_PAIRS = 10_000  # pairs that are looked for


class Judgement:
    """Adds to the findings what is wrong by the measure of the configuration; keeps the measurements."""

    def __init__(self, config: ValidateConfig, data: Manifest, findings: Findings) -> None:
        self.config, self.data, self.findings = config, data, findings
        self.duplicates: dict[str, Any] = {}
        self.drift: dict[str, Any] | None = None

    def add(
        self, code: str, file: str, message: str, record: int | None = None, offset: int | None = None
    ) -> None:
        """Adds a problem with the severity that the configuration gives it."""
        severity = getattr(self.config.severity, code)
        if severity == "ignore":
            return
        self.findings.codes[code] += 1
        if self.findings.codes[code] <= LISTED:
            self.findings.problems.append(
                Problem(code=code, severity=severity, file=file, record=record, offset=offset, message=message)
            )

    def balance(self) -> None:
        """Classes that are missing in a split, and the ratio of the largest to the smallest in train."""
        for split, part in self.data.splits.items():
            for name, examples in zip(self.data.classes, part.per_class, strict=True):
                if not examples:
                    self.add("class_missing", manifest.FILE, f"class {name} has no example in {split}")
        if "train" not in self.data.splits:
            return
        counts = dict(zip(self.data.classes, self.data.splits["train"].per_class, strict=True))
        small, large = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
        if counts[small] and counts[large] / counts[small] > self.config.max_class_ratio:
            message = (
                f"class {large} has {counts[large]} examples in train, class {small} {counts[small]}; "
                f"expected at most {self.config.max_class_ratio:g} times as many"
            )
            self.add("class_imbalance", manifest.FILE, message)

    def twins(self) -> None:
        """Equal images within and across splits, and similar ones across."""
        if not self.findings.seen:
            return
        places = _Places(self.findings)
        found = duplicates.exact(places.digests, places.splits)
        for anchor, other in _pairs(found.across):
            if places.splits[anchor] != places.splits[other]:
                self._twin("duplicate_across_splits", "the same image as", places, anchor, other)
        for anchor, other in _pairs(found.within):
            self._twin("duplicate_in_split", "the same image as", places, anchor, other)
        self.duplicates = {"groups_across_splits": len(found.across), "groups_in_a_split": len(found.within)}
        if self.config.near_duplicate_bits is None or not len(places.hashes) or self._are_tiny():
            return
        near = duplicates.near(
            places.hashes,
            places.splits,
            distance=self.config.near_duplicate_bits,
            most=NEAR_PAIRS,
            digests=places.digests,
        )
        for anchor, other in near.pairs.tolist():
            self._twin("near_duplicate", "looks like", places, anchor, other)
        self.duplicates |= {"near_pairs": len(near.pairs), "near_pairs_are_all": near.complete}

    def _are_tiny(self) -> bool:
        """Whether the images are so small that many different ones have the same perceptual hash."""
        sizes = (size for part in self.findings.statistics.values() for size in part.sizes)
        return all(height * width < ALIKE_PIXELS for height, width, _ in sizes)

    def _twin(self, code: str, how: str, places: "_Places", anchor: int, other: int) -> None:
        twin, split = places.place(anchor), SPLITS[int(places.splits[anchor])]
        file, record, offset = places.place(other)
        self.add(code, file, f"{how} record {twin[1]} of {twin[0]} ({split})", record, offset)

    def drifted(self, now: Version, before: Version | None) -> None:
        """The change since the version before."""
        if before is None:
            return
        labels = drift.labels(now.per_class, before.per_class)
        self.drift = {"since": before.manifest, "labels": {"distance": labels.distance, "where": labels.where}}
        if labels.distance > self.config.max_label_drift:
            message = (
                f"the share of class {labels.where} changed by {labels.distance:.3f} "
                f"since the version with manifest {before.manifest[:12]}"
            )
            self.add(
                "drift_labels", manifest.FILE, f"{message}; expected at most {self.config.max_label_drift:g}"
            )
        if not sum(now.brightness) or not sum(before.brightness):
            return
        brightness = drift.brightness(now.brightness, before.brightness)
        self.drift["brightness"] = {"distance": brightness.distance, "where": brightness.where}
        if brightness.distance > self.config.max_brightness_drift:
            message = (
                f"the brightness of {brightness.distance:.3f} of the images changed "
                f"since the version with manifest {before.manifest[:12]}"
            )
            expected = f"expected at most {self.config.max_brightness_drift:g}"
            self.add("drift_brightness", manifest.FILE, f"{message}; {expected}")


class _Places:
    """All records with a fingerprint, numbered through."""

    def __init__(self, findings: Findings) -> None:
        self.seen: Sequence[Seen] = findings.seen
        self.places = findings.places
        self.starts = np.cumsum([0, *(len(part.numbers) for part in self.seen)])
        self.digests: NDArray[np.uint64] = _joined([part.fingerprints.digests for part in self.seen], (0, 2))
        self.hashes: NDArray[np.uint64] = _joined([part.fingerprints.hashes for part in self.seen], (0,))
        codes = np.array([SPLITS.index(part.split) for part in self.seen], np.uint8)
        self.splits = np.repeat(codes, np.diff(self.starts))

    def place(self, number: int) -> tuple[str, int, int]:
        """The file of a record, its number there and its offset."""
        index = int(np.searchsorted(self.starts, number, side="right")) - 1
        part = self.seen[index]
        record = int(part.numbers[number - self.starts[index]])
        return part.file, record, int(self.places[part.file][record, 0])


def _joined(arrays: list[NDArray[np.uint64]], empty: tuple[int, ...]) -> NDArray[np.uint64]:
    return np.concatenate(arrays) if arrays else np.zeros(empty, np.uint64)


def _pairs(groups: duplicates.Groups) -> Iterator[tuple[int, int]]:
    """The first record of each group with each other."""
    for group in groups:
        first, *others = group.tolist()
        yield from ((first, other) for other in others)
