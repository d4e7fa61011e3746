import base64
import io

import numpy as np
import PIL.Image
import pytest
from data.validation import reports
from data.validation.reports import problem
from support.pages import Elements, text
from support.raw import encoded

from perennial.data.images import Image, png
from perennial.data.validation import html

PIXELS = np.random.default_rng(0).integers(0, 256, (28, 28), np.uint8)
IMAGE = Image(encoded=png.encode(PIXELS), format="png", height=28, width=28)
BROKEN = Image(encoded=b"no image", format="jpg", height=28, width=28)
HOSTILE = "<script>alert(1)</script>\"'\x00\x1b\udc80&"


def counted(per_class):
    return {"examples": sum(per_class), "per_class": per_class, "brightness": [0] * 31 + [30]}


def report(problems=(), counts=None, **changes):
    known = {
        "manifest": "ab" * 32, "classes": ["cat", "dog"], "channels": [1, 1], "mean": 33.3333,
        "channel_mean": [33.3333], "channel_std": [78.5],
        "splits": {split: counted([10, 20]) for split in ("test", "train")},
        "duplicates": {"across_splits": 2, "near_pairs_are_all": False},
        "drift": {"labels": {"distance": 0.125, "where": "cat"}},
    }  # fmt: skip
    return reports.report(problems, counts, **(known | changes))


MANY = [f"class {number}" for number in range(1000)]
PAGES = {
    "valid": (report(), {"cat": [IMAGE, BROKEN], "dog": []}, []),
    "problems": (
        report([problem(), problem("near_duplicate", "warn", record=None)]),
        {},
        [(problem(), [IMAGE])],
    ),
    "many classes": (report(classes=MANY, splits={"train": counted([1] * 1000)}), {}, []),
    "no pixels": (report(mean=None, channel_mean=[], height=[0, 0]), {}, []),
    "nothing": (report(splits={}, duplicates={}, drift=None), {}, []),
    "no classes": (report(classes=[], splits={"train": counted([])}), {}, []),
    "hostile": (
        report([problem(message=HOSTILE, file=HOSTILE, code=HOSTILE)], classes=[HOSTILE, "dog"]),
        {HOSTILE: [IMAGE]},
        [(problem(message=HOSTILE), [None])],
    ),
}


@pytest.mark.parametrize("name", PAGES)
def test_every_page_is_well_formed_and_needs_nothing_but_itself(name):
    source = html.render(*PAGES[name])
    found = Elements(source)
    assert {"script", "link", "iframe", "object"} & found.seen.keys() == set()
    assert [link for link in found.links if not link.startswith("data:image/")] == []
    assert "http" not in source.replace("http-equiv", "")
    assert source.startswith("<!DOCTYPE html>")
    assert source.encode()


def test_names_from_the_data_are_escaped():
    source = html.render(*PAGES["hostile"])
    assert "<script" not in source
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&#34;&#39;\\x00\\x1b\\udc80&amp;" in source


def test_equal_reports_are_equal_pages_whatever_the_order_of_splits():
    one, other = report(), report()
    other["statistics"]["splits"] = dict(reversed(other["statistics"]["splits"].items()))
    pages = [html.render(found, {"cat": [IMAGE]}, []) for found in (one, other)]
    assert pages[0] == pages[1]


def test_the_verdict_and_the_counts_stand_on_top():
    assert text(html.render(report(), {}, [])).startswith(
        "Validation: valid The data are valid 60 examples in 2 splits, 2 classes; no problems"
    )
    shown = text(html.render(report([problem("near_duplicate", "warn"), problem()]), {}, []))
    assert "The data have problems 60 examples in 2 splits, 2 classes; 1 error, 1 warning" in shown
    assert shown.index("error data_crc") < shown.index("warn near_duplicate")


def test_facts_duplicates_and_drift_are_shown():
    shown = text(html.render(report(), {}, []))
    for fact in (
        "width 20 to 28 pixels",
        "deviation 78.50",
        "across splits 2",
        "near pairs are all no",
        "labels 0.1250 (cat)",
    ):
        assert fact in shown


