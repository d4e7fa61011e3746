"""The files of a finished run, written without its stages."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from support import records

from perennial.base import documents, files
from perennial.base.config import Config
from perennial.data.images import png
from perennial.data.records import manifest
from perennial.model.evaluation import diagnostics, label_errors
from perennial.model.evaluation.predictions import Predictions
from perennial.stages.validate import validate

SIDE = 8
MODEL = "ab" * 32  # digest of its weights
SECONDS = {"download": 0.04, "convert": 2.5, "validate": 7, "train": 3725, "evaluate": 61, "export": 12}


def leave(config: Config, classes: Sequence[str], *, each: int = 6, right: float = 0.7) -> Predictions:
    """Write all files that a report reads, with about this share of correct predictions."""
    random = np.random.default_rng(0)
    labels = np.arange(each * len(classes)) % len(classes)
    data = [
        records.datum(random.integers(0, 256, (SIDE, SIDE), np.uint8), int(label))
        for label in (*labels, *labels)
    ]
    test, train = data[: len(labels)], data[len(labels) :]
    records.write_folder(config.paths.records, {"train": [train], "test": [test]}, classes)
    validate(config)
    predictions = Predictions(
        labels=labels,
        probabilities=_probabilities(labels, len(classes), right, random),
        classes=tuple(classes),
        split="test",
        data=manifest.digest(config.paths.records),
        split_digest=manifest.load(config.paths.records).split_digest("test"),
        model=MODEL,
    )
    files.write_json(config.paths.label_errors, label_errors.described(config.paths.records, predictions))
    _training(config.paths.training, config.paths.curves)
    _scores(config, predictions)
    write_versions(config.paths.work, {"python": "3.11.0", "tensorflow": "2.20.0"})
    for stage, seconds in SECONDS.items():
        files.write_json(config.paths.work / "timings" / f"{stage}.json", {"stage": stage, "seconds": seconds})
    return predictions


def change(file: Path, **values: object) -> None:
    files.write_json(file, {**documents.read_json(file), **values})


def write_versions(work: Path, versions: Mapping[str, str], weights: str = MODEL) -> None:
    """Mark a training as finished with these versions."""
    record = {"weights_sha256": weights, "versions": dict(versions)}
    files.write_json(work / "train" / "0123" / "finished", record)


def lock(folder: Path, stages: Mapping[str, Mapping[str, object]]) -> None:
    """Write a dvc.lock with these parameters of stages, and no outputs."""
    recorded = {name: {"params": {"params.yaml": dict(values)}, "outs": []} for name, values in stages.items()}
    files.write_json(folder / "dvc.lock", {"schema": "2.0", "stages": recorded})  # JSON is YAML


def _probabilities(
    labels: NDArray[np.int64], classes: int, right: float, random: np.random.Generator
) -> NDArray[np.float32]:
    """Of examples, [N, classes]."""
    logits = random.normal(size=(len(labels), classes))
    predicted = np.where(random.random(len(labels)) < right, labels, (labels + 1) % classes)
    logits[np.arange(len(labels)), predicted] += random.uniform(4, 12, len(labels))
    exponentials = np.exp(logits)
    return (exponentials / exponentials.sum(axis=1, keepdims=True)).astype(np.float32)


def _training(record: Path, curves: Path) -> None:
    """A training of 40 steps, four of them with an evaluation."""
    steps = range(1, 41)
    evaluations = [
        {"epoch": step // 10, "step": step, "accuracy": 1 - 4 / step, "loss": 9 / step, "recall_at_5": 1.0}
        for step in steps[9::10]
    ]
    known = {
        "epoch": 4, "step": 40, "stopped_by": "epochs", "kept": 40, "evaluations": evaluations,
        "weights_sha256": MODEL,
    }  # fmt: skip
    files.write_json(record, known)
    training = [f"{step},{10 / step},{10 / step},0.001" for step in steps]
    validation = [",".join(str(value) for value in evaluation.values()) for evaluation in evaluations]
    for name, header, lines in (
        ("training.csv", "step,loss,total_loss,learning_rate", training),
        ("validation.csv", "epoch,step,accuracy,loss,recall_at_5", validation),
    ):
        files.write_bytes(curves / name, "\n".join((header, *lines, "")).encode())


def _scores(config: Config, predictions: Predictions) -> None:
    paths, labels, size = config.paths, predictions.labels, len(predictions.classes)
    predicted = predictions.probabilities.argmax(axis=1)
    counts = diagnostics.confusion(labels, predicted, size)
    rows = diagnostics.matrix(counts, predictions.classes)
    correct, confidence = predicted == labels, predictions.probabilities.max(axis=1)
    calibration = diagnostics.reliability(confidence, correct, bins=config.evaluate.calibration_bins)
    accuracy = float(np.mean(correct))
    columns = (counts.diagonal(), counts.sum(axis=0), counts.sum(axis=1))
    per_class = {
        name: {"examples": int(all_), "precision": int(hits) / int(predicted) if predicted else None,
               "recall": int(hits) / int(all_), "f1": 2 * int(hits) / int(predicted + all_)}
        for name, hits, predicted, all_ in zip(predictions.classes, *columns, strict=True)
    }  # fmt: skip
    intervals = {"accuracy": {"low": accuracy - 0.01, "high": accuracy + 0.01}}
    metrics = {
        "accuracy": accuracy, "loss": 1.25, "recall_at_5": 1.0, "examples": len(labels), "per_class": per_class,
        "calibration": {"ece": calibration.ece}, "confidence_level": 0.95, "intervals": intervals,
        "data": predictions.data, "model": predictions.model,
    }  # fmt: skip
    predictions.write(paths.predictions)
    files.write_json(paths.metrics, metrics)
    files.write_bytes(paths.confusion, diagnostics.confusion_csv(labels, predicted, rows))
    files.write_bytes(paths.reliability, diagnostics.reliability_csv(calibration))
    for picture in (paths.confusion_plot, paths.reliability_plot):
        files.write_bytes(picture, png.encode(np.zeros((1, 1), np.uint8)))
    candidate = {name: metrics[name] for name in ("accuracy", "loss", "examples", "data", "model")}
    files.write_json(
        paths.decision,
        {"promote": True, "reasons": ["good", "better"], "candidate": candidate, "champion": None},
    )
