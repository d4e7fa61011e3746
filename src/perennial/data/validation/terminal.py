"""The validation report on one screen of a terminal: 80 columns, 24 lines."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from rich.console import Console
from rich.text import Text

from perennial.base.errors import printable
from perennial.data.validation import validation_report as content

CODES = 9  # of problems that are listed, a line each
FACTS = 9  # lines about the images, duplicates and drift
BARS = 32  # of a split at most; more classes share them
LEVELS, ASCII_LEVELS = "▁▂▃▄▅▆▇█", ".:-=+*#%@"
COLOURS = {"error": "red", "warn": "yellow"}
NAME = 16  # width of the left column


def show(report: Mapping[str, Any], console: Console | None = None) -> None:
    """Print a summary of validation.json's content, to stderr unless another console is given."""
    console = console or Console(stderr=True)
    ascii_only = console.options.ascii_only
    codes = content.by_code(report)
    for line in (
        _verdict(report, codes),
        *_splits(report, ASCII_LEVELS if ascii_only else LEVELS),
        *_facts(report["statistics"]),
        *_problems(report, codes),
    ):
        if ascii_only:
            line.plain = line.plain.encode("ascii", "backslashreplace").decode()
        console.print(line, no_wrap=True, overflow="crop" if ascii_only else "ellipsis")


def bars(per_class: Sequence[int], levels: str) -> str:
    """Draw a mark for each class, relative to the largest; neighbours may share one, of the smallest."""
    width, most = min(len(per_class), BARS), max(per_class, default=0)
    bounds = [len(per_class) * number // max(width, 1) for number in range(width + 1)]
    smallest = [min(per_class[start:stop]) for start, stop in pairwise(bounds)]
    top = len(levels) - 1
    return "".join(levels[round(top * count / most)] if count else " " for count in smallest)


def _verdict(report: Mapping[str, Any], codes: list[tuple[str, str, int]]) -> Text:
    errors = sum(count for _, severity, count in codes if severity == "error")
    warnings = sum(count for _, _, count in codes) - errors
    found = f"{errors:,} errors, {warnings:,} warnings" if codes else "no problems"
    verdict = ("valid", "bold green") if report["ok"] else ("not valid", "bold red")
    return Text.assemble("The data are ", verdict, f": {found}")


def _splits(report: Mapping[str, Any], levels: str) -> Iterator[Text]:
    """Examples and balance of each split."""
    for split, part in content.by_split(report["statistics"]["splits"]).items():
        per_class, count = part["per_class"], f"{part['examples']:,}".rjust(11)
        limits = f"  {min(per_class):,} to {max(per_class):,} a class" if per_class else ""
        yield Text.assemble(f"{split:<{NAME}}{count} examples  ", (bars(per_class, levels), "cyan"), limits)


def _facts(statistics: Mapping[str, Any]) -> Iterator[Text]:
    lines = list(content.facts(statistics))
    for title in ("duplicates", "drift"):
        parts = [f"{name} {value}" for name, value in content.flat(statistics[title])]
        lines += [(title, "; ".join(parts))] if parts else []
    for name, value in lines[:FACTS]:
        yield Text(f"{name:<{NAME}}{printable(value)}")


def _problems(report: Mapping[str, Any], codes: list[tuple[str, str, int]]) -> Iterator[Text]:
    """Each code with its first problem."""
    firsts = {problem["code"]: problem for problem in reversed(report["problems"])}
    for code, severity, count in codes[:CODES]:
        first = ""
        if found := firsts.get(code):
            place = "" if found["record"] is None else f" record {found['record']}"
            first = printable(f"  {found['file']}{place}: {found['message']}")
        yield Text.assemble(f"{count:>7,} ", (printable(code), COLOURS[severity]), first)
    if len(codes) > CODES:
        yield Text(f"and {len(codes) - CODES} more kinds of problems")