def test_a_problem_is_shown_with_its_place_and_its_image():
    source = html.render(report([problem()]), {}, [(problem(), [IMAGE])])
    assert "data_crc it is wrong train.tfrecord, record 3 at byte 99" in text(source)
    assert source.count("<img ") == 1


def test_the_first_problems_are_listed_and_the_rest_counted():
    problems = [problem(message=f"number {number}.") for number in range(250)]
    flagged = [(one, [None]) for one in problems[:60]]
    shown = text(html.render(report(problems, {"data_crc": 1250}), {}, flagged))
    assert (shown.count("number 199."), shown.count("number 200.")) == (1, 0)
    assert "1,250 errors" in shown
    assert "and 1,050 more; the report for programs (validation.json) lists 250 of all 1,250" in shown
    assert "and 190 more" in shown


def test_samples_are_shown_and_other_classes_counted():
    samples = {f"class {number}": [IMAGE] for number in range(60)}
    source = html.render(report(classes=MANY[:100]), samples, [])
    assert source.count("<img ") == 60
    assert "and 40 more classes" in text(source)


@pytest.mark.parametrize(
    ("counts", "most", "bars"),
    [
        ([10, 20, 0], 3, [(50, "a: 10"), (100, "b: 20"), (0, "c: 0")]),
        ([1, 3, 5, 7, 8, 8], 3, [(25, "a to b: 1 to 3"), (75, "c to d: 5 to 7"), (100, "e to f: 8 to 8")]),
    ],
)
def test_a_bar_is_as_high_as_its_classes_and_shows_their_range(counts, most, bars):
    assert [(bar.percent, bar.title) for bar in html.bars(counts, "abcdef", most)] == bars


def test_the_page_of_21_000_classes_stays_small():
    names = [f"n{number:08d} a class with quite a long name" for number in range(21_000)]
    splits = dict.fromkeys(("train", "validation", "test"), counted([2] * 21_000))
    problems = [problem("class_missing", message=f"class {name} has no example") for name in names]
    source = html.render(report(problems, classes=names, splits=splits), {}, [])
    assert len(source.encode()) < 1_000_000


def image(encoded, kind="png"):
    return Image(encoded=encoded, format=kind, height=1, width=1)


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


def jpeg(*shape):
    return encoded(noise(*shape), "JPEG")


def content(shown):
    return base64.b64decode(shown.uri.partition(",")[2])


@pytest.mark.parametrize(
    ("encoded", "kind", "size"),
    [
        (png.encode(noise(28, 28)), "image/png", (84, 84, True)),
        (png.encode(noise(32, 16, 3)), "image/png", (48, 96, True)),
        (jpeg(100, 90, 3), "image/jpeg", (90, 100, False)),
    ],
)
def test_a_small_image_is_embedded_as_it_is(encoded, kind, size):
    shown = html.thumbnail(image(encoded))
    assert content(shown) == encoded
    assert shown.uri.startswith(f"data:{kind};base64,")
    assert (shown.width, shown.height, shown.pixelated) == size


@pytest.mark.parametrize(
    ("encoded", "size"),
    [
        (jpeg(300, 600, 3), (112, 56)),
        (png.encode(noise(600, 300)), (56, 112)),
        (png.encode(noise(2, 400)), (112, 1)),
        (png.encode(noise(128, 128, 3)), (112, 112)),
    ],
)
def test_a_large_image_becomes_small_in_its_proportions(encoded, size):
    shown = html.thumbnail(image(encoded))
    assert (shown.width, shown.height, shown.pixelated) == (*size, False)
    assert max(PIL.Image.open(io.BytesIO(content(shown))).size) == 128


@pytest.mark.parametrize("encoded", [b"", b"no image", jpeg(300, 200, 3)[:2000], b"<svg/>"])
def test_what_does_not_decode_has_a_placeholder(encoded):
    assert html.thumbnail(image(encoded)) == html.Thumbnail(None, 84, 84)
