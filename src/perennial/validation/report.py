"""The validation report: what programs read, and the images that people want to see with it."""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perennial.images import Image
from perennial.images.statistics import VALUES, Statistics
from perennial.records import access
from perennial.records.checks import Findings
from perennial.records.manifest import Manifest, Split
from perennial.records.problems import Problem, as_json
from perennial.tfrecord import example
from perennial.tfrecord.framing import Places
from perennial.validation import page
from perennial.validation.judgement import Judgement

SAMPLES = 8  # images a class
SAMPLE_RECORDS = 20_000  # records that are searched for them


def report(data: Manifest, digest: str, findings: Findings, judgement: Judgement) -> dict[str, Any]:
    """The report as it is written: JSON values only."""
    total = Statistics()
    for part in findings.statistics.values():
        total.add(part)
    splits = {
        split: {
            "examples": int(findings.per_class[split].sum()),
            "per_class": findings.per_class[split].tolist(),
            "brightness": findings.statistics[split].brightness.tolist(),
        }
        for split in data.splits
        if split in findings.per_class
    }
    return {
        "ok": not any(problem.severity == "error" for problem in findings.problems),
        "examples": {split: part["examples"] for split, part in splits.items()},
        "problems": [as_json(problem) for problem in findings.problems],
        "problem_counts": dict(findings.codes),
        "statistics": {
            "manifest": digest,
            "classes": data.classes,
            "bytes": sum(shard.bytes for part in data.splits.values() for shard in part.shards),
            "splits": splits,
            "duplicates": judgement.duplicates,
            "drift": judgement.drift,
            **_sizes(total),
            **_pixels(total),
        },
    }


def _sizes(statistics: Statistics) -> dict[str, list[int]]:
    """Smallest and largest height, width (pixels) and channels."""
    sizes = list(zip(*statistics.sizes, strict=True)) if statistics.sizes else [(0,), (0,), (0,)]
    return {
        name: [min(values), max(values)]
        for name, values in zip(("height", "width", "channels"), sizes, strict=True)
    }


def _pixels(statistics: Statistics) -> dict[str, Any]:
    """Mean and deviation of all values and of each channel, 0..255; grey images count as RGB among RGB ones."""
    if not statistics.histograms:
        return {"mean": None, "channel_mean": [], "channel_std": []}
    channels = max(statistics.histograms)
    histogram: NDArray[np.int64] = np.zeros((channels, VALUES), np.int64)
    for found in statistics.histograms.values():
        histogram = histogram + found
    values, counts = np.arange(VALUES), histogram.sum(1)
    means = histogram @ values / counts
    deviations = np.sqrt(np.maximum(histogram @ values**2 / counts - means**2, 0))
    return {
        "mean": float(means.mean()),
        "channel_mean": means.tolist(),
        "channel_std": deviations.tolist(),
    }


def samples(folder: Path, data: Manifest, places: Mapping[str, Places]) -> dict[str, list[Image]]:
    """The first images of each class in train."""
    found: dict[int, list[Image]] = {label: [] for label in range(len(data.classes))}
    shards = data.splits["train"].shards if "train" in data.splits else ()
    records = ((folder / shard.file, *place) for shard in shards for place in places[shard.file].tolist())
    wanting = len(found)
    for file, offset, length in islice(records, SAMPLE_RECORDS):
        fields, encoded = example.parse(access.data(file, offset, length))
        images = found[fields.label]
        if len(images) < SAMPLES:
            images.append(_image(fields, encoded))
            wanting -= len(images) == SAMPLES
        if not wanting:
            break
    return {data.classes[label]: images for label, images in found.items()}


def flagged(
    folder: Path, problems: Sequence[Problem], places: Mapping[str, Places]
) -> list[tuple[dict[str, object], Image | None]]:
    """The first problems of records, each with the image where it can be read."""
    chosen = [problem for problem in problems if problem.record is not None][: page.FLAGGED]
    return [(as_json(problem), _flagged(folder, problem, places)) for problem in chosen]


def _flagged(folder: Path, problem: Problem, places: Mapping[str, Places]) -> Image | None:
    found = places.get(problem.file, ())
    if problem.record is None or problem.record >= len(found):
        return None
    try:
        data = access.data(folder / problem.file, *map(int, found[problem.record]))
        return _image(*example.parse(data))
    except ValueError:
        return None


def _image(fields: example.Fields, encoded: bytes) -> Image:
    return Image(
        encoded=encoded,
        format=fields.format,
        height=fields.height,
        width=fields.width,
        filename=fields.filename,
    )


def brightness(findings: Findings, split: Split) -> list[int]:
    """Images of a split by mean brightness."""
    return [int(count) for count in findings.statistics[split].brightness]
