"""The report in a real browser: every test here opens it in Chromium, with the network off."""

import contextlib

import pytest
from support import chromium, finished

from perennial.base import config, documents, files
from perennial.reports.report.report_page import write

pytestmark = pytest.mark.skipif(
    chromium.PROGRAM is None, reason=f"needs Chromium: none of {', '.join(chromium.NAMES)} is on the PATH"
)
HOSTILE = ["<script>alert(1)</script>", "<img src=x onerror=alert(1)>", '"&\u202e$x$', "קטגוריה", "long" * 40]
CLASSES = {
    "two": ["cat", "dog"],
    "ten": [*HOSTILE, "six", "seven", "eight", "nine", "ten"],
    "thousand": [*HOSTILE, *(f"class number {number}" for number in range(995))],
}
WIDTHS = (320, 1280)
# Texts that are wider than the card which they stand in.
OVERHANGING = """[...document.querySelectorAll('.mistakes li')].flatMap(card =>
  [...card.querySelectorAll('p, dd, dt')].filter(text => {
    const range = document.createRange();
    range.selectNodeContents(text);
    return range.getBoundingClientRect().right > card.getBoundingClientRect().right;
  }).map(text => text.textContent))"""
SMALLEST = """Math.min(...[...document.querySelectorAll('svg text')].map(text => {
  const matrix = text.getScreenCTM();
  return parseFloat(getComputedStyle(text).fontSize) * Math.hypot(matrix.a, matrix.b);
}))"""


@pytest.fixture(scope="module", params=CLASSES)
def page(request, tmp_path_factory):
    """The report of a run with so many classes, as it lies on the disk."""
    folder = tmp_path_factory.mktemp(request.param)
    with contextlib.chdir(folder):
        files.write_bytes(folder / "params.yaml", (request.config.rootpath / "params.yaml").read_bytes())
        checked = config.load(folder / "params.yaml")
        finished.leave(
            checked, CLASSES[request.param], each={"two": 30, "ten": 2, "thousand": 1}[request.param]
        )
        listed = documents.read_json(checked.paths.label_errors)["listed"]
        names = [{**one, "image": f"{'photograph_of_a_day_' * 6}{one['record']}.jpeg"} for one in listed]
        finished.change(checked.paths.label_errors, listed=names)
        write(checked)
    with chromium.opened(folder / "report.html", folder / "profile") as shown:
        yield shown


@pytest.mark.fast_rows("ten")
def test_every_image_is_shown_the_console_stays_empty_and_nothing_else_is_asked_for(page):
    page.show(width=1280)
    assert page.messages() == []
    urls = [url for url in page.requests() if not url.startswith("data:image/")]
    assert urls == [page.evaluate("document.location.href")]
    assert min(page.evaluate("[...document.images].map(image => image.naturalWidth)")) > 0


@pytest.mark.fast_rows("ten-320", "ten-1280")
@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_is_wider_than_its_window_and_no_text_than_its_card(page, width):
    page.show(width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(OVERHANGING) == []


@pytest.mark.fast_rows("ten")
def test_figures_can_be_read_on_a_phone(page):
    page.show(width=390)
    assert page.evaluate(SMALLEST) >= 8


@pytest.mark.fast_rows("ten-light", "ten-dark")
@pytest.mark.parametrize(
    ("scheme", "ground"), [("light", range(201, 256)), ("dark", range(60))], ids=["light", "dark"]
)
def test_dark_is_dark_light_is_light_and_text_stands_out_from_it(page, scheme, ground):
    page.show(width=1280, scheme=scheme)
    assert page.evaluate(chromium.CONTRAST) >= 4.5
    assert page.evaluate("+getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]") in ground


@pytest.mark.fast_rows("ten")
def test_it_prints_on_paper(page):
    assert page.printed().startswith(b"%PDF-")
