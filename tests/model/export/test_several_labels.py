"""The parity of exports that give any number of labels an image; test_mirror has what they answer."""

from pathlib import Path

import numpy as np
import pytest
from model.export.test_export_formats import IMAGES
from model.export.test_parity import EXAMPLES, job_of, write_export
from scipy.special import expit
from support import scoring
from support.predicted import predictions
from support.scoring import World

from perennial.base.errors import QualityError
from perennial.data.records import manifest
from perennial.model.evaluation.predictions import Predictions
from perennial.model.export import parity
from perennial.model.export.parity import Backend, FormatComparison
from perennial.model.models.model_folder import Confidence


def several(examples: int = len(IMAGES)) -> tuple[World, np.ndarray]:
    """A world of several labels an image, and the thresholds of its classes, which about half reach."""
    world = scoring.world(examples)
    thresholds = np.quantile(expit(world.logits), np.linspace(0.3, 0.8, 10)).round(3)
    found = Confidence(thresholds=thresholds.tolist())
    described = world.description.model_copy(update={"task": "multilabel", "confidence": found})
    return World(world.model, described, world.images, world.labels, world.logits), thresholds.astype("f4")


def test_the_parity_of_several_labels_is_that_of_one(tmp_path: Path) -> None:
    world, _ = several(EXAMPLES)
    scoring.write_records(tmp_path / "records", world, {"test": EXAMPLES})
    write_export(tmp_path / "export", world, tmp_path / "records")
    job = job_of(tmp_path, 1)
    scored(world, data=manifest.digest(job.records)).write(job.predictions)
    assert [each.agreement for each in parity.compare(job)] == [1, 1]


def scored(world: World, **changes: object) -> Predictions:
    """What the scored model says; labels are not compared."""
    thresholds = np.array(world.description.confidence.thresholds, np.float32)
    facts = {"model": world.description.weights_sha256, "thresholds": thresholds, **changes}
    labels = np.eye(10, dtype=np.int8)[world.labels]
    return predictions(labels, expit(world.logits), scoring.CLASSES, **facts)


def agreement(world: World, labels: np.ndarray, probabilities: np.ndarray, *, least: float = 0.0) -> float:
    """What a format that answers so agrees."""
    answer = lambda _: (labels, probabilities)  # noqa: E731
    comparison = FormatComparison(Backend("format", 0, answer, 1e-4, least), scored(world))
    comparison.add(list(zip([b""] * len(labels), world.images, strict=True)))
    return comparison.report(0).agreement


def test_a_label_may_differ_only_within_float_error_of_its_threshold() -> None:
    world, thresholds = several(EXAMPLES)
    probabilities = expit(world.logits)
    labels = (probabilities >= thresholds).astype(np.int64)
    assert agreement(world, labels, probabilities) == 1
    probabilities[0, 0] = thresholds[0] + 4e-6
    world.logits[0, 0] = np.log(probabilities[0, 0] / (1 - probabilities[0, 0]))
    for tied in (0, 1):
        labels[0, 0] = tied
        assert agreement(world, labels, probabilities) == 1
    given = labels.sum()
    row, column = np.argwhere((labels == 1) & (probabilities > thresholds + 0.01))[0]
    labels[row, column] = 0
    assert agreement(world, labels, probabilities) == pytest.approx(1 - 1 / given)
    with pytest.raises(QualityError, match=rf"gives 1 of {given} labels another value than the scored model"):
        agreement(world, labels, probabilities, least=1.0)


def test_the_labels_that_either_gives_are_compared() -> None:
    # At the threshold; just below it; another label; the same label; none.
    expected = np.array([[0.5, 0.499999, 0.25, 0.9, 0.1]], np.float32)
    thresholds = np.full(5, 0.5, np.float32)
    known = predictions(np.zeros((1, 5), np.int8), expected, tuple("abcde"), thresholds=thresholds)
    answer = lambda _: (np.array([[0, 1, 1, 1, 0]]), expected)  # noqa: E731
    comparison = FormatComparison(Backend("format", 0, answer, 1.0, 0.0), known)
    comparison.add([(b"", np.zeros((1, 1, 1), np.uint8))])
    assert comparison.report(0).agreement == 1 - 1 / 4
