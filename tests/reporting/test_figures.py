"""Figures as parts of a page."""

import html
import re
from pathlib import Path

import numpy as np
import pytest
from support.pages import Elements, text

from perennial.evaluation.calibration import Reliability
from perennial.reporting import drawing, figures
from perennial.reporting.figures import Matrix

ROOT = Path(__file__).parents[2]
STEPS = np.arange(1.0, 41)
TRAINING = {"step": STEPS, "loss": 10 / STEPS, "learning_rate": np.full(40, 0.01)}
VALIDATION = {"step": STEPS[9::10], "loss": 12 / STEPS[9::10], "accuracy": 1 - 1 / STEPS[9::10]}
SURE = Reliability(
    examples=np.array([0, 0, 12, 160]),
    confidence=np.array([np.nan, np.nan, 0.7, 0.95]),
    accuracy=np.array([np.nan, np.nan, 0.5, 1.0]),
)
HOSTILE = ("<script>alert(1)</script>", '"&\u202e\x00$', "קטגוריה", "a" * 100)
DRAWN = {
    "loss": figures.loss(TRAINING, VALIDATION),
    "loss of training alone": figures.loss(TRAINING, None),
    "loss of validation alone": figures.loss(None, VALIDATION),
    "accuracy": figures.accuracy(VALIDATION, 0.99),
    "accuracy without a threshold": figures.accuracy(VALIDATION, None),
    "learning rate": figures.learning_rate(TRAINING),
    "reliability": figures.reliability(SURE),
    "two classes": figures.confusion(Matrix(counts=np.array([[9, 1], [0, 4]]), names=("cat", "dog"))),
    "hostile names": figures.confusion(Matrix(counts=np.eye(4, dtype=np.int64), names=HOSTILE)),
    "thirty classes": figures.confusion(
        Matrix(counts=np.full((30, 30), 12_345), names=tuple(f"class {number}" for number in range(30)))
    ),
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_is_one_element_that_fetches_and_runs_nothing(name):
    found = Elements(DRAWN[name])
    assert found.seen & {"script", "style", "image", "a", "foreignobject"} == set()
    assert [link for link in found.links if not link.startswith("#")] == []


@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_takes_its_colours_from_the_page(name):
    assert re.findall(r"#[0-9a-f]{6}\b", DRAWN[name]) == []
    assert {"soft", "line"} <= set(re.findall(r"var\(--([a-z-]+)\)", DRAWN[name]))


def test_the_page_has_every_colour_that_figures_take():
    style = (ROOT / "src" / "perennial" / "reporting" / "report.css").read_text()
    assert [name for name in drawing.VARIABLES.values() if f"--{name}:" not in style] == []


def test_text_on_a_cell_stands_out_however_strong_its_colour():
    def taken(share):
        counts = np.array([[share, 100 - share], [0, 100]])
        return figures.confusion(Matrix(counts=counts, names=("cat", "dog")))

    found = [
        re.search(rf"fill: var\(--([a-z-]+)\)[^>]*>{share}</text>", taken(share)) for share in (40, 70, 99)
    ]
    assert [each and each[1] for each in found] == ["ink", "on-middle", "on-colour"]


@pytest.mark.parametrize("name", DRAWN)
def test_what_a_figure_refers_to_is_in_it(name):
    used = set(re.findall(r'(?:href="|url\()#(\w+)', DRAWN[name]))
    assert used == set(re.findall(r' id="(\w+)"', DRAWN[name]))


def test_figures_on_one_page_share_no_id():
    ids = [
        re.findall(r' id="(\w+)"', DRAWN[name]) for name in ("loss", "accuracy", "reliability", "two classes")
    ]
    assert len({each for one in ids for each in one}) == sum(map(len, ids)) > 0


def test_equal_figures_are_equal_text():
    assert figures.loss(TRAINING, VALIDATION) == DRAWN["loss"]


@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_tells_what_it_shows_to_those_who_do_not_see_it(name):
    assert re.match(r'<svg viewBox="[^"]*" role="img" aria-label="[^"<]{20,}">', DRAWN[name])


def test_the_loss_is_told_with_where_it_ends():
    assert "training ends at 0.25, validation ends at 0.3" in DRAWN["loss"]


@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_holds_no_markup_of_mathematics(name):
    assert "mathdefault" not in DRAWN[name]


def test_names_of_classes_are_text_and_no_markup():
    assert "<script" not in DRAWN["hostile names"]
    assert drawing.short(HOSTILE[0]) in text(DRAWN["hostile names"])


@pytest.mark.parametrize("name", [drawing.INK, drawing.ON_MIDDLE, ' id="mine"'])
def test_a_class_that_is_called_like_a_stand_in_keeps_its_name(name):
    drawn = figures.confusion(Matrix(counts=np.array([[9, 1], [0, 4]]), names=(name, "dog")))
    assert html.unescape(drawn).count(f">{name}<") == 2
    assert "fill: var(--ink)" in drawn


def test_every_count_of_the_matrix_is_written():
    shown = text(DRAWN["two classes"]).split()
    assert [mark for mark in shown if mark.isdigit()] == ["9", "1", "4"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [("cat", "cat"), ("class number 12", "class number 12"), ("class number 123", "class num…r 123")],
)
def test_a_long_name_keeps_its_beginning_and_its_end(name, shown):
    assert drawing.short(name) == shown


@pytest.mark.parametrize(("first", "logarithmic"), [(21.0, True), (19.0, False)])
def test_a_loss_that_falls_far_has_a_logarithmic_axis(first, logarithmic):
    curve = {"step": np.array([1.0, 2.0]), "loss": np.array([first, 1.0])}
    ticks = re.findall(r">([\d.]+)</text>", figures.loss(None, curve))
    assert ("10" in ticks and "15" not in ticks) == logarithmic


@pytest.mark.parametrize("share", [0.0, 0.004, 0.99, 1.0])
def test_the_shares_of_one_evaluation_stay_between_none_and_all(share):
    drawn = figures.accuracy({"step": STEPS[:1], "accuracy": np.array([share])}, None)
    shares = [float(each) for each in re.findall(r">([^<>]*) %<", drawn)]
    assert shares
    assert 0 <= min(shares) < max(shares) <= 100
