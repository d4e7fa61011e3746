"""Likely label errors: which examples, in which order, and how they are written."""

import numpy as np
import pytest
from support.predicted import predictions
from support.records import datum as record
from support.records import write_folder

from perennial.model.evaluation import label_errors

CONFIDENT, UNSURE = 0.98, 0.6
GREY = np.full((8, 8), 9, np.uint8)


def examples(labels, predicted, p, classes=3):
    """Probabilities of these predicted classes; the rest is shared by the others."""
    probabilities = np.repeat(((1 - np.array(p)) / (classes - 1))[:, None], classes, axis=1)
    probabilities[np.arange(len(labels)), np.array(predicted, np.int64)] = p
    return np.array(labels, np.int64), probabilities.astype(np.float32)


@pytest.mark.parametrize(
    ("labels", "predicted", "p", "found"),
    [
        ([0, 0, 1, 1], [0, 0, 1, 1], [0.9] * 4, []),
        ([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 1], [0.9, 0.9, CONFIDENT, 0.9, 0.9, 0.9], [2]),
        ([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 1], [0.9, 0.9, UNSURE, 0.9, 0.9, 0.9], []),
        ([0, 0, 0, 1, 1, 1], [0, 1, 1, 1, 1, 0], [0.9, 0.95, CONFIDENT, 0.7, 0.7, 0.9], [2, 1, 5]),
        ([0, 0, 0], [0, 0, 2], [0.9, 0.9, 1.0], []),  # no example of class 2 says what confident means
        ([0, 0, 0, 1, 1], [1, 1, 0, 1, 1], [0.9, 0.9, 0.9, 0.8, 0.8], [0, 1]),  # ties by number
        ([], [], [], []),
    ],
)
def test_examples_whose_label_a_confident_model_contradicts_come_strongest_first(labels, predicted, p, found):
    assert [number for number, _ in label_errors.find(*examples(labels, predicted, p))] == found


@pytest.mark.parametrize(("right", "above"), [(500, False), (530, False), (560, True)])
def test_a_model_at_the_level_of_chance_lists_nothing(tmp_path, right, above):
    write_folder(tmp_path, {"test": [[record(GREY, number % 2) for number in range(1000)]]}, ["cat", "dog"])
    true = np.arange(1000) % 2
    wrong = np.random.default_rng(0).permutation(1000)[right:]
    predicted = true.copy()
    predicted[wrong] = 1 - true[wrong]
    scored = predictions(*examples(true, predicted, np.linspace(0.5, 0.99, 1000), classes=2))
    found = label_errors.described(tmp_path, scored)
    assert (found["above_chance"], found["likely"] > 0, bool(found["listed"])) == (above, above, above)


def test_the_list_names_record_label_and_suggestion_of_each(tmp_path):
    shards = [[record(GREY, label) for label in part] for part in ([0] * 9, [1] * 9)]
    write_folder(tmp_path, {"test": shards}, ["cat", "dog"])
    predicted, p = [0] * 8 + [1] + [1] * 8 + [0], [0.9] * 8 + [0.95] + [0.9] * 8 + [0.99]
    scored = predictions(*examples([0] * 9 + [1] * 9, predicted, p, 2))
    found = label_errors.described(tmp_path, scored)
    facts = {name: found[name] for name in ("split", "examples", "likely", "data", "model")}
    assert facts == {"split": "test", "examples": 18, "likely": 2, "data": "d", "model": "m"}
    assert found["listed"][0] == {
        "record": 17, "image": None, "label": "dog", "suggested": "cat", "p_label": 0.01, "p_suggested": 0.99,
    }  # fmt: skip
    assert [each["record"] for each in found["listed"]] == [17, 8]


def test_a_missing_and_a_superfluous_label_are_told_apart(tmp_path):
    labels = np.tile(np.array([[1, 0], [0, 1]], np.int8), (20, 1))
    probabilities = np.where(labels, 0.9, 0.05).astype(np.float32)
    probabilities[2] = (0.97, 0.93)  # record 2 has cat alone
    probabilities[5] = (0.02, 0.01)  # record 5 has dog
    write_folder(tmp_path, {"test": [[record(GREY, 0) for _ in labels]]}, ["cat", "dog"])
    scored = predictions(labels, probabilities, thresholds=np.full(2, 0.5, np.float32))
    found = label_errors.described(tmp_path, scored)
    assert (found["likely"], found["missing"], found["superfluous"]) == (2, 1, 1)
    assert found["listed"] == [
        {"record": 5, "image": None, "kind": "superfluous", "label": "dog", "p": 0.01},
        {"record": 2, "image": None, "kind": "missing", "label": "dog", "p": 0.93},
    ]
