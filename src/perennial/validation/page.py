"""The validation report as one page of HTML that needs nothing but itself: no script, no network."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perennial.images import Image
from perennial.validation import content, templates
from perennial.validation.thumbnails import thumbnail

TEMPLATE = "page.html.jinja"
PROBLEMS = 200  # listed; the report has more of them
FLAGGED = 60  # shown with their images
SAMPLED = 60  # classes of which samples are shown
CHART = (480, 150)  # units of the drawing: width, height of the bars
LETTER = 7.4  # units that a letter is wide, about
LABELLED = 32  # bars; more have no room for names


@dataclass(frozen=True)
class Bar:
    """A bar of a chart, in units of the drawing."""

    x: float
    y: float
    width: float
    height: float
    label: str
    title: str


@dataclass(frozen=True)
class Chart:
    """A histogram as bars from left to right."""

    title: str
    bars: Sequence[Bar]
    labels: str  # flat, slanted or none

    @property
    def height(self) -> int:
        """Units of the drawing, with the labels."""
        return CHART[1] + {"flat": 18, "slanted": 64, "none": 4}[self.labels]


def render(
    report: Mapping[str, object],
    classes: Sequence[str],
    samples: Mapping[str, Sequence[Image]],
    flagged: Sequence[tuple[Mapping[str, object], Image | None]],
) -> str:
    """The page: of validation.json's content, sample images by class, and problems with their images.

    Everything but `examples` may be missing from the report. Equal arguments give equal text.
    """
    statistics, codes = content.mapping(report.get("statistics")), content.by_code(report)
    problems = sorted(content.problems(report), key=lambda problem: problem["severity"] != "error")
    of_records = sum(problem["record"] is not None for problem in problems)
    return (
        templates.environment(Path(__file__).parent)
        .get_template(TEMPLATE)
        .render(
            ok=report.get("ok"),
            examples=content.by_split(report.get("examples")),
            codes=codes,
            problems=problems[:PROBLEMS],
            listed=len(problems),
            problem_count=sum(count for _, _, count in codes),
            classes=classes,
            manifest=statistics.get("manifest"),
            splits=list(_splits(statistics)),
            facts=list(content.facts(statistics)),
            class_charts=list(_class_charts(statistics, classes)),
            brightness_charts=list(_brightness_charts(statistics)),
            duplicates=list(content.flat(statistics.get("duplicates"))),
            drift=list(content.flat(statistics.get("drift"))),
            samples=[(name, [thumbnail(image) for image in samples[name]]) for name in list(samples)[:SAMPLED]],
            sampled_classes=len(samples),
            flagged=[
                (content.problem(problem), image and thumbnail(image)) for problem, image in flagged[:FLAGGED]
            ],
            flagged_count=of_records,
            chart_width=CHART[0],
            chart_height=CHART[1],
        )
    )


def chart(title: str, counts: Sequence[int], names: Sequence[str]) -> Chart:
    """The bars of a histogram, the highest as high as the chart."""
    slot, most = CHART[0] / max(len(counts), 1), max(counts, default=0) or 1
    longest = max(map(len, names), default=0)
    labels = "none" if len(counts) > LABELLED else "flat" if longest * LETTER < slot else "slanted"
    bars = []
    for number, (count, name) in enumerate(zip(counts, names, strict=False)):
        height = CHART[1] * count / most
        bars.append(
            Bar(
                x=round((number + 0.1) * slot, 2),
                y=round(CHART[1] - height, 2),
                width=round(0.8 * slot, 2),
                height=round(height, 2),
                label=name if len(name) <= 14 else f"{name[:13]}…",
                title=f"{name}: {count:,}",
            )
        )
    return Chart(title, bars, labels)


def _splits(statistics: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    """A line of the table of splits each: the split, its examples, least and most of a class."""
    for split, found in content.by_split(statistics.get("splits")).items():
        per_class = content.counts(found, "per_class")
        yield {
            "split": split,
            "examples": content.mapping(found).get("examples"),
            "least": min(per_class, default=None),
            "most": max(per_class, default=None),
        }


def _class_charts(statistics: Mapping[str, object], classes: Sequence[str]) -> Iterator[Chart]:
    for split, found in content.by_split(statistics.get("splits")).items():
        if counts := content.counts(found, "per_class"):
            yield chart(split, counts, classes)


def _brightness_charts(statistics: Mapping[str, object]) -> Iterator[Chart]:
    for split, found in content.by_split(statistics.get("splits")).items():
        if counts := content.counts(found, "brightness"):
            step = 256 / len(counts)
            names = [f"{number * step:.0f} to {(number + 1) * step:.0f}" for number in range(len(counts))]
            yield replace(chart(split, counts, names), labels="none")
