"""A cross-validation: its folds one after another; with the same data and settings, none is trained twice."""

import hashlib
import logging
import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perennial.base import config as configuration
from perennial.base import files
from perennial.base.choices import SPLITS
from perennial.base.config import Config
from perennial.base.errors import ConfigError, DataError
from perennial.base.project.pins import WeightsPin
from perennial.base.stage_state import stage_inputs
from perennial.data.records import columns, manifest, splits
from perennial.data.records.splits import Groups
from perennial.data.validation import integrity
from perennial.data.validation.judged_problems import HashedRecords
from perennial.data.validation.problems import describe
from perennial.project.cross_validation import fold
from perennial.project.tune import training_process

log = logging.getLogger(__name__)
FOLDER = "cross-validation"  # in paths.work, with a folder for each
PAIRS = 100_000  # of similar images to compare


class CrossValidation:
    """The folds of a pipeline's images: which images each holds out, and where it is trained."""

    def __init__(self, params: Path, count: int, *, pinned: bool) -> None:
        """Divide the images, and find the folds of an earlier call with the same data, code and parameters."""
        self.config, values = configuration.load_with_values(params)
        self.count, self._pinned, source = count, pinned, self.config.paths.records
        findings = integrity.check(source, fingerprints=self.config.paths.work, where=self.config.compute)
        if findings.problems or findings.images is None:
            raise DataError(describe(source, findings.problems, findings.codes, "Nothing was started."))
        self.data, self.records = manifest.load(source), HashedRecords(source, findings, findings.images)
        labels, several = self.records.labels, self.data.label_columns
        self._labels = np.unpackbits(labels, axis=1, count=several) if several else labels.astype(np.int64)
        groups = self._grouped()
        of_groups = fold.assigned(groups, self.data.classes, count, self.config.dataset.seed)
        self.held_out: NDArray[np.int64] = of_groups[groups.of]  # the fold that predicts each image, [N]
        if empty := set(range(count)) - set(of_groups.tolist()):
            raise ConfigError(
                f"fold {min(empty) + 1} of {count} would have no image: {len(of_groups)} groups of images are "
                "too few; nothing was started: give a smaller --folds"
            )
        self._parts = [self._divided(number, groups, of_groups) for number in range(count)]
        divided = b"".join(images.tobytes() for parts in self._parts for images in parts.values())
        noted = {stage: stage_inputs.note(stage, params, values).document() for stage in ("train", "evaluate")}
        facts = {
            **noted, "data": manifest.digest(source), "weights": WeightsPin.read().model_dump(mode="json"),
            "folds": hashlib.sha256(divided).hexdigest(),
        }  # fmt: skip
        self.folder = self.config.paths.work / FOLDER / hashlib.sha256(files.json_bytes(facts)).hexdigest()[:12]

    def own(self, number: int) -> Config:
        """The parameters of a fold, counted from 0."""
        return fold.own(self.config, self.folder / f"fold-{number + 1}")

    def train(self) -> None:
        """Train the folds that are not done yet."""
        for number, parts in enumerate(self._parts):
            own, name = self.own(number), f"fold {number + 1} of {self.count}"
            if own.paths.predictions.exists():
                log.info("%s was done before", name)
                continue
            log.info("%s: %s", name, ", ".join(f"{split} {len(images)}" for split, images in parts.items()))
            fold.write_records(own.paths.records, self.config.paths, self.records, self._labels, parts)
            done = training_process.run(fold.MODULE, (own, self._pinned), own.paths.predictions.parent)
            if done and done.code:
                code, text = training_process.failure(done)
                kept = f"what is done is kept in {self.folder}: remove the cause, and run this again"
                raise training_process.error_of(code, f"{name}: {text}; {kept}")
            for folder in (own.paths.records, own.paths.work):
                shutil.rmtree(folder, ignore_errors=True)

    def _grouped(self) -> Groups:
        """The images with those that validation would call equal or alike, or of one group of the table."""
        records, bits = self.records, self.config.validation.near_duplicate_bits
        _, same = np.unique(records.images.column("pixels"), axis=0, return_inverse=True)
        pairs = fold.equal_pairs(same.tolist())
        table = self.config.dataset.table
        if table is not None and table.group_column is not None:
            found = [columns.read(records.folder, split) for split in SPLITS if split in self.data.splits]
            column = table.group_column
            pairs += fold.equal_pairs([value for part in found if part for value in part.values(column)])
        alike, complete = ([], True) if bits is None else records.alike(np.arange(len(same)), bits, PAIRS)
        if not complete:
            log.warning("too many images look alike to compare all; some may be in two folds")
        digests = [bytes(each).hex() for each in records.images.column("sha256")]
        return fold.grouped(digests, self._labels, len(self.data.classes), [*pairs, *alike])

    def _divided(self, number: int, groups: Groups, of_groups: NDArray[np.int64]) -> fold.Parts:
        """The images of each split of a fold; as large a part of the rest validates as in the project."""
        counts = {split: part.examples for split, part in self.data.splits.items()}
        share = counts.get("validation", 0) / max(sum(counts.values()) - counts.get("test", 0), 1)
        salt = f"validation of fold {number} {self.config.dataset.seed}"
        rest = np.flatnonzero(of_groups != number)
        validates = splits.held_out_groups(groups, rest, fraction=share, salt=salt)
        tests, stops = self.held_out == number, np.isin(groups.of, validates)
        train = np.flatnonzero(~tests & ~stops)
        return {"train": train, "validation": np.flatnonzero(stops), "test": np.flatnonzero(tests)}
