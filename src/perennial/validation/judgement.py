"""What is a matter of judgement in sound records: duplicates, balance, drift. `validate.severity` decides."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perennial.config.sections import ValidateConfig
from perennial.records import access, drift, duplicates, manifest
from perennial.records.checks import Findings, Seen
from perennial.records.manifest import SPLITS, Manifest
from perennial.records.problems import Problem, image_name
from perennial.validation.baseline import Version

LISTED = 200  # problems of a code that are listed; all are counted
NEAR_PAIRS = 10_000  # pairs that are looked for


class Judgement:
    """Adds to the findings what is wrong by the measure of the configuration; keeps the measurements."""

    def __init__(self, config: ValidateConfig, folder: Path, data: Manifest, findings: Findings) -> None:
        self.config, self.folder, self.data, self.findings = config, folder, data, findings
        self.duplicates: dict[str, Any] = {}
        self.drift: dict[str, Any] | None = None

    def add(self, code: str, message: str) -> None:
        """Adds a problem of the data set as a whole, with the severity that the configuration gives it."""
        if self._counted(code):
            self._list(code, manifest.FILE, message)

    def _counted(self, code: str) -> bool:
        """Counts a problem, unless its code is ignored; whether it is also to be listed."""
        if self._severity(code) == "ignore":
            return False
        self.findings.codes[code] += 1
        return self.findings.codes[code] <= LISTED

    def _list(
        self, code: str, file: str, message: str, record: int | None = None, offset: int | None = None
    ) -> None:
        severity = self._severity(code)
        self.findings.problems.append(
            Problem(code=code, severity=severity, file=file, record=record, offset=offset, message=message)
        )

    def _severity(self, code: str) -> str:
        severity: str = getattr(self.config.severity, code)
        return severity

    def balance(self) -> None:
        """Classes that are missing in a split, and the ratio of the largest to the smallest in train."""
        for split, part in self.data.splits.items():
            for name, examples in zip(self.data.classes, part.per_class, strict=True):
                if not examples:
                    self.add("class_missing", f"class {name} has no example in {split}")
        if "train" not in self.data.splits:
            return
        counts = dict(zip(self.data.classes, self.data.splits["train"].per_class, strict=True))
        small, large = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
        if counts[small] and counts[large] / counts[small] > self.config.max_class_ratio:
            message = (
                f"class {large} has {counts[large]} examples in train, class {small} {counts[small]}; "
                f"expected at most {self.config.max_class_ratio:g} times as many"
            )
            self.add("class_imbalance", message)

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
        if self.config.near_duplicate_bits is None or not len(places.hashes):
            return
        compared = np.flatnonzero(~places.tiny)
        near = duplicates.near(
            places.hashes[compared],
            places.splits[compared],
            distance=self.config.near_duplicate_bits,
            most=NEAR_PAIRS,
            digests=places.digests[compared],
        )
        for anchor, other in compared[near.pairs].tolist():
            self._twin("near_duplicate", "looks like", places, anchor, other)
        self.duplicates |= {
            "near_pairs": len(near.pairs),
            "near_pairs_are_all": near.complete,
            "tiny_images_not_compared": len(places.tiny) - len(compared),
        }

    def _twin(self, code: str, how: str, places: "_Places", anchor: int, other: int) -> None:
        if not self._counted(code):
            return
        twin, split = places.place(anchor), SPLITS[int(places.splits[anchor])]
        place = places.place(other)
        names = [self._name(place), self._name(twin)]
        images = f"; images {names[0]} and {names[1]}" if all(names) else ""
        message = f"{how} record {twin.record} of {twin.file} ({split}){images}"
        self._list(code, place.file, message, place.record, place.offset)

    def _name(self, place: "_Place") -> str | None:
        return image_name(access.data(self.folder / place.file, place.offset, place.length))

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
            self.add("drift_labels", f"{message}; expected at most {self.config.max_label_drift:g}")
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
            self.add("drift_brightness", f"{message}; {expected}")


class _Place(NamedTuple):
    """Where a record stands."""

    file: str
    record: int  # within the file
    offset: int
    length: int  # of its data, in bytes


class _Places:
    """All records with a fingerprint, numbered through."""

    def __init__(self, findings: Findings) -> None:
        self.seen: Sequence[Seen] = findings.seen
        self.places = findings.places
        self.starts = np.cumsum([0, *(len(part.numbers) for part in self.seen)])
        self.digests: NDArray[np.uint64] = _joined([part.fingerprints.digests for part in self.seen], (0, 2))
        self.hashes: NDArray[np.uint64] = _joined([part.fingerprints.hashes for part in self.seen], (0,))
        self.tiny: NDArray[np.bool_] = np.concatenate([part.tiny for part in self.seen])
        codes = np.array([SPLITS.index(part.split) for part in self.seen], np.uint8)
        self.splits = np.repeat(codes, np.diff(self.starts))

    def place(self, number: int) -> _Place:
        """Where the record with this number stands."""
        index = int(np.searchsorted(self.starts, number, side="right")) - 1
        part = self.seen[index]
        record = int(part.numbers[number - self.starts[index]])
        return _Place(part.file, record, *map(int, self.places[part.file][record]))


def _joined(arrays: list[NDArray[np.uint64]], empty: tuple[int, ...]) -> NDArray[np.uint64]:
    return np.concatenate(arrays) if arrays else np.zeros(empty, np.uint64)


def _pairs(groups: duplicates.Groups) -> Iterator[tuple[int, int]]:
    """The first record of each group with each other."""
    for group in groups:
        first, *others = group.tolist()
        yield from ((first, other) for other in others)
