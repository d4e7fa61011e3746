"""What a cross-validation found: a score with an interval, likely label errors, all predictions."""

import csv
import io
from collections.abc import Iterator
from itertools import compress
from typing import Any

import numpy as np
import scipy

from perennial.base import documents, files
from perennial.base.choices import SCORE_NAMES, SPLITS
from perennial.data.records import columns, manifest
from perennial.model.evaluation import average_precision, intervals, label_errors, predictions
from perennial.model.evaluation.predictions import Predictions
from perennial.project.cross_validation.cross_validation import CrossValidation

DOCUMENT, TABLE = "cross-validation.json", "predictions.csv"  # in the folder of the cross-validation
LISTED = 10  # likely label errors in the terminal


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
        split, fold = SPLITS[int(done.records.splits[number])], int(done.held_out[number]) + 1
        shown = map(str, found.probabilities[number])  # the shortest text of each float32
        writer.writerow((number, split, names[number], fold, *pair, *shown))
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
