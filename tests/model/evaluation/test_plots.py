"""Plots as PNG and as SVG elements of a page."""

import functools
import html
import io
import re

import numpy as np
import PIL.Image
import pytest
from sklearn.metrics import average_precision_score
from support.pages import Elements, text

from perennial.model.evaluation import plots
from perennial.model.evaluation.diagnostics import Matrix, Reliability

STEPS = np.arange(1.0, 41)
TRAINING = {"step": STEPS, "loss": 10 / STEPS, "learning_rate": np.full(40, 0.01)}
VALIDATION = {"step": STEPS[9::10], "loss": 12 / STEPS[9::10], "accuracy": 1 - 1 / STEPS[9::10]}
RELIABILITY = Reliability(
    examples=np.array([0, 0, 12, 160]),
    confidence=np.array([np.nan, np.nan, 0.7, 0.95]),
    accuracy=np.array([np.nan, np.nan, 0.5, 1.0]),
)
HOSTILE = ("<script>alert(1)</script>", '"&\u202e\x00$', "קטגוריה", "a" * 100)


def matrix(counts, names):
    return Matrix(counts=np.array(counts), names=tuple(names), row_of=np.arange(len(names)))


PLOTS = {
    "loss": plots.loss(TRAINING, VALIDATION),
    "loss of training alone": plots.loss(TRAINING, None),
    "loss of validation alone": plots.loss(None, VALIDATION),
    "accuracy": plots.accuracy(VALIDATION, 0.99),
    "accuracy without a threshold": plots.accuracy(VALIDATION, None),
    "learning rate": plots.learning_rate(TRAINING),
    "curves": plots.curves(TRAINING, VALIDATION, 0.99),
    "curves of training alone": plots.curves(TRAINING, None, None),
    "reliability": plots.reliability(RELIABILITY, title="ECE 0.1"),
    "two classes": plots.confusion(matrix([[9, 1], [0, 4]], ("cat", "dog")), title="$\\frac"),
    "hostile names": plots.confusion(matrix(np.eye(4, dtype=np.int64), HOSTILE)),
    "thirty classes": plots.confusion(
        matrix(np.full((30, 30), 12_345), [f"a very long name of class {number}" for number in range(30)])
    ),
}


LABELS = (np.arange(400).reshape(40, 10) % 7 < 3).astype(np.int8)
SCORED = np.linspace(0, 1, 400, dtype=np.float32).reshape(40, 10)
NAMES = [f"label {number}" for number in range(9)] + ["猫"]
PLOTS["precision over recall"] = plots.precision_recall(LABELS, SCORED, NAMES, title="mAP 0.5", undrawn="猫")


@functools.cache
def svg(name):
    """One of the plots as SVG: drawn by the first test that needs it, not while tests are collected."""
    return PLOTS[name].svg()


@pytest.mark.fast_rows("reliability", "thirty classes")
@pytest.mark.parametrize("name", [name for name in PLOTS if name != "hostile names"])
def test_a_png_fits_a_screen(name):
    with PIL.Image.open(io.BytesIO(PLOTS[name].png())) as picture:
        assert picture.format == "PNG"
        assert max(picture.size) <= 2000


def test_pictures_are_equal_each_time():
    again = plots.loss(TRAINING, VALIDATION)
    assert (again.svg(), again.png()) == (svg("loss"), PLOTS["loss"].png())


@pytest.mark.fast_rows("accuracy without a threshold", "curves", "hostile names")
@pytest.mark.parametrize("name", PLOTS)
def test_an_svg_is_one_element_that_a_page_can_hold(name):
    found, drawn = Elements(svg(name)), svg(name)
    assert drawn.startswith("<svg")
    assert found.seen.keys() & {"script", "image", "a", "foreignobject", "metadata"} == set()
    assert [link for link in found.links if not link.startswith("#")] == []
    colors = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]+)", drawn))  # those that the page maps
    assert {plots.COLORS["soft"], plots.COLORS["line"]} <= colors <= set(plots.COLORS.values())
    used = set(re.findall(r'(?:href="|url\()#(\w+)', drawn))
    assert used <= set(re.findall(r' id="([^"]+)"', drawn))
    assert len(PLOTS[name].description) >= 20


def test_svgs_on_one_page_share_no_id():
    names = ("loss", "accuracy", "reliability", "two classes")
    ids = [re.findall(r' id="([^"]+)"', svg(name)) for name in names]
    assert len({each for one in ids for each in one}) == sum(map(len, ids)) > 0


def test_class_names_are_text_and_not_markup():
    assert "<script" not in svg("hostile names")
    assert plots.short_label(HOSTILE[0]) in text(svg("hostile names"))
    assert "mathdefault" not in svg("hostile names")


@pytest.mark.parametrize("name", [plots.COLORS["ink"], ' id="mine"', "--><!--"])
def test_a_class_named_like_a_part_of_an_svg_keeps_its_name(name):
    drawn = plots.confusion(matrix([[9, 1], [0, 4]], (name, "dog"))).svg()
    assert html.unescape(drawn).count(f">{name}<") == 2


@pytest.mark.parametrize(("share", "color"), [(40, "ink"), (70, "on-middle"), (99, "on-colour")])
def test_text_on_a_cell_contrasts_with_its_color(share, color):
    drawn = plots.confusion(matrix([[share, 100 - share], [0, 100]], ("cat", "dog"))).svg()
    assert re.search(rf"fill: {plots.COLORS[color]}[^>]*>{share}</text>", drawn)


def test_every_count_of_the_matrix_is_written():
    assert [mark for mark in text(svg("two classes")).split() if mark.isdigit()] == ["9", "1", "4"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [("cat", "cat"), ("class number 12", "class number 12"), ("class number 123", "class num…r 123")],
)
def test_a_long_name_keeps_its_beginning_and_end(name, shown):
    assert plots.short_label(name) == shown


@pytest.mark.parametrize(("first", "logarithmic"), [(21.0, True), (19.0, False)])
def test_a_loss_that_falls_far_has_a_logarithmic_axis(first, logarithmic):
    curve = {"step": np.array([1.0, 2.0]), "loss": np.array([first, 1.0])}
    ticks = re.findall(r">([\d.]+)</text>", plots.loss(None, curve).svg())
    assert ("10" in ticks and "15" not in ticks) == logarithmic


@pytest.mark.parametrize("share", [0.0, 0.004, 0.99, 1.0])
def test_the_axis_of_a_single_accuracy_stays_within_0_and_1(share):
    drawn = plots.accuracy({"step": STEPS[:1], "accuracy": np.array([share])}, None).svg()
    shares = [float(each) for each in re.findall(r">([^<>]*) %<", drawn)]
    assert 0 <= min(shares) < max(shares) <= 100


CJK = ("猫", "犬", "cat")


def test_the_curve_of_precision_over_recall_has_the_area_of_the_average_precision():
    own, p = LABELS[:, 0] != 0, np.round(SCORED[:, 3] * 9) / 9  # with ties
    recall, precision = plots._precisions(own, p)
    assert float((np.diff(recall) * precision[1:]).sum()) == pytest.approx(average_precision_score(own, p))
    assert (recall[0], recall[-1], precision[-1]) == (0, 1, own.mean())


def test_names_that_the_font_lacks_are_drawn_as_class_numbers():
    undrawn = plots.without_glyph(CJK)
    assert undrawn == "犬猫"
    drawn = plots.confusion(matrix(np.eye(3, dtype=np.int64), CJK), undrawn=undrawn)
    drawn.png()  # a missing glyph would warn
    assert {"#0", "#1", "cat"} <= set(text(drawn.svg()).split())
