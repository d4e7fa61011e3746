"""A cross-validation: its folds one after another, none trained twice, and what all predictions say."""

import csv
import hashlib
import io
import logging
import shutil
from collections.abc import Iterator
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from perennial.base import config as configuration
from perennial.base import documents, files
from perennial.base.choices import SCORE_NAMES, SPLITS
from perennial.base.config import Config
from perennial.base.errors import ConfigError, DataError
from perennial.base.project.pins import WeightsPin
from perennial.base.stage_state import stage_inputs
from perennial.data.records import columns, manifest, splits
from perennial.data.records.splits import Groups
from perennial.data.validation import integrity
from perennial.data.validation.judged_problems import HashedRecords
from perennial.data.validation.problems import describe
from perennial.model.evaluation import average_precision, intervals, label_errors, predictions
from perennial.model.evaluation.predictions import Predictions
from perennial.project.cross_validation import fold
from perennial.project.tune import training_process

log = logging.getLogger(__name__)
FOLDER = "cross-validation"  # in paths.work, with a folder for each
PAIRS = 100_000  # of similar images to compare
DOCUMENT, TABLE = "cross-validation.json", "predictions.csv"  # in the folder of the cross-validation
LISTED = 10  # likely label errors in the terminal


class CrossValidation:
    """The folds of a pipeline's images: which images each holds out, and where it is trained."""

    def __init__(self, params: Path, count: int, *, pinned: bool) -> None:
        """Divide the images, and find the folds of an earlier call with the same data, code and parameters."""
        self.config, values = configuration.load_with_values(params)
        self.count, self._pinned, source = count, pinned, self.config.paths.records
        if self.config.train.teacher:
            raise ConfigError(
                "train.teacher has learned images that each fold holds out, so the score would be too high; "
                "nothing was started: set train.teacher: null"
            )
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


def write(done: CrossValidation) -> dict[str, Any]:
    """Write the table and the JSON document of a cross-validation whose folds are all trained."""
    paths = [done.own(number).paths for number in range(done.count)]
    found = [predictions.read(each.predictions) for each in paths]
    stopped = [{"stopped_by": documents.read_json(each.training)["stopped_by"]} for each in paths]
    whole, folder = _whole(done, found), done.records.folder
    present = [split for split in SPLITS if split in done.data.splits]
    fields = [fields for split in present for fields, _ in columns.examples(folder, done.data, split)]
    names = {number: each.filename or "" for number, each in enumerate(fields)}
    files.write_bytes(done.folder / TABLE, _table(done, whole, names))
    score, interval = scored(whole, done.count)
    document = {
        "folder": str(done.folder), "predictions": str(done.folder / TABLE), "examples": len(whole.labels),
        "metric": SCORE_NAMES[done.data.task], "score": score, "interval": interval, "level": intervals.LEVEL,
        "folds": [
            {"examples": len(each.labels), "score": scored(each, done.count)[0], **why}
            for each, why in zip(found, stopped, strict=True)
        ],
        "label_errors": label_errors.described(folder, whole, names),
    }  # fmt: skip
    files.write_json(done.folder / DOCUMENT, document)
    return document


def _whole(done: CrossValidation, found: list[Predictions]) -> Predictions:
    """The predictions of all images, in the order of the records, each by the training that did not have it."""
    order = np.argsort(np.argsort(done.held_out, kind="stable"))

    def joined(name: str) -> Any:
        shape = found[0].labels.shape[1:]  # thresholds are of a training, the others of each image
        parts = [np.broadcast_to(getattr(each, name), (len(each.labels), *shape)) for each in found]
        return np.concatenate(parts)[order]

    return Predictions(
        labels=joined("labels"),
        probabilities=np.concatenate([each.probabilities for each in found])[order],
        thresholds=joined("thresholds") if found[0].multilabel else None,
        classes=found[0].classes, split="all", split_digest="", model="",
        data=manifest.digest(done.records.folder),
    )  # fmt: skip


def scored(found: Predictions, count: int) -> tuple[float, tuple[float, float]]:
    """The score of predictions by so many trainings, and its interval: see `benchmarks/cross_validation.py`."""
    if found.multilabel:
        pair = found.labels, found.probabilities
        score = average_precision.macro(average_precision.per_class(*pair))
        return score, average_precision.interval(*pair, widened(count))
    hits, examples = int(found.right.sum()), len(found.labels)
    return hits / examples, intervals.share(hits, examples)


def widened(count: int) -> float:
    """The level at which an interval is as wide as Nadeau and Bengio (2003) make one of so many folds."""
    quantile = np.sqrt(1 + count / (count - 1)) * scipy.special.ndtri((1 + intervals.LEVEL) / 2)
    return 2 * float(scipy.special.ndtr(quantile)) - 1


def _table(done: CrossValidation, found: Predictions, names: dict[int, str]) -> bytes:
    """A row for each image, in the order of `perennial show N`, as CSV."""
    hot = [
        each if found.multilabel else np.eye(len(found.classes))[each]
        for each in (found.labels, found.predicted)
    ]
    named = [[", ".join(compress(found.classes, row)) for row in each] for each in hot]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("record", "split", "image", "fold", "label", "predicted", *found.classes))
    for number, pair in enumerate(zip(*named, strict=True)):
        split, part = SPLITS[int(done.records.splits[number])], int(done.held_out[number]) + 1
        shown = map(str, found.probabilities[number])  # the shortest text of each float32
        writer.writerow((number, split, names[number], part, *pair, *shown))
    return text.getvalue().encode("utf-8", "surrogateescape")


def lines(document: dict[str, Any]) -> Iterator[str]:
    """What people see of the document."""
    metric, examples, (low, high) = document["metric"], document["examples"], document["interval"]
    yield f"fold  images  trained on  {metric:>8}  stopped by"
    for number, each in enumerate(document["folds"], 1):
        own = each["examples"]
        yield f"{number:>4}  {own:>6}  {examples - own:>10}  {each['score']:>8.4f}  {each['stopped_by']}"
    yield f"{metric} {document['score']:.4f} ({document['level']:.0%} interval {low:.3f} to {high:.3f}) on all"
    yield f"{examples} images, each predicted by a training that had neither it nor an image like it"
    found = document["label_errors"]
    if not found["above_chance"]:
        yield "the labels were not checked: the trainings are not clearly better than equal answers"
    else:
        yield f"{found['likely']} labels to check, or models' mistakes: `perennial show RECORD --save FILE`"
        yield from map(_suspect, found["listed"][:LISTED])
    yield f"all predictions: {document['predictions']}"
    yield "no model, params.yaml, champion or decision of the gate was changed; test images were predicted,"
    yield "too, so do not choose settings by this score: `perennial tune` chooses without them"


def _suspect(each: dict[str, Any]) -> str:
    name = f"  record {each['record']}" + (f" ({each['image']})" if each["image"] else "")
    if "kind" in each:
        return f"{name}: {each['label']} is likely {each['kind']} ({each['p']:.2f})"
    p = f"{each['p_suggested']:.2f}, {each['p_label']:.2f} for its label"
    return f"{name}: labelled {each['label']}, predicted {each['suggested']} ({p})"
