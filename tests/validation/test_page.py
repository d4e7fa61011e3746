import html.parser
import re

import numpy as np
import pytest

from perennial.images import Image, png
from perennial.validation import page

PIXELS = np.random.default_rng(0).integers(0, 256, (28, 28), np.uint8)
IMAGE = Image(encoded=png.encode(PIXELS), format="png", height=28, width=28)
BROKEN = Image(encoded=b"no image", format="jpg", height=28, width=28)
CLASSES = ["cat", "dog"]
HOSTILE = "<script>alert(1)</script>\"'\x00\x1b\udc80&"


def problem(code="data_crc", severity="error", **changes):
    return {
        "code": code,
        "severity": severity,
        "file": "train.tfrecord",
        "record": 3,
        "offset": 99,
        "message": "it is wrong",
        **changes,
    }


def report(problems=(), **changes):
    splits = {
        split: {"examples": 30, "per_class": [10, 20], "brightness": [0] * 31 + [30]}
        for split in ("test", "train")
    }
    statistics = {
        "manifest": "ab" * 32,
        "classes": CLASSES,
        "height": [28, 28],
        "width": [20, 28],
        "channels": [1, 1],
        "mean": 33.3333,
        "channel_mean": [33.3333],
        "channel_std": [78.5],
        "bytes": 123456,
        "splits": splits,
        "duplicates": {"across_splits": 2, "near_pairs_are_all": False},
        "drift": {"labels": {"distance": 0.125, "where": "cat"}},
    }
    ok = not any(one["severity"] == "error" for one in problems)
    return {
        "ok": ok,
        "examples": {"test": 30, "train": 30},
        "problems": list(problems),
        "statistics": statistics,
        **changes,
    }


def text(source):
    """What a reader of the page sees, without its styles."""
    return " ".join(re.sub(r"<style>.*?</style>|<[^>]*>", " ", source, flags=re.DOTALL).split())


class Checker(html.parser.HTMLParser):
    """Sees that every element is closed where it should be."""

    EMPTY = ("meta", "img", "line", "rect", "br")

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.links = [], [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        self.links += [value for name, value in attributes if name in {"src", "href", "action"}]
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attributes):
        self.seen.append(tag)


def checked(source):
    checker = Checker()
    checker.feed(source)
    assert checker.open == []
    return checker


PAGES = {
    "sound": (report(), CLASSES, {"cat": [IMAGE, BROKEN], "dog": []}, []),
    "problems": (
        report([problem(), problem("near_duplicate", "warn", record=None)]),
        CLASSES,
        {},
        [(problem(), IMAGE)],
    ),
    "many classes": (report(), [f"class {number}" for number in range(1000)], {}, []),
    "bare": ({"ok": True, "examples": {"train": 5}, "problems": []}, [], {}, []),
    "no pixels": (report(statistics={"mean": None, "channel_mean": [], "height": [0, 0]}), CLASSES, {}, []),
    "nothing": ({}, [], {}, []),
    "hostile": (
        report([problem(message=HOSTILE, file=HOSTILE, code=HOSTILE)]),
        [HOSTILE, "dog"],
        {HOSTILE: [IMAGE]},
        [(problem(message=HOSTILE), None)],
    ),
}


@pytest.mark.parametrize("name", PAGES)
def test_every_page_is_well_formed_and_needs_nothing_but_itself(name):
    source = page.render(*PAGES[name])
    found = checked(source)
    assert {"script", "link", "iframe", "object"} & set(found.seen) == set()
    assert [link for link in found.links if not link.startswith("data:image/")] == []
    assert "http" not in source.replace("http-equiv", "")
    assert source.startswith("<!DOCTYPE html>")
    assert source.encode()


def test_names_from_the_data_are_escaped():
    source = page.render(*PAGES["hostile"])
    assert "<script" not in source
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&#34;&#39;\\x00\\x1b\\udc80&amp;" in source


def test_equal_reports_are_equal_pages_whatever_the_order_of_splits():
    one, other = report(), report()
    other["statistics"]["splits"] = dict(reversed(other["statistics"]["splits"].items()))
    pages = [page.render(found, CLASSES, {"cat": [IMAGE]}, []) for found in (one, other)]
    assert pages[0] == pages[1]


def test_the_verdict_and_the_counts_stand_on_top():
    assert text(page.render(report(), CLASSES, {}, [])).startswith(
        "Validation: sound The data are sound 60 examples in 2 splits, 2 classes; no problems"
    )
    shown = text(page.render(report([problem(), problem("near_duplicate", "warn")]), CLASSES, {}, []))
    assert "The data have problems 60 examples in 2 splits, 2 classes; 1 error, 1 warning" in shown


def test_facts_duplicates_and_drift_are_shown():
    shown = text(page.render(report(), CLASSES, {}, []))
    for fact in (
        "width 20 to 28 pixels",
        "deviation 78.50",
        "across splits 2",
        "near pairs are all no",
        "labels 0.1250 (cat)",
    ):
        assert fact in shown


def test_a_problem_is_shown_with_its_place_and_its_image():
    source = page.render(report([problem()]), CLASSES, {}, [(problem(), IMAGE)])
    assert "data_crc it is wrong train.tfrecord, record 3 at byte 99" in text(source)
    assert source.count("<img ") == 1


def test_the_first_problems_are_listed_and_the_rest_counted():
    problems = [problem(message=f"number {number}.") for number in range(250)]
    flagged = [(one, None) for one in problems[:70]]
    counted = report(problems, problem_counts={"data_crc": 1250})
    shown = text(page.render(counted, CLASSES, {}, flagged))
    assert (shown.count("number 199."), shown.count("number 200.")) == (1, 0)
    assert "1,250 errors" in shown
    assert "and 1,050 more; the report for programs (validation.json) lists 250 of all 1,250" in shown
    assert "and 190 more" in shown


def test_errors_are_listed_before_warnings():
    shown = text(page.render(report([problem("near_duplicate", "warn"), problem()]), CLASSES, {}, []))
    assert shown.index("error data_crc") < shown.index("warn near_duplicate")


def test_samples_of_the_first_classes_are_shown():
    samples = {f"class {number}": [IMAGE] for number in range(100)}
    source = page.render(report(), list(samples), samples, [])
    assert source.count("<img ") == 60
    assert "and 40 more classes" in text(source)


def test_a_chart_has_a_bar_for_each_class_as_high_as_its_examples():
    chart = page.chart("train", [10, 20, 0], ["cat", "dog", "owl"])
    assert [bar.height for bar in chart.bars] == [75, 150, 0]
    assert [bar.y + bar.height for bar in chart.bars] == [150] * 3
    assert [bar.title for bar in chart.bars] == ["cat: 10", "dog: 20", "owl: 0"]


@pytest.mark.parametrize(
    ("names", "labels"),
    [(["cat", "dog"], "flat"), (["automobile"] * 10, "slanted"), (["cat"] * 33, "none"), ([], "flat")],
)
def test_names_stand_below_the_bars_where_there_is_room(names, labels):
    assert page.chart("train", [1] * len(names), names).labels == labels
