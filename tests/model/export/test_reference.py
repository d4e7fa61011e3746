"""The reference of an export, and how often windows without drift are far from it."""

import base64
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from perennial.base import files
from perennial.base.errors import DataError
from perennial.data.images import BRIGHTNESS_BINS
from perennial.model.export import reference
from perennial.model.export.reference import FEATURES, Reference
from perennial.model.export_layout import REFERENCE


def of(features: np.ndarray) -> Reference:
    """A reference of features [N, FEATURES]."""
    return Reference(
        weights_sha256="w", images=len(features), layer="dense", width=9, bandwidth=1.0,
        features=reference.packed(features), classes={"cat": len(features)},
        brightness=[len(features)] + [0] * (BRIGHTNESS_BINS - 1),
    )  # fmt: skip


def drawn(random: np.random.Generator, images: int, *, classes: int = 1, shift: float = 0.0) -> np.ndarray:
    """Features of images whose penultimate values are normal around the center of their class."""
    fixed = np.random.default_rng(1)
    weights, offsets = fixed.normal(size=(4, FEATURES)) / 3, fixed.uniform(0, 2 * np.pi, FEATURES)
    centers = 3 * fixed.normal(size=(classes, 4)) * (classes > 1)
    values = centers[random.integers(classes, size=images)] + random.normal(size=(images, 4)) + shift
    return np.sqrt(2 / FEATURES) * np.cos(values @ weights + offsets)


@pytest.mark.fast_rows("50-10")
@pytest.mark.parametrize(("images", "classes"), [(50, 2), (50, 10), (300, 50)])
def test_windows_without_drift_are_beyond_the_threshold_as_often_as_the_level_says(
    monkeypatch: pytest.MonkeyPatch, images: int, classes: int
) -> None:
    monkeypatch.setattr(reference, "PERMUTATIONS", 99)
    random, beyond = np.random.default_rng(0), list[bool]()
    for _ in range(30):
        before, window = drawn(random, images, classes=classes), drawn(random, 60, classes=classes)
        found = reference.distance(window, before, 0.1)
        beyond.append(found.squared > found.threshold)
        assert beyond[-1] is (found.p_value <= 0.1)
    assert 0 < np.mean(beyond) < 0.25


@pytest.mark.parametrize(("window", "before"), [(1, 1), (1, 500), (500, 1), (3, 2), (1000, 2000)])
def test_a_window_and_a_reference_of_any_size_are_compared(window: int, before: int) -> None:
    random = np.random.default_rng(0)
    found = reference.distance(drawn(random, window), drawn(random, before), 0.001)
    assert 0.001 < found.p_value <= 1


def test_equal_images_have_not_drifted() -> None:
    same = np.full((100, FEATURES), 0.05)
    assert reference.distance(same[:40], same, 0.001) == (0.0, 0.0, 1.0)


def test_a_window_that_moved_is_beyond_the_threshold() -> None:
    random = np.random.default_rng(0)
    found = reference.distance(drawn(random, 200, shift=0.7), drawn(random, 1000), 0.001)
    assert found.squared > found.threshold
    assert found.p_value == 1 / 10_000  # the least that so many permutations can say


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("AAAA", "expected 256 numbers an image"),
        ("\u00e4", "ASCII"),
        (base64.b64encode(np.full(256, np.inf, "<f2").tobytes()).decode(), r"expected numbers of -0\.1 to "),
    ],
)
def test_damaged_features_are_said(text: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Reference.model_validate({**of(drawn(np.random.default_rng(0), 5)).model_dump(), "features": text})


def test_an_export_of_an_earlier_version_has_no_reference(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="an earlier version of perennial made it"):
        reference.load(tmp_path)


def test_an_export_without_a_reference_says_why(tmp_path: Path) -> None:
    files.write_json(tmp_path / REFERENCE, {"missing": "it needs 50 validation images, and there are no"})
    with pytest.raises(DataError, match="has no reference for drift: it needs 50 validation images"):
        reference.load(tmp_path)


def test_a_reference_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = of(drawn(np.random.default_rng(0), 60))
    files.write_json(tmp_path / REFERENCE, found.model_dump(mode="json"))
    assert reference.load(tmp_path) == found
