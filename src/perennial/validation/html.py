"""The validation report as one self-contained HTML page without scripts, and parts for other pages."""

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import jinja2
import PIL.Image

from perennial.errors import printable
from perennial.images import Image
from perennial.images.decode import Pixels, decoded
from perennial.images.header import header
from perennial.validation import report as content
from perennial.validation.problems import FIXES

TEMPLATE = "page.html.jinja"
PROBLEMS = 200  # listed; the report has more of them
BARS = 200  # of a chart at most; more classes share them
LABELLED = 32  # bars; more have no room for names
SIDE = 128  # pixels of a thumbnail at most
SHOWN, SHOWN_SMALL = 112, 84  # pixels on the page: at most, and about for an enlarged small image
SMALL_BYTES = 1 << 15  # up to here an image is embedded as it is
QUALITY = 80  # of a JPEG thumbnail; a PNG would be ten times as large
MIME = {"png": "image/png", "jpg": "image/jpeg"}


class Bar(NamedTuple):
    """A bar of a chart."""

    percent: float  # height
    label: str
    title: str


@dataclass(frozen=True)
class Thumbnail:
    """A small image for a page; `uri` is None if the image does not decode."""

    uri: str | None
    width: int  # pixels on the page
    height: int
    pixelated: bool = False  # enlarged, its pixels shown as squares


def environment(folder: Path) -> jinja2.Environment:
    """The HTML templates of a folder: all text is escaped, and an unknown name is an error."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Escaping for HTML leaves control characters in, which no page may hold.
        finalize=lambda value: printable(value) if type(value) is str else value,
    )


def render(
    report: Mapping[str, object],
    classes: Sequence[str],
    samples: Mapping[str, Sequence[Image]],
    flagged: Sequence[tuple[Mapping[str, object], Image | None]],
) -> str:
    """The page of validation.json's content, sample images by class, and problems with their images.

    The report may be incomplete. Equal arguments give equal text.
    """
    statistics, codes = content.mapping(report.get("statistics")), content.by_code(report)
    problems = sorted(content.problems(report), key=lambda problem: problem["severity"] != "error")
    template = environment(Path(__file__).parent).get_template(TEMPLATE)
    return template.render(
        ok=report.get("ok"),
        examples=content.by_split(report.get("examples")),
        codes=codes,
        fixes=FIXES,
        problems=problems[:PROBLEMS],
        listed=len(problems),
        problem_count=sum(count for _, _, count in codes),
        classes=len(classes),
        manifest=statistics.get("manifest"),
        splits=list(_splits(statistics)),
        facts=list(content.facts(statistics)),
        charts=list(_charts(statistics, classes)),
        duplicates=list(content.flat(statistics.get("duplicates"))),
        drift=list(content.flat(statistics.get("drift"))),
        samples=[(name, [thumbnail(image) for image in images]) for name, images in samples.items()],
        flagged=[(problem, image and thumbnail(image)) for problem, image in flagged],
        flagged_count=sum(problem["record"] is not None for problem in problems),
    )


def bars(counts: Sequence[int], names: Sequence[str], most: int = BARS) -> list[Bar]:
    """The bars of a histogram, the highest 100 percent high.

    If there are more counts than bars, neighbours share one, which is as high as their mean.
    """
    width = min(len(counts), len(names), most)
    bounds = [len(counts) * number // max(width, 1) for number in range(width + 1)]
    means = [sum(counts[start:stop]) / (stop - start) for start, stop in pairwise(bounds)]
    found = []
    for mean, (start, stop) in zip(means, pairwise(bounds), strict=True):
        title = f"{names[start]}: {counts[start]:,}"
        if stop - start > 1:
            least, largest = min(counts[start:stop]), max(counts[start:stop])
            title = f"{names[start]} to {names[stop - 1]}: {least:,} to {largest:,}"
        label = names[start] if len(names[start]) <= 14 else f"{names[start][:13]}…"
        found.append(Bar(round(100 * mean / (max(means) or 1), 2), label, title))
    return found


def _splits(statistics: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    """A row of the table of splits each: the split, its examples, smallest and largest class."""
    for split, found in content.by_split(statistics.get("splits")).items():
        per_class = content.counts(found, "per_class")
        yield {
            "split": split,
            "examples": content.mapping(found).get("examples"),
            "least": min(per_class, default=None),
            "most": max(per_class, default=None),
        }


def _charts(
    statistics: Mapping[str, object], classes: Sequence[str]
) -> Iterator[tuple[str, list[tuple[str, list[Bar], bool]]]]:
    """Title and charts of each section; a chart has a title, bars and whether there is room for labels."""
    splits = content.by_split(statistics.get("splits"))
    for title, key in (
        ("Examples of each class", "per_class"),
        ("Mean brightness of the images, 0 to 255", "brightness"),
    ):
        charts = []
        for split, found in splits.items():
            if counts := content.counts(found, key):
                edges = [f"{256 * number / len(counts):.0f}" for number in range(len(counts) + 1)]
                names = classes if key == "per_class" else [f"{low} to {high}" for low, high in pairwise(edges)]
                charts.append((split, bars(counts, names), key == "per_class" and len(counts) <= LABELLED))
        if charts:
            yield title, charts


def thumbnail(image: Image) -> Thumbnail:
    """The image as it is if small, else reduced to 128 pixels a side; a placeholder if it does not decode."""
    try:
        pixels = decoded(image.encoded)
    except ValueError:
        return Thumbnail(None, SHOWN_SMALL, SHOWN_SMALL)
    found = header(image.encoded)
    height, width = pixels.shape[:2] if not isinstance(pixels, PIL.Image.Image) else pixels.size[::-1]
    if found and max(height, width) <= SIDE and len(image.encoded) <= SMALL_BYTES:
        factor = max(round(SHOWN_SMALL / max(height, width)), 1)
        return Thumbnail(_uri(MIME[found.format], image.encoded), factor * width, factor * height, factor > 1)
    small = _reduced(pixels)
    stream = io.BytesIO()
    small.save(stream, "JPEG", quality=QUALITY)
    width, height = (max(side * SHOWN // SIDE, 1) for side in small.size)
    return Thumbnail(_uri("image/jpeg", stream.getvalue()), width, height)


def _reduced(pixels: Pixels | PIL.Image.Image) -> PIL.Image.Image:
    """The image at most 128 pixels a side, its sides in proportion."""
    if not isinstance(pixels, PIL.Image.Image):
        pixels = PIL.Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[..., 0])
    scale = min(SIDE / max(pixels.size), 1)
    size = (max(round(pixels.width * scale), 1), max(round(pixels.height * scale), 1))
    return pixels.resize(size, PIL.Image.Resampling.BOX)


def _uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
