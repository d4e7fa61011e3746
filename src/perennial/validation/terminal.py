"""The validation report on one screen of a terminal: 80 columns, 24 lines."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from perennial.errors import printable
from perennial.validation import report as content

CODES = 9  # of problems that are listed, a line each
FACTS = 9  # lines about the images, duplicates and drift
BARS = 32  # of a split at most; more classes share them
LEVELS, ASCII_LEVELS = "▁▂▃▄▅▆▇█", ".:-=+*#%@"
COLOURS = {"error": "red", "warn": "yellow"}
NAME = 16  # width of the left column


def show(report: Mapping[str, object]) -> None:
    """Prints a summary of validation.json's content to stderr."""
    Console(stderr=True).print(Summary(report))


class Summary:
    """The content of validation.json, which may be incomplete, for rich to print."""

    def __init__(self, report: Mapping[str, object]) -> None:
        self.report = report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Verdict, splits, facts and the codes of problems, each line cut at the terminal's width."""
        codes = content.by_code(self.report)
        levels = ASCII_LEVELS if options.ascii_only else LEVELS
        for line in (
            _verdict(self.report, codes),
            *_splits(self.report, levels),
            *_facts(content.mapping(self.report.get("statistics"))),
            *_problems(self.report, codes),
        ):
            if options.ascii_only:
                line.plain = line.plain.encode("ascii", "backslashreplace").decode()
            line.no_wrap, line.overflow = True, "crop" if options.ascii_only else "ellipsis"
            yield line


def bars(per_class: Sequence[int], levels: str) -> str:
    """A mark for each class, as high as its share of the largest; a blank if the class has no example.

    If there are more classes than bars, neighbours share one, which shows the smallest of them.
    """
    width, most = min(len(per_class), BARS), max(per_class, default=0)
    bounds = [len(per_class) * number // max(width, 1) for number in range(width + 1)]
    smallest = [min(per_class[start:stop]) for start, stop in pairwise(bounds)]
    top = len(levels) - 1
    return "".join(levels[round(top * count / most)] if count else " " for count in smallest)


def _verdict(report: Mapping[str, object], codes: list[tuple[str, str, int]]) -> Text:
    errors = sum(count for _, severity, count in codes if severity == "error")
    warnings = sum(count for _, _, count in codes) - errors
    found = f"{errors:,} errors, {warnings:,} warnings" if codes else "no problems"
    verdict = ("valid", "bold green") if report.get("ok") else ("not valid", "bold red")
    return Text.assemble("The data are ", verdict, f": {found}")


def _splits(report: Mapping[str, object], levels: str) -> Iterator[Text]:
    """Examples and balance of each split."""
    found = content.mapping(content.mapping(report.get("statistics")).get("splits"))
    for split, examples in content.by_split(report.get("examples")).items():
        per_class = content.counts(found.get(split), "per_class")
        limits = f"  {min(per_class):,} to {max(per_class):,} a class" if per_class else ""
        count = f"{examples:,}".rjust(11)
        yield Text.assemble(f"{split:<{NAME}}{count} examples  ", (bars(per_class, levels), "cyan"), limits)


def _facts(statistics: Mapping[str, object]) -> Iterator[Text]:
    lines = list(content.facts(statistics))
    for title in ("duplicates", "drift"):
        parts = [f"{name} {value}" for name, value in content.flat(statistics.get(title))]
        lines += [(title, "; ".join(parts))] if parts else []
    for name, value in lines[:FACTS]:
        yield Text(f"{name:<{NAME}}{printable(value)}")


def _problems(report: Mapping[str, object], codes: list[tuple[str, str, int]]) -> Iterator[Text]:
    """Each code with its first problem."""
    firsts = {str(problem["code"]): problem for problem in reversed(content.problems(report))}
    for code, severity, count in codes[:CODES]:
        first = ""
        if found := firsts.get(code):
            place = "" if found["record"] is None else f" record {found['record']}"
            first = printable(f"  {found['file']}{place}: {found['message']}")
        yield Text.assemble(f"{count:>7,} ", (printable(code), COLOURS.get(severity, "")), first)
    if len(codes) > CODES:
        yield Text(f"and {len(codes) - CODES} more kinds of problems")
