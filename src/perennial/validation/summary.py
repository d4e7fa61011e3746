"""The validation report on one screen of a terminal: 80 columns, 24 lines."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from perennial.records.problems import printable
from perennial.validation import content

KINDS = 9  # of problems that are listed, a line each
FACTS = 9  # lines about the images, duplicates and drift
BARS = 32  # bars of a split at most; more classes share them
LEVELS, ASCII_LEVELS = "▁▂▃▄▅▆▇█", ".:-=+*#%@"
COLOURS = {"error": "red", "warn": "yellow"}
NAME = 16  # columns of what stands on the left


def tell(report: Mapping[str, object]) -> None:
    """Prints the content of validation.json where a person reads along."""
    Console(stderr=True).print(summary(report))


def summary(report: Mapping[str, object]) -> "Summary":
    """The content of validation.json as something that rich prints; parts of it may be missing."""
    return Summary(report)


class Summary:
    """A report for a terminal."""

    def __init__(self, report: Mapping[str, object]) -> None:
        self.report = report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Verdict, splits, facts and the kinds of problems, each line cut at the terminal's width."""
        kinds = content.by_code(self.report)
        levels = ASCII_LEVELS if options.ascii_only else LEVELS
        for line in (
            _verdict(self.report, kinds),
            *_splits(self.report, levels),
            *_facts(content.mapping(self.report.get("statistics"))),
            *_kinds(self.report, kinds),
        ):
            line.no_wrap, line.overflow = True, "crop" if options.ascii_only else "ellipsis"
            yield line


def bars(per_class: Sequence[int], levels: str) -> str:
    """A mark for each class, as high as its share of the largest; a blank where a class has no example.

    Where there are more classes than bars, neighbours share one, which shows the smallest of them.
    """
    width, most = min(len(per_class), BARS), max(per_class, default=0)
    bounds = [len(per_class) * number // max(width, 1) for number in range(width + 1)]
    smallest = [min(per_class[start:stop]) for start, stop in pairwise(bounds)]
    top = len(levels) - 1
    return "".join(levels[round(top * count / most)] if count else " " for count in smallest)


def _verdict(report: Mapping[str, object], kinds: list[tuple[str, str, int]]) -> Text:
    errors = sum(count for _, severity, count in kinds if severity == "error")
    warnings = sum(count for _, _, count in kinds) - errors
    found = f"{errors:,} errors, {warnings:,} warnings" if kinds else "no problems"
    verdict = ("sound", "bold green") if report.get("ok") else ("not sound", "bold red")
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


def _kinds(report: Mapping[str, object], kinds: list[tuple[str, str, int]]) -> Iterator[Text]:
    """Each kind of problem with the first of it."""
    firsts = {str(problem["code"]): problem for problem in reversed(content.problems(report))}
    for code, severity, count in kinds[:KINDS]:
        told = f"  {_told(firsts[code])}" if code in firsts else ""
        yield Text.assemble(f"{count:>7,} ", (printable(code), COLOURS.get(severity, "")), printable(told))
    if len(kinds) > KINDS:
        yield Text(f"and {len(kinds) - KINDS} more kinds of problems")


def _told(problem: Mapping[str, object]) -> str:
    place = "" if problem["record"] is None else f" record {problem['record']}"
    return f"{problem['file']}{place}: {problem['message']}"
