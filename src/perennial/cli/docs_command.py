"""`perennial docs`: the pages of docs/ are listed by topic, searched, and shown here or in a browser."""

import difflib
import html
import os
import re
import shutil
import sys
import webbrowser
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer

from perennial.base import documents, files
from perennial.base.errors import ConfigError
from perennial.base.project.source_code import PACKAGE
from perennial.cli.command import command, exclusive, output, wants_json
from perennial.cli.option_types import argument, switch, typed

app = typer.Typer(rich_markup_mode=None)
IN_WHEEL = PACKAGE / "docs"
FOLDER = IN_WHEEL if IN_WHEEL.is_dir() else PACKAGE.parents[1] / "docs"
MENU = "mkdocs.yml"  # of the site, which the wheel has beside the pages
COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
WARNING = re.compile(r'^!!! \w+ "(.*)"\n {4}', re.MULTILINE)  # the next line is what it says
PICTURE = re.compile(r"!\[([^\]]*)\]\([^)]*\)")
LINK = re.compile(r"\[([^\]]*)\]\((?!https?:)(?:[^()\s#]*?([\w-]+)\.md)?(?:#[^()\s]*)?\)")
HEADING = re.compile(r"[^\w\- ]")
FOUND = 20  # pages that a search shows
STYLE = (
    ":root{color-scheme:light dark}body{font:16px/1.6 system-ui;max-width:52rem;margin:auto;padding:1rem}"
    "pre{overflow-x:auto;padding:.8rem;background:#8881}table{border-collapse:collapse;display:block;overflow:auto}"
    "td,th{border:1px solid #8885;padding:.3rem .6rem;text-align:left}img{max-width:100%}a{color:#00897b}"
)


@dataclass(frozen=True)
class Page:
    """A page of the documentation."""

    page: str  # its name for `perennial docs`: that of its file
    title: str
    topic: str
    path: str  # below docs/

    def text(self) -> str:
        """Its Markdown, without what only the site understands."""
        return WARNING.sub(r"**\1**: ", COMMENT.sub("", (FOLDER / self.path).read_text(encoding="utf-8")))


@command(app, "docs")
def _docs(
    page: str | None = argument("Its name. [default: list all]", default=None, metavar="[PAGE]"),
    *,
    search: str | None = typed("List the pages that have all of these words.", metavar="WORDS"),
    web: bool = switch("--web", "Open the pages in a browser; needs no network."),
) -> None:
    exclusive(search=search, web=web)
    listed = pages()
    if search is not None:
        found = matches(listed, search.casefold().split())
        lines = [f"{each['page']:<22} {each['title']}\n{'':<22} {each['line']}" for each in found[:FOUND]]
        output(found, lines or [f"no page has all of: {search}"])
        return
    shown = None if page is None else named(listed, page)
    if web:
        address = site(listed, files.home() / "docs") / (shown or listed[0]).path.replace(".md", ".html")
        output({"url": address.as_uri()}, address.as_uri())
        webbrowser.open(address.as_uri())
    elif shown is None:
        output(list(map(asdict, listed)), _menu(listed))
    elif wants_json() or not sys.stdout.isatty():
        output({**asdict(shown), "text": shown.text()}, shown.text().removesuffix("\n"))
    else:
        _show(shown)


def pages() -> list[Page]:
    """All pages, in the order of the site's menu."""
    menu = FOLDER / MENU if IN_WHEEL.is_dir() else FOLDER.parent / "infra" / MENU
    topics = documents.parse_yaml(menu.read_text(encoding="utf-8"))["nav"]
    return list(_listed(topics, "Start"))


def _listed(entries: Sequence[dict[str, Any]], topic: str) -> Iterator[Page]:
    for title, inside in (pair for entry in entries for pair in entry.items()):
        if isinstance(inside, str):
            yield Page(Path(inside).stem, title, topic, inside)
        else:
            yield from _listed(inside, title)


def _menu(listed: Sequence[Page]) -> Iterator[str]:
    topic = ""
    for each in listed:
        if each.topic != topic:
            yield f"\n{each.topic}"
        topic = each.topic
        yield f"  {each.page:<22} {each.title}"
    yield "\n`perennial docs PAGE` shows a page, --search WORDS finds pages, --web opens a browser"


def named(listed: Sequence[Page], name: str) -> Page:
    """The page of a name, a path or a title."""
    wanted = name.removeprefix("docs/").removesuffix(".md").casefold()
    for each in listed:
        if wanted in {each.page, each.path.removesuffix(".md"), each.title.casefold()}:
            return each
    near = difflib.get_close_matches(wanted, [each.page for each in listed], n=3)
    advice = f"did you mean {' or '.join(near)}?" if near else "`perennial docs` lists all"
    raise ConfigError(f"there is no page {name!r}; {advice}; `perennial docs --search {name}` looks into them")


def matches(listed: Sequence[Page], words: Sequence[str]) -> list[dict[str, str]]:
    """The pages that have all words, each with its best line: words in the title or name count most."""
    found = []
    for each in listed:
        text, head = each.text(), f"{each.page} {each.title}".casefold()
        folded = text.casefold()
        if words and all(word in folded or word in head for word in words):
            line = max(text.splitlines(), key=lambda row: sum(word in row.casefold() for word in words))
            score = sum(20 * (word in head) + min(folded.count(word), 19) for word in words)
            found.append((-score, {**asdict(each), "line": line.strip()[:100]}))
    return [each for _, each in sorted(found, key=lambda pair: pair[0])]


def _show(page: Page) -> None:
    """Show a page in a terminal, in its pager."""
    from rich.console import Console
    from rich.markdown import Markdown

    text = PICTURE.sub(r"*(picture: \1; `--web` shows it)*", page.text())
    text = LINK.sub(lambda link: f"{link[1]} (`docs {link[2]}`)" if link[2] else link[1], text)
    os.environ.setdefault("LESS", "-FRX")
    console = Console(width=min(shutil.get_terminal_size().columns, 110))
    with console.pager(styles=True):
        console.print(Markdown(text))


def site(listed: Sequence[Page], folder: Path) -> Path:
    """Write all pages as HTML, which links to itself alone."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    menu = "".join(f'<li><a href="{{up}}{each.path}">{html.escape(each.title)}</a></li>' for each in listed)
    for each in listed:
        tokens = parser.parse(each.text())
        for heading, inline in pairwise(tokens):
            if heading.type == "heading_open":
                heading.attrSet("id", HEADING.sub("", inline.content).lower().replace(" ", "-"))
        body = parser.renderer.render(tokens, parser.options, {})
        up = "../" * each.path.count("/")
        page = f"{body}<hr><details><summary>All pages</summary><ul>{menu.format(up=up)}</ul></details>"
        page = re.sub(r'(href="(?!https?:)[^"#]*)\.md\b', r"\1.html", page)
        head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(each.title)}</title>'
        file = folder / each.path.replace(".md", ".html")
        files.write_bytes(file, f"{head}<style>{STYLE}</style>{page}</html>".encode())
    shutil.copytree(FOLDER / "images", folder / "images", dirs_exist_ok=True)
    return folder
