"""Pictures and tables of scores."""

import io

import numpy as np
import PIL.Image
import pytest

from perennial.evaluation import calibration, plots

RELIABILITY = calibration.reliability(
    np.array([[0.75, 0.25], [0.75, 0.25], [0.5, 0.5]], np.float32), np.array([0, 1, 0]), bins=4
)


def test_the_table_has_a_line_an_example_with_names() -> None:
    assert plots.confusion_csv([0, 1], [1, 1], ["cat", "dog"]) == b"actual,predicted\ncat,dog\ndog,dog\n"


def test_the_pictures_are_pngs_of_the_same_bytes_each_time() -> None:
    counts = np.array([[3, 1], [0, 4]])
    one, other = (plots.confusion_png(counts, ["cat", "dog"], "title") for _ in range(2))
    assert PIL.Image.open(io.BytesIO(one)).format == "PNG"
    assert one == other
    one, other = (plots.reliability_png(RELIABILITY, "title") for _ in range(2))
    assert PIL.Image.open(io.BytesIO(one)).format == "PNG"
    assert one == other


def test_a_class_may_be_called_like_a_formula() -> None:
    names = ["$\\frac$", "a$b$"]
    picture = plots.confusion_png(np.array([[3, 1], [0, 4]]), names, "title")
    assert PIL.Image.open(io.BytesIO(picture)).format == "PNG"


def test_the_reliability_table_has_the_intervals_that_have_examples() -> None:
    lines = plots.reliability_csv(RELIABILITY).decode().splitlines()
    assert lines == ["bin,confidence,accuracy,examples", "3,0.5,1.0,1", "4,0.75,0.5,2"]


def test_few_classes_have_a_place_each() -> None:
    places, names = plots.most_confused(np.eye(3, dtype=np.int64), ["a", "b", "c"])
    assert (places.tolist(), names) == ([0, 1, 2], ["a", "b", "c"])


def test_of_many_classes_those_with_most_mistakes_are_shown_and_all_examples_counted() -> None:
    counts = np.diag(np.full(1000, 50))
    counts[700, 30] = 9
    places, names = plots.most_confused(counts, [f"class {label}" for label in range(1000)])
    assert len(names) == plots.MOST
    assert names[places[700]] == "class 700"
    assert names[places[999]] == "(971 others)"
    shown = plots.grouped(counts, places)
    assert (shown.sum(), shown[places[700], places[30]]) == (50_009, 9)
    assert shown[-1, -1] == 971 * 50


@pytest.mark.parametrize("classes", [2, 30])
def test_the_picture_is_no_larger_than_a_screen_can_show(classes: int) -> None:
    names = [f"a very long name of class number {label}" for label in range(classes)]
    picture = PIL.Image.open(io.BytesIO(plots.confusion_png(np.eye(classes, dtype=np.int64), names, "title")))
    assert max(picture.size) <= 2000
