"""What is told of the model's answers."""

import base64
import io

import numpy as np
import PIL.Image
from support import records

from perennial.evaluation import plots
from perennial.evaluation.predictions import Predictions
from perennial.records import manifest
from perennial.reporting import answers
from perennial.reporting.outcome import Metrics

CLASSES = ("cat", "dog", "owl")
PIXELS = [np.full((4, 4), number, np.uint8) for number in range(6)]
LABELS = np.array([0, 0, 1, 1, 2, 2])
P = np.array(
    [[0.9, 0.1, 0], [0.4, 0.6, 0], [0.7, 0.3, 0], [0.2, 0.8, 0], [0.05, 0.95, 0], [0, 0.9, 0.1]], np.float32
)


def made(folder, data=None):
    """What is read of answers to six examples, four of them wrong; their records lie in a folder."""
    shard = [records.datum(pixels, int(label)) for pixels, label in zip(PIXELS, LABELS, strict=True)]
    records.write_folder(folder, {"test": [shard[:4], shard[4:]]}, CLASSES)
    return kept(folder, manifest.digest(folder) if data is None else data)


def kept(folder, data="", labels=LABELS, probabilities=P, classes=CLASSES, bins=4):
    """What is read of answers that were written."""
    file = folder / "predictions.npz"
    Predictions(
        labels=labels, probabilities=probabilities, classes=classes, split="test", data=data, model=""
    ).write(file)
    return answers.read(file, Metrics(accuracy=0.5, loss=1.0, data=data, model=""), bins=bins)


def test_of_the_probabilities_those_of_two_classes_are_kept(tmp_path):
    found = kept(tmp_path)
    assert found.predicted.tolist() == [0, 1, 0, 1, 1, 1]
    assert found.p.tolist() == P.max(axis=1).tolist()
    assert found.p_true.tolist() == [P[row, label] for row, label in enumerate(LABELS)]
    assert {value.shape for value in vars(found).values() if isinstance(value, np.ndarray)} == {(6,)}


def test_reliability_is_that_of_the_answers_in_the_intervals_asked_for(tmp_path):
    found = kept(tmp_path, bins=5).reliability
    assert (found.examples.tolist(), np.nan_to_num(found.accuracy).tolist()) == (
        [0, 0, 0, 2, 4],
        [0, 0, 0, 0, 0.5],
    )


def test_rows_of_the_matrix_are_labels_and_columns_predictions(tmp_path):
    found = answers.matrix(kept(tmp_path))
    assert (found.counts.tolist(), found.names) == ([[1, 1, 0], [1, 1, 0], [0, 2, 0]], CLASSES)


def test_of_many_classes_those_without_mistakes_share_the_last_place(tmp_path):
    said = np.arange(plots.MOST + 1)
    said[:2] = 1, 0
    names = tuple(f"class {number}" for number in range(plots.MOST + 1))
    found = answers.matrix(
        kept(tmp_path, labels=np.arange(len(said)), probabilities=np.eye(len(said))[said], classes=names)
    )
    assert (found.names[:2], found.names[-1]) == (names[:2], "(2 others)")
    assert (found.counts[0, 1], found.counts[1, 0], found.counts[-1, -1]) == (1, 1, 2)
    assert (found.counts.sum(), np.trace(found.counts)) == (plots.MOST + 1, plots.MOST - 1)


def test_the_most_frequent_confusion_comes_first_and_right_answers_are_none(tmp_path):
    found = answers.confusions(made(tmp_path), most=2)
    assert [(one.true, one.predicted, one.examples, one.share) for one in found] == [
        ("owl", "dog", 2, 1.0),
        ("cat", "dog", 1, 0.5),
    ]


def test_the_mistake_that_the_model_was_surest_of_comes_first(tmp_path):
    found = answers.worst(made(tmp_path), tmp_path, tmp_path / "index", most=3)
    assert [(one.number, one.true, one.predicted) for one in found] == [
        (4, "owl", "dog"),
        (5, "owl", "dog"),
        (2, "dog", "cat"),
    ]
    assert [round(one.p, 4) for one in found] == [0.95, 0.9, 0.7]
    assert [round(one.p_true, 4) for one in found] == [0, 0.1, 0.3]


def test_a_mistake_has_the_image_of_its_record(tmp_path):
    for one in answers.worst(made(tmp_path), tmp_path, tmp_path / "index", most=9):
        encoded = base64.b64decode(one.image.uri.partition(",")[2])
        assert np.array(PIL.Image.open(io.BytesIO(encoded))).tolist() == PIXELS[one.number].tolist()


def test_records_that_were_made_anew_give_no_images(tmp_path):
    found = answers.worst(made(tmp_path, data="other"), tmp_path, tmp_path / "index", most=9)
    assert [one.image for one in found] == [None] * 4


def test_records_that_are_gone_give_no_images(tmp_path):
    given = made(tmp_path)
    for file in tmp_path.iterdir():
        file.unlink()
    assert [one.image for one in answers.worst(given, tmp_path, tmp_path / "index", most=9)] == [None] * 4


def test_a_record_that_cannot_be_read_takes_no_other_s_image(tmp_path):
    given = made(tmp_path)
    next(tmp_path.glob("*_00001-of-*")).unlink()
    found = answers.worst(given, tmp_path, tmp_path / "index", most=9)
    assert [(one.number, one.image is None) for one in found] == [(4, True), (5, True), (2, False), (1, False)]
