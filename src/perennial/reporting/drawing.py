"""Figures as SVG that is part of a page: they take its colours, light or dark, and its font."""

import io
import re
import warnings
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from perennial.errors import printable

# Stand-ins that Matplotlib draws with; the page defines a CSS variable for each.
INK, SOFT, LINE, CARD = "#100001", "#100002", "#100003", "#100004"
ACCENT, SECOND, BAD = "#100005", "#100006", "#100007"
ON_COLOUR, ON_MIDDLE = "#100008", "#100009"
VARIABLES = {
    INK: "ink",
    SOFT: "soft",
    LINE: "line",
    CARD: "card",
    ACCENT: "accent",
    SECOND: "second",
    BAD: "bad",
    ON_COLOUR: "on-colour",
    ON_MIDDLE: "on-middle",
}
WIDTH = 4.2  # inches; about what a phone and a third of a desktop's window show in a text's own size
STYLE: dict[Any, object] = {
    "svg.fonttype": "none",  # text stays text: small, and in the page's font
    "text.parse_math": False,  # a class may be called $
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": SOFT,
    "axes.edgecolor": LINE,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titlepad": 10,
    "grid.color": LINE,
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "xtick.color": LINE,
    "xtick.labelcolor": SOFT,
    "ytick.color": LINE,
    "ytick.labelcolor": SOFT,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "legend.handlelength": 1.2,
}
LETTERS, TAIL = 15, 5  # of a class's name that stand in a figure, the last of which may tell it from others


def drawn(
    draw: Callable[[Figure], None], name: str, description: str, height: float, width: float = WIDTH
) -> str:
    """The figure as an `<svg>` element: its sides in inches, what it shows for those who do not see it.

    Equal figures give equal text; ids differ where names do, so that many figures can stand on one page.
    """
    content = io.StringIO()
    with mpl.rc_context({**STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        # The page's font has the letters that Matplotlib's lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure)
        figure.savefig(content, format="svg", transparent=True)
    return _element(content.getvalue(), description)


def short(name: str) -> str:
    """A name that fits a figure, without what no page may hold."""
    shown = printable(name)
    return shown if len(shown) <= LETTERS else f"{shown[: LETTERS - TAIL - 1]}…{shown[-TAIL:]}"


def _element(svg: str, description: str) -> str:
    """The drawing without what only a file needs."""
    box = re.search(r'viewBox="([^"]*)"', svg)
    inner = re.search(r"<svg[^>]*>(.*)</svg>", svg, re.DOTALL)
    if box is None or inner is None:
        raise ValueError("Matplotlib wrote no SVG element with a viewBox")
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<defs>\s*</defs>", "", inner[1], flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->\s*", "", body, flags=re.DOTALL)
    used = set(re.findall(r"#(\w+)", body))
    body = re.sub(r"<[^>]*>", lambda tag: _restyled(tag[0], used), body)
    label = description.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return f'<svg viewBox="{box[1]}" role="img" aria-label="{label}">{body.strip()}</svg>'


def _restyled(tag: str, used: set[str]) -> str:
    """A tag with the page's colours and without unused ids; in text, classes may be called like either."""
    tag = re.sub(r' id="(\w+)"', lambda found: found[0] if found[1] in used else "", tag)
    for colour, variable in VARIABLES.items():
        tag = tag.replace(colour, f"var(--{variable})")
    return tag
