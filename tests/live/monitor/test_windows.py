"""Windows of traffic: what differs, what explains it, and when it is an alarm."""

from types import SimpleNamespace

import numpy as np
import pytest
from model.export import test_reference

from perennial.data.images import BRIGHTNESS_BINS
from perennial.live.monitor import windows
from perennial.live.monitor.windows import Content, alarm_since
from perennial.model.export import reference as references
from perennial.model.export.reference import Reference

RANDOM = np.random.default_rng(0)
CLASSES = ("cat", "dog", "owl")


def features(images: int, shift: float = 0.0) -> np.ndarray:
    return test_reference.drawn(RANDOM, images, shift=shift)


def reference(images: int = 600) -> Reference:
    """A reference with three equal classes and brightness spread over all bins."""
    spread = np.bincount(np.arange(images) % BRIGHTNESS_BINS, minlength=BRIGHTNESS_BINS).tolist()
    changes = {"classes": dict.fromkeys(CLASSES, images // 3), "brightness": spread}
    return test_reference.of(features(images)).model_copy(update=changes)


def content(images: int = 120, shift: float = 0.0, cats: float = 1 / 3, dark: float = 1.0) -> Content:
    classes = ["cat"] * round(images * cats)
    classes += [("dog", "owl")[number % 2] for number in range(images - len(classes))]
    brightness = (np.arange(images) * 7 % 256 * dark).astype(np.float32)
    return Content("2026-11-27T01", "2026-11-27T02", features(images, shift), brightness, classes)


def test_the_class_whose_share_changed_most_is_named() -> None:
    found = windows.compare(content(cats=0.6), reference())
    assert (found.label, found.label_share, found.label_share_before) == ("cat", 0.6, pytest.approx(1 / 3))
    assert found.labels_p_value < 1e-6


def test_darker_images_explain_a_drift() -> None:
    found = windows.compare(content(dark=0.5), reference())
    assert found.brightness_p_value < 1e-6
    assert found.brightness_distance == pytest.approx(0.5, abs=0.05)


def test_shares_of_rare_classes_are_judged_together() -> None:
    names = {f"class {number}": 1 for number in range(300)}
    assert windows._chi_square({"class 0": 2, "class 1": 1}, names) == 1.0


@pytest.fixture(scope="module", autouse=True)
def fewer():
    """As many permutations as the level needs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(references, "PERMUTATIONS", 1999)
        patch.setattr(references, "LEAST_PERMUTATIONS", 399)
        yield


@pytest.mark.parametrize(
    ("drifted", "since"),
    [
        ("1", None),
        ("101", 2),
        ("11", 1),
        ("1001", None),
        ("111", 1),  # as long as it lasts, the same alarm
        ("11001", None),
        ("110011", 5),
    ],
)
def test_an_alarm_is_two_of_the_last_three_windows(drifted: str, since: int | None) -> None:
    given = [SimpleNamespace(drifted=each == "1", end=str(number)) for number, each in enumerate(drifted)]
    assert alarm_since(given) == (None if since is None else str(since))
