"""Problems of valid records that `validate.severity` judges: duplicates, balance and drift."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perennial.base.choices import SPLITS
from perennial.base.config.data import ValidateConfig
from perennial.data.records import manifest, random_access
from perennial.data.records.manifest import Manifest
from perennial.data.tfrecord import example
from perennial.data.validation import drift, duplicates
from perennial.data.validation.image_index import Collected
from perennial.data.validation.integrity import Findings
from perennial.data.validation.problems import Place, Problem, image_name

BACKGROUND = "background"
LISTED = 200  # maximum problems listed per code; all are counted
NEAR_PAIRS = 4_000  # maximum pairs to find by hash and then compare


class Policy:
    """Adds the problems that `validate.severity` does not ignore to the findings; keeps the measurements."""

    def __init__(self, config: ValidateConfig, folder: Path, data: Manifest, findings: Findings) -> None:
        self.config, self.folder, self.data, self.findings = config, folder, data, findings
        self.duplicates: dict[str, Any] = {}
        self.drift: dict[str, Any] | None = None

    def _counted(self, code: str) -> bool:
        """Count a problem unless its code is ignored; returns whether to list it too."""
        if getattr(self.config.severity, code) == "ignore":
            return False
        self.findings.codes[code] += 1
        return self.findings.codes[code] <= LISTED

    def _list(self, code: str, message: str, file: str = manifest.FILE, **place: Any) -> None:
        severity: str = getattr(self.config.severity, code)
        problem = Problem(code=code, severity=severity, file=file, message=message, **place)
        self.findings.problems.append(problem)

    def check_balance(self) -> None:
        """Check for classes without examples in a split, and the ratio of class sizes in train."""
        # A background that no split has an example of, as in ImageNet's labels, is missing nowhere.
        empty = not any(part.per_class[0] for part in self.data.splits.values())
        first = int(self.data.classes[0] == BACKGROUND and empty and len(self.data.classes) > 2)
        for split, part in self.data.splits.items():
            if split == "validation" and not self.data.validates:
                continue
            for name, examples in list(zip(self.data.classes, part.per_class, strict=True))[first:]:
                if not examples and self._counted("class_missing"):
                    self._list("class_missing", f"class {name} has no example in {split}")
                if self.data.label_columns and examples == part.examples and self._counted("class_missing"):
                    self._list(
                        "class_missing", f"every example in {split} has the label {name}, none is without"
                    )
        if "train" not in self.data.splits:
            return
        per_class = zip(self.data.classes, self.data.splits["train"].per_class, strict=True)
        counts = dict(list(per_class)[first:])
        small, large = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
        most = self.config.max_class_ratio
        if counts[small] and counts[large] / counts[small] > most and self._counted("class_imbalance"):
            found = f"class {large} has {counts[large]} examples in train, class {small} {counts[small]}"
            self._list("class_imbalance", f"{found}; expected at most {most:g} times as many")

    def check_duplicates(self) -> None:
        """Check for equal images within and across splits, and similar ones across splits."""
        if self.findings.images is None or not self.findings.images.count:
            return
        images, hashed = self.findings.images, HashedRecords(self.folder, self.findings, self.findings.images)
        found = duplicates.exact(images.column("pixels"), hashed.splits)
        for code, groups in (("duplicate_across_splits", found.across), ("duplicate_in_split", found.within)):
            for first, *others in (group.tolist() for group in groups):
                for other in others:
                    self._same(code, hashed, first, other)
        self.duplicates = {"groups_across_splits": len(found.across), "groups_in_a_split": len(found.within)}
        if self.config.near_duplicate_bits is None or self.config.decode != "all":
            return
        pairs, complete = hashed.alike(hashed.splits, self.config.near_duplicate_bits, NEAR_PAIRS)
        for first, other in pairs:
            self._duplicate("near_duplicate", "looks like", hashed, first, other)
        self.duplicates |= {
            "near_pairs": len(pairs),
            "near_pairs_are_all": complete,
            "tiny_images_not_compared": int(images.column("tiny").sum()),
        }

    def _same(self, code: str, hashed: "HashedRecords", first: int, other: int) -> None:
        """Report two equal images: by their labels if these differ, and by their splits."""
        one, another = (self._named(hashed.labels[number]) for number in (first, other))
        if one != another:
            how = f"labelled {another!r}, but the same image is labelled {one!r} in"
            self._duplicate("label_conflict", how, hashed, first, other)
            if self.config.severity.label_conflict == "error":  # which stops the run anyway
                return
        if code == "duplicate_in_split" or hashed.splits[first] != hashed.splits[other]:
            self._duplicate(code, "the same image as", hashed, first, other)

    def _named(self, label: Any) -> str:
        """The class of a record, or the names of its labels."""
        if not self.data.label_columns:
            return str(self.data.classes[label])
        chosen = np.flatnonzero(np.unpackbits(label, count=self.data.label_columns))
        return ", ".join(self.data.classes[each] for each in chosen) or "no label"

    def _duplicate(self, code: str, how: str, hashed: "HashedRecords", first: int, other: int) -> None:
        if not self._counted(code):
            return
        names = [image_name(hashed.data(number)) for number in (other, first)]
        images = f"; images {names[0]} and {names[1]}" if all(names) else ""
        (file, record), (first_file, first_record) = map(hashed.place, (other, first))
        split = SPLITS[int(hashed.splits[first])]
        message = f"{how} record {first_record} of {first_file} ({split}){images}"
        like = Place(first_file, first_record)
        offset = int(self.findings.spans[file][record, 0])
        self._list(code, message, file, record=record, offset=offset, like=like)

    def check_drift(self, now: drift.DataStatistics, before: drift.DataStatistics | None) -> None:
        """Check the change since the previous version."""
        if before is None:
            return
        since = f"since the version with manifest {before.manifest[:12]}; expected at most"
        labels = drift.labels(now.per_class, before.per_class, (now.examples, before.examples))
        self.drift = {"since": before.manifest, "labels": labels._asdict()}
        most = self.config.max_label_drift
        if labels.distance > most and self._counted("drift_labels"):
            message = f"the share of class {labels.where} changed by {labels.distance:.3f} {since} {most:g}"
            self._list("drift_labels", message)
        if not sum(now.brightness) or not sum(before.brightness):
            return
        brightness = drift.brightness(now.brightness, before.brightness)
        self.drift["brightness"] = brightness._asdict()
        most = self.config.max_brightness_drift
        if brightness.distance > most and self._counted("drift_brightness"):
            message = f"the brightness of {brightness.distance:.3f} of the images changed {since} {most:g}"
            self._list("drift_brightness", message)


class HashedRecords:
    """All records, numbered consecutively; there are no invalid ones."""

    def __init__(self, folder: Path, findings: Findings, images: Collected) -> None:
        self.folder, self.spans, self.images = folder, findings.spans, images
        self.files = list(findings.spans)
        self.starts = np.cumsum([0, *map(len, findings.spans.values())])
        self.labels, self.splits = images.labels(), images.column("split")

    def place(self, number: int) -> tuple[str, int]:
        """The file of a record, and its number in the file."""
        index = int(np.searchsorted(self.starts, number, side="right")) - 1
        return self.files[index], number - int(self.starts[index])

    def data(self, number: int) -> bytes:
        """The data of a record."""
        file, record = self.place(number)
        return random_access.data(self.folder / file, *self.spans[file][record].tolist())

    def alike(self, splits: NDArray[Any], bits: int, most: int) -> tuple[list[tuple[int, int]], bool]:
        """Up to `most` pairs of records of different splits [N] that look alike, and whether these are all."""
        compared = np.flatnonzero(self.images.column("tiny") == 0)
        hashes, digests = (self.images.column(name)[compared] for name in ("hash", "pixels"))
        found = duplicates.near(hashes, splits[compared], distance=bits, most=most, digests=digests)
        small = cache(lambda number: duplicates.small_version(example.parse(self.data(number))[1]))
        pairs = compared[found.pairs].tolist()
        return [pair for pair in pairs if duplicates.are_alike(*map(small, pair))], found.complete
