"""The validation report as one self-contained HTML page without scripts, and parts for other pages."""

import base64
import io
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import PIL.Image

from perennial.base.errors import printable
from perennial.data.images import BRIGHTNESS_BINS, Image, decode
from perennial.data.images.statistics import VALUES
from perennial.data.validation import validation_report as content
from perennial.data.validation.problems import FIXES

PROBLEMS = 200  # listed; the report has more of them
BARS = 200  # of a chart at most; more classes share them
LABELLED = 32  # bars with names; more leave no room for them
SIDE = 128  # pixels of a thumbnail at most
SHOWN, SHOWN_SMALL = 112, 84  # pixels on the page: at most, and about for an enlarged small image
SMALL_BYTES = 1 << 15  # up to here an image is embedded as it is
QUALITY = 80  # of a JPEG thumbnail; a PNG would be ten times as large
WIDTH = VALUES // BRIGHTNESS_BINS
BRIGHTNESS = [f"{low} to {low + WIDTH}" for low in range(0, VALUES, WIDTH)]
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
    """Load the HTML templates of a folder: all text is escaped, and an unknown name is an error."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # HTML escaping keeps control characters, which are not allowed in a page.
        finalize=lambda value: printable(value) if type(value) is str else value,
    )


def render(
    report: Mapping[str, Any],
    samples: Mapping[str, Sequence[Image]],
    flagged: Sequence[tuple[Mapping[str, Any], Sequence[Image | None]]],
) -> str:
    """Render the page: the content of validation.json, samples by class, and problems with images."""
    found, codes = report["statistics"], content.by_code(report)
    splits, classes = content.by_split(found["splits"]), found["classes"]
    problems = sorted(report["problems"], key=lambda problem: problem["severity"] != "error")
    page = environment(Path(__file__).parent).get_template("page.html.jinja")
    labelled = len(classes) <= LABELLED
    return page.render(
        ok=report["ok"],
        codes=codes,
        fixes=FIXES,
        problems=problems[:PROBLEMS],
        listed=len(problems),
        problem_count=sum(count for _, _, count in codes),
        classes=len(classes),
        manifest=found["manifest"],
        splits=splits,
        facts=content.titled(found),
        charts={
            "Examples of each class": _charts(splits, "per_class", classes, labelled=labelled),
            "Mean brightness, 0 to 255": _charts(splits, "brightness", BRIGHTNESS, labelled=False),
        },
        samples=[(name, [thumbnail(image) for image in images]) for name, images in samples.items()],
        flagged=[(problem, [image and thumbnail(image) for image in images]) for problem, images in flagged],
        flagged_count=sum(problem["record"] is not None for problem in problems),
    )


def _charts(
    splits: Mapping[str, Mapping[str, Any]], key: str, names: Sequence[str], *, labelled: bool
) -> list[tuple[str, list[Bar], bool]]:
    """Title, bars and whether there is room for labels, for each split."""
    return [(split, bars(part[key], names), labelled) for split, part in splits.items() if part[key]]


def bars(counts: Sequence[int], names: Sequence[str], most: int = BARS) -> list[Bar]:
    """The bars of a histogram, the highest 100 percent high; neighbours may share one, with their mean."""
    width = min(len(counts), most)
    spans = list(pairwise(len(counts) * number // width for number in range(width + 1)))
    means = [statistics.fmean(counts[start:stop]) for start, stop in spans]
    found = []
    for mean, (start, stop) in zip(means, spans, strict=True):
        title = f"{names[start]}: {counts[start]:,}"
        if stop - start > 1:
            least, largest = min(counts[start:stop]), max(counts[start:stop])
            title = f"{names[start]} to {names[stop - 1]}: {least:,} to {largest:,}"
        label = names[start] if len(names[start]) <= 14 else f"{names[start][:13]}…"
        found.append(Bar(round(100 * mean / (max(means) or 1), 2), label, title))
    return found


def thumbnail(image: Image) -> Thumbnail:
    """Make a thumbnail: a small image unchanged, others at most 128 pixels a side; a placeholder if damaged."""
    try:
        pixels = decode.decoded(image.encoded)
    except ValueError:
        return Thumbnail(None, SHOWN_SMALL, SHOWN_SMALL)
    if not isinstance(pixels, PIL.Image.Image):
        pixels = PIL.Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[..., 0])
    found, longest = decode.header(image.encoded), max(pixels.size)
    if found and longest <= SIDE and len(image.encoded) <= SMALL_BYTES:
        factor = max(round(SHOWN_SMALL / longest), 1)
        uri = _uri(MIME[found.format], image.encoded)
        return Thumbnail(uri, factor * pixels.width, factor * pixels.height, factor > 1)
    pixels.thumbnail((SIDE, SIDE), PIL.Image.Resampling.BOX)
    stream = io.BytesIO()
    pixels.save(stream, "JPEG", quality=QUALITY)
    width, height = (max(side * SHOWN // SIDE, 1) for side in pixels.size)
    return Thumbnail(_uri("image/jpeg", stream.getvalue()), width, height)


def _uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
