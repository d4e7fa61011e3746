"""A page of HTML as its reader and its browser take it."""

import html
import html.parser
import re
from collections import Counter

EMPTY = ("meta", "img", "br", "hr", "input", "link")
CELLS = {"td", "th"}


class Elements(html.parser.HTMLParser):
    """Sees that every element is closed where it should be, what there is to fetch, and the cells of tables."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen = Counter[str]()
        self.links: list[str | None] = []
        self.places: set[str | None] = set()  # that a link may lead to
        self.rows: list[list[str]] = []  # of all tables
        self.feed(source)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in EMPTY:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in CELLS:
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not CELLS.isdisjoint(self.open):
            self.rows[-1][-1] += data

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] += 1
        self.places |= {value for name, value in attrs if name == "id"}
        self.links += [value for name, value in attrs if name in {"src", "href", "action", "xlink:href"}]


def text(source: str) -> str:
    """What a reader of the page sees, without its styles."""
    shown = re.sub(r"<style.*?</style>|<[^>]*>", " ", source, flags=re.DOTALL)
    return " ".join(html.unescape(shown).split())
