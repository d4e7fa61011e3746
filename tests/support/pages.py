"""A page of HTML as its reader and its browser take it."""

import html
import html.parser
import re

EMPTY = ("meta", "img", "br")


class Elements(html.parser.HTMLParser):
    """Sees that every element is closed where it should be, and what there is to fetch."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.links: list[str | None] = []
        self.feed(source)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.links += [value for name, value in attrs if name in {"src", "href", "action", "xlink:href"}]


def text(source: str) -> str:
    """What a reader of the page sees, without its styles."""
    shown = re.sub(r"<style.*?</style>|<[^>]*>", " ", source, flags=re.DOTALL)
    return " ".join(html.unescape(shown).split())
