"""What people see of a cross-validation."""

from pathlib import Path

import numpy as np
import pytest

from perennial.model.evaluation import label_errors
from perennial.model.evaluation.predictions import Predictions
from perennial.project.cross_validation import cross_validation

IMAGES = 200
UNCHECKED = "the labels were not checked: the trainings are not clearly better than equal answers"


def said(right, several):
    """The lines of a cross-validation whose models are right on so many images; each image has one class."""
    hits = np.random.default_rng(0).permutation(IMAGES) < right
    true = np.arange(IMAGES) % 2
    predicted = np.eye(2)[np.where(hits, true, 1 - true)]
    sure = np.linspace(0.6, 0.99, IMAGES)[:, None]
    found = Predictions(
        labels=np.eye(2, dtype=np.int8)[true] if several else true,
        probabilities=np.where(predicted, sure, 1 - sure).astype(np.float32),
        thresholds=np.full((IMAGES, 2), 0.5, np.float32) if several else None,
        classes=("cat", "dog"), split="all", split_digest="", model="", data="",
    )  # fmt: skip
    names = {number: f"{number}.png" for number in range(IMAGES)}
    score, interval = cross_validation.scored(found, 5)
    document = {
        "metric": "accuracy", "examples": IMAGES, "score": score, "interval": interval, "level": 0.95,
        "folds": [], "predictions": "predictions.csv",
        "label_errors": label_errors.described(Path("unread"), found, names),
    }  # fmt: skip
    return list(cross_validation.lines(document))


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(("right", "checked"), [(100, False), (110, False), (160, True)])
def test_labels_are_named_only_by_models_clearly_better_than_equal_answers(right, checked, several):
    lines = said(right, several)
    assert (UNCHECKED in lines) is not checked
    assert any("labels to check, or models' mistakes" in line for line in lines) is checked
    assert any(line.startswith("  record ") for line in lines) is checked
