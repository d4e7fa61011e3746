"""The scores of an export by code that shares nothing with what it checks."""

from pathlib import Path

import numpy as np
import tensorflow as tf
from sklearn.metrics import accuracy_score, confusion_matrix, log_loss, top_k_accuracy_score

KEYS = {
    "image/encoded": tf.io.FixedLenFeature((), tf.string),
    "image/class/label": tf.io.FixedLenFeature((), tf.int64),
}


def scores(folder: Path, split: str) -> dict[str, object]:
    """What the export in a folder says of the records of a split there, and what that is worth."""
    classify = tf.saved_model.load(str(folder / "models" / "export")).signatures["classify_bytes"]
    shards = sorted(str(file) for file in (folder / "data" / "records").glob(f"*_{split}_*.tfrecord"))
    labels, predicted, probabilities = [], [], []
    for records in tf.data.TFRecordDataset(shards).batch(100):
        features = tf.io.parse_example(records, KEYS)
        answers = classify(image=features["image/encoded"])
        labels.append(features["image/class/label"].numpy())
        predicted.append(answers["classes"].numpy())
        probabilities.append(answers["probabilities"].numpy())
    actual, said, p = map(np.concatenate, (labels, predicted, probabilities))
    classes = range(p.shape[1])
    exact = p.astype(np.float64)
    return {
        "examples": len(actual),
        "accuracy": accuracy_score(actual, said),
        "top_5": top_k_accuracy_score(actual, p, k=5, labels=classes),
        "loss": log_loss(actual, exact / exact.sum(axis=1, keepdims=True), labels=classes),
        "confusion": confusion_matrix(actual, said, labels=classes).tolist(),
    }
