"""The reference of an export, and the distribution of its distance to windows without drift."""

from pathlib import Path

import numpy as np
import pytest
from scipy.special import chdtrc

from perennial.base import files
from perennial.base.errors import DataError
from perennial.data.images import BRIGHTNESS_BINS
from perennial.model.export import reference
from perennial.model.export.reference import FEATURES, Reference
from perennial.model.export_layout import REFERENCE

UNEQUAL = [1 / number**1.5 for number in range(1, 60)]


def of(features: np.ndarray) -> Reference:
    """A reference of features [N, FEATURES]."""
    return Reference(
        weights_sha256="w",
        images=len(features),
        layer="dense",
        width=9,
        bandwidth=1.0,
        mean=features.mean(axis=0).tolist(),
        covariance=reference.packed(np.cov(features, rowvar=False)),
        inflation=reference.inflation(features),
        classes={"cat": len(features)},
        brightness=[len(features)] + [0] * (BRIGHTNESS_BINS - 1),
    )


def drawn(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Features of images whose penultimate values are normal."""
    fixed = np.random.default_rng(1)
    weights, offsets = fixed.normal(size=(4, FEATURES)) / 3, fixed.uniform(0, 2 * np.pi, FEATURES)
    return np.sqrt(2 / FEATURES) * np.cos(random.normal(size=(*shape, 4)) @ weights + offsets)


@pytest.mark.parametrize("degrees", [1, 5, 50])
@pytest.mark.parametrize("p", [0.9, 0.5, 0.01, 1e-6])
def test_the_tail_of_equal_weights_is_that_of_chi_square(degrees: int, p: float) -> None:
    value = reference.quantile([2.0] * degrees, p)
    assert chdtrc(degrees, value / 2) == pytest.approx(p, rel=0.1)


def test_the_tail_of_unequal_weights_is_that_of_a_simulation() -> None:
    drawn = np.random.default_rng(0).standard_normal((200_000, len(UNEQUAL))) ** 2 @ UNEQUAL
    for level in (0.5, 0.05, 0.005):
        exceeded = np.mean(drawn > reference.quantile(UNEQUAL, level))
        assert exceeded == pytest.approx(level, rel=0.1)


def test_the_tail_is_continuous_at_the_mean() -> None:
    mean = sum(UNEQUAL)
    values = [reference.tail(UNEQUAL, mean * (1 + shift)) for shift in (-1e-4, 0, 1e-4)]
    assert values == sorted(values, reverse=True)
    assert values[0] - values[2] < 1e-3


@pytest.mark.fast_rows("50")
@pytest.mark.parametrize("images", [50, 100])
def test_windows_without_drift_exceed_the_threshold_as_often_as_the_level_says(images: int) -> None:
    random, exceeded = np.random.default_rng(0), list[bool]()
    for _ in range(10):  # references
        found = of(drawn(random, 500))
        threshold = found.threshold(0.05, images)
        exceeded += [found.distance(window) > threshold for window in drawn(random, 20, images)]
    assert np.mean(exceeded) == pytest.approx(0.05, abs=0.04)


def test_a_reference_of_few_images_knows_how_far_others_are() -> None:
    random = np.random.default_rng(0)
    few, many = (reference.inflation(drawn(random, images)) for images in (60, 2000))
    assert few > 1.05 > many >= 1.0


def test_a_covariance_is_read_as_it_was_written() -> None:
    covariance = np.cov(drawn(np.random.default_rng(0), 500), rowvar=False)
    np.testing.assert_allclose(reference.unpacked(reference.packed(covariance)), covariance, rtol=1e-6)


def test_a_damaged_covariance_is_said() -> None:
    with pytest.raises(DataError, match=r"covariance in \S+ is damaged"):
        reference.unpacked("AAAA")


def test_the_p_value_at_the_threshold_is_the_level() -> None:
    found = of(drawn(np.random.default_rng(0), 500))
    assert found.p_value(found.threshold(0.001, 80), 80) == pytest.approx(0.001, rel=1e-3)


def test_a_window_that_moved_is_beyond_the_threshold() -> None:
    random = np.random.default_rng(0)
    found = of(drawn(random, 1000))
    fixed = np.random.default_rng(1)
    weights, offsets = fixed.normal(size=(4, FEATURES)) / 3, fixed.uniform(0, 2 * np.pi, FEATURES)
    moved = np.sqrt(2 / FEATURES) * np.cos((random.normal(size=(200, 4)) + 0.7) @ weights + offsets)
    assert found.distance(moved) > found.threshold(0.001, 200)


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
