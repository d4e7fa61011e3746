"""The validation report: building validation.json, choosing images for the page, and reading a report back."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perennial.config.choices import SPLITS
from perennial.images import Image
from perennial.images.statistics import VALUES, Statistics
from perennial.records import random_access
from perennial.records.manifest import Manifest
from perennial.tfrecord import example
from perennial.tfrecord.framing import Spans
from perennial.validation.integrity import Findings
from perennial.validation.policy import Policy
from perennial.validation.problems import Problem

SAMPLES = 8  # images a class
SAMPLED_CLASSES = 60
SAMPLE_RECORDS = 20_000  # records that are searched for samples
FLAGGED = 60  # problems that the page shows with their images


def report(data: Manifest, digest: str, findings: Findings, policy: Policy) -> dict[str, Any]:
    """The content of validation.json."""
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
        "problems": [asdict(problem) for problem in findings.problems],
        "problem_counts": dict(findings.codes),
        "statistics": {
            "manifest": digest,
            "classes": data.classes,
            "bytes": sum(shard.bytes for part in data.splits.values() for shard in part.shards),
            "splits": splits,
            "duplicates": policy.duplicates,
            "drift": policy.drift,
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
    """Mean and standard deviation, 0..255; grey images count as RGB if some are RGB."""
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


def samples(
    folder: Path, data: Manifest, spans: Mapping[str, Spans], records: int = SAMPLE_RECORDS
) -> dict[str, list[Image]]:
    """The first training images of the first classes, from at most so many records."""
    found: dict[int, list[Image]] = {label: [] for label in range(min(len(data.classes), SAMPLED_CLASSES))}
    shards = data.splits["train"].shards if "train" in data.splits else ()
    places = ((folder / shard.file, *span) for shard in shards for span in spans[shard.file].tolist())
    missing = len(found)
    for file, offset, length in islice(places, records):
        fields, encoded = example.parse(random_access.data(file, offset, length))
        images = found.get(fields.label)
        if images is not None and len(images) < SAMPLES:
            images.append(_image(fields, encoded))
            missing -= len(images) == SAMPLES
        if not missing:
            break
    return {data.classes[label]: images for label, images in found.items()}


def flagged(
    folder: Path, problems: Sequence[Problem], spans: Mapping[str, Spans]
) -> list[tuple[dict[str, object], Image | None]]:
    """The first problems of records, each with the image if it is readable."""
    chosen = [problem for problem in problems if problem.record is not None][:FLAGGED]
    return [(asdict(problem), _flagged_image(folder, problem, spans)) for problem in chosen]


def _flagged_image(folder: Path, problem: Problem, spans: Mapping[str, Spans]) -> Image | None:
    found = spans.get(problem.file, ())
    if problem.record is None or problem.record >= len(found):
        return None
    try:
        data = random_access.data(folder / problem.file, *map(int, found[problem.record]))
        return _image(*example.parse(data))
    except ValueError:
        return None


def _image(fields: example.Fields, encoded: bytes) -> Image:
    return Image(encoded, fields.format, fields.height, fields.width, fields.filename)


def by_code(report: Mapping[str, object]) -> list[tuple[str, str, int]]:
    """Code, severity and number of the problems of each code: errors first, then the most frequent."""
    listed = [(str(one["code"]), str(one["severity"])) for one in problems(report)]
    severities = dict(listed)
    # Of a frequent code only the first are listed.
    numbers = mapping(report.get("problem_counts")) or Counter(code for code, _ in listed)
    found = [(code, severities.get(code, "error"), int(str(number))) for code, number in numbers.items()]
    return sorted(found, key=lambda kind: (kind[1] != "error", -kind[2], kind[0]))


def facts(statistics: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Name and value of what is known about all images."""
    units = {"height": "pixels", "width": "pixels", "channels": ""}
    for name, unit in units.items():
        limits = statistics.get(name)
        if isinstance(limits, Sequence) and len(limits) == 2 and any(limits):
            low, high = limits
            yield name, (f"{low:,} {unit}" if low == high else f"{low:,} to {high:,} {unit}").strip()
    means = {"mean": "mean value", "channel_mean": "mean by channel", "channel_std": "deviation"}
    for name, title in means.items():
        value = statistics.get(name)
        values = value if isinstance(value, Sequence) else [value]
        if values and value is not None:
            yield title, ", ".join(f"{number:.2f}" for number in values)
    if isinstance(size := statistics.get("bytes"), int):
        yield "bytes", f"{size:,}"


def flat(value: object, name: str = "") -> Iterator[tuple[str, str]]:
    """A nested object as pairs of name and value."""
    if isinstance(value, Mapping) and value.keys() == {"distance", "where"}:
        yield name, f"{value['distance']:.4f} ({value['where']})"
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from flat(part, f"{name}, {key}" if name else str(key))
    elif value is not None:
        yield name.replace("_", " "), _shown(value)


def _shown(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.4f}"
        case _:  # the beginning of a digest identifies it
            return text if len(text := str(value)) <= 20 else f"{text[:12]}…"


def mapping(value: object) -> Mapping[str, object]:
    """The value if it is an object, otherwise an empty one."""
    return value if isinstance(value, Mapping) else {}


def by_split(value: object) -> dict[str, object]:
    """An object with splits as keys, in the order of splits instead of the alphabet's."""
    found = mapping(value)
    return {split: found[split] for split in (*SPLITS, *sorted(found.keys() - set(SPLITS))) if split in found}


def counts(split: object, name: str) -> list[int]:
    """A histogram of a split; empty if there is none."""
    found = mapping(split).get(name)
    return list(found) if isinstance(found, Sequence) else []


def problems(report: Mapping[str, object]) -> list[Mapping[str, object]]:
    """The problems of a report, in its order, with every key that is shown."""
    empty = {"severity": "error", "code": "", "file": "", "record": None, "offset": None, "message": ""}
    found = report.get("problems")
    return [{**empty, **mapping(one)} for one in found] if isinstance(found, Sequence) else []
