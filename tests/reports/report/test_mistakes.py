"""Confused classes and confident mistakes."""

import base64
import io

import numpy as np
import PIL.Image
from support import records

from perennial.data.records import manifest
from perennial.model.evaluation import diagnostics, predictions
from perennial.model.evaluation.predictions import Predictions
from perennial.reports.report import report_page

CLASSES = ("cat", "dog", "owl")
PIXELS = [np.full((4, 4), number, np.uint8) for number in range(6)]
LABELS = np.array([0, 0, 1, 1, 2, 2])
P = np.array(
    [[0.9, 0.1, 0], [0.4, 0.6, 0], [0.7, 0.3, 0], [0.2, 0.8, 0], [0.05, 0.95, 0], [0, 0.9, 0.1]], np.float32
)


def predicted(folder, data=None):
    """Predictions for six records in a folder, four of them wrong."""
    shard = [records.datum(pixels, int(label)) for pixels, label in zip(PIXELS, LABELS, strict=True)]
    records.write_folder(folder, {"test": [shard[:4], shard[4:]]}, CLASSES)
    data = manifest.digest(folder) if data is None else data
    file = folder / "predictions.npz"
    Predictions(
        labels=LABELS, probabilities=P, classes=CLASSES, split="test", data=data, split_digest="", model=""
    ).write(file)
    return predictions.read(file).judged()


def confident(found, folder, most=9):
    return report_page.most_confident(found, folder, folder / "index", most)


def test_the_most_frequent_confusion_comes_first_without_the_diagonal():
    counts = diagnostics.confusion(LABELS, P.argmax(axis=1), 3)
    assert [
        (one.true, one.predicted, one.examples, one.share)
        for one in report_page.most_confused(counts, CLASSES, most=2)
    ] == [("owl", "dog", 2, 1.0), ("cat", "dog", 1, 0.5)]


def test_the_most_confident_mistake_comes_first(tmp_path):
    found = confident(predicted(tmp_path), tmp_path, most=3)
    expected = [(4, "owl", "dog"), (5, "owl", "dog"), (2, "dog", "cat")]
    assert [(one.number, one.true, one.predicted) for one in found] == expected
    assert [(round(one.p, 4), round(one.p_true, 4)) for one in found] == [(0.95, 0), (0.9, 0.1), (0.7, 0.3)]


def test_a_mistake_has_the_image_of_its_record(tmp_path):
    for one in confident(predicted(tmp_path), tmp_path):
        encoded = base64.b64decode(one.image.uri.partition(",")[2])
        assert np.array(PIL.Image.open(io.BytesIO(encoded))).tolist() == PIXELS[one.number].tolist()


def test_other_and_removed_records_give_no_images(tmp_path):
    assert [one.image for one in confident(predicted(tmp_path, data="other"), tmp_path)] == [None] * 4
    found = predicted(tmp_path)
    for file in tmp_path.iterdir():
        file.unlink()
    assert [one.image for one in confident(found, tmp_path)] == [None] * 4


def test_a_missing_shard_does_not_shift_the_images_of_others(tmp_path):
    found = predicted(tmp_path)
    next(tmp_path.glob("*_00001-of-*")).unlink()
    assert [(one.number, one.image is None) for one in confident(found, tmp_path)] == [
        (4, True), (5, True), (2, False), (1, False),
    ]  # fmt: skip
