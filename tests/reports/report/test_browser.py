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
WIDTHS = (320, 390, 768, 1280)
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
CONTRAST = """(() => {
  const light = name => {
    const colour = document.createElement('i');
    colour.style.color = `var(--${name})`;
    document.body.append(colour);
    const parts = getComputedStyle(colour).color.match(/[\\d.]+/g).slice(0, 3).map(part => part / 255);
    colour.remove();
    const [red, green, blue] = parts.map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const ratio = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const text = ['ink', 'soft', 'good', 'bad', 'warn', 'accent'];
  return Math.min(...text.flatMap(name => [ratio(name, 'card'), ratio(name, 'ground')]));
})()"""


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
def test_the_console_stays_empty(page):
    page.show(width=1280)
    assert page.messages() == []


def test_nothing_is_asked_for_but_the_file_itself(page):
    assert [url for url in page.requests() if not url.startswith("data:image/")] == [
        page.evaluate("document.location.href")
    ]


def test_every_image_is_shown(page):
    widths = page.evaluate("[...document.images].map(image => image.naturalWidth)")
    assert len(widths) > 0
    assert min(widths) > 0


@pytest.mark.fast_rows("two-320", "two-1280", "ten-390", "ten-768")
@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_is_wider_than_its_window(page, width):
    page.show(width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_no_text_of_an_example_reaches_out_of_its_card(page, width):
    page.show(width=width)
    assert page.evaluate(OVERHANGING) == []


def test_figures_can_be_read_on_a_phone(page):
    page.show(width=390)
    assert page.evaluate(SMALLEST) >= 8


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(page, scheme):
    page.show(width=1280, scheme=scheme)
    # The least that WCAG 2.1 asks for at level AA, success criterion 1.4.3.
    assert page.evaluate(CONTRAST) >= 4.5


def test_dark_is_dark_and_light_is_light(page):
    grounds = {}
    for scheme in ("dark", "light"):
        page.show(width=1280, scheme=scheme)
        grounds[scheme] = page.evaluate("+getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]")
    assert grounds["dark"] < 60
    assert grounds["light"] > 200


def test_it_prints_on_paper(page):
    assert page.printed().startswith(b"%PDF-")
