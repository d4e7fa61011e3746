"""The validation report: building validation.json, choosing images for the page, and reading a report back."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from perennial.base.choices import SPLITS
from perennial.data.images import Image
from perennial.data.images.statistics import VALUES, Statistics
from perennial.data.records import random_access
from perennial.data.records.manifest import Manifest
from perennial.data.tfrecord import example
from perennial.data.tfrecord.framing import Spans
from perennial.data.validation.integrity import Findings
from perennial.data.validation.judged_problems import Policy
from perennial.data.validation.problems import Place, Problem

PAIRS = 20  # of labels that are together in an image
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
            "examples": findings.examples[split],
            "per_class": findings.per_class[split].tolist(),
            **({"unlabelled": findings.unlabelled[split]} if data.label_columns else {}),
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
            "dataset": data.dataset,
            "manifest": digest,
            "classes": data.classes,
            **(_several(data, findings) if data.label_columns else {}),
            "bytes": sum(shard.bytes for part in data.splits.values() for shard in part.shards),
            "splits": splits,
            "duplicates": policy.duplicates,
            "drift": policy.drift,
            **_sizes(total),
            **_pixels(total),
        },
    }


def _several(data: Manifest, findings: Findings) -> dict[str, Any]:
    """What is known of several labels: their number for an image, and those that are most often together."""
    labels = sum(int(found.sum()) for found in findings.per_class.values())
    pairs = sorted(findings.pairs.items(), key=lambda pair: (-pair[1], pair[0]))[:PAIRS]
    return {
        "task": data.task,
        "labels": {"mean": labels / (findings.examples.total() or 1), "most": findings.most_labels},
        "pairs": [[*(data.classes[label] for label in pair), count] for pair, count in pairs],
    }


def as_json(problem: Problem) -> dict[str, Any]:
    """A problem as a JSON object; `like` only where there is another record."""
    return {key: value for key, value in asdict(problem).items() if key != "like" or value is not None}


def _sizes(statistics: Statistics) -> dict[str, list[int]]:
    """Smallest and largest height, width (pixels) and channels."""
    sizes = list(statistics.sizes) or [(0, 0, 0)]
    columns = zip(("height", "width", "channels"), zip(*sizes, strict=True), strict=True)
    return {name: [min(values), max(values)] for name, values in columns}


def _pixels(statistics: Statistics) -> dict[str, Any]:
    """Mean and standard deviation, 0..255; grey images count as RGB if some are RGB."""
    if not statistics.histograms:
        return {"mean": None, "channel_mean": [], "channel_std": []}
    histogram = sum(statistics.histograms.values(), np.zeros((max(statistics.histograms), VALUES), np.int64))
    values, counts = np.arange(VALUES), histogram.sum(1)
    means = histogram @ values / counts
    deviations = np.sqrt(np.maximum(histogram @ values**2 / counts - means**2, 0))
    return {"mean": float(means.mean()), "channel_mean": means.tolist(), "channel_std": deviations.tolist()}


def samples(folder: Path, data: Manifest, spans: Mapping[str, Spans]) -> dict[str, list[Image]]:
    """The first training images of the first classes, from the first records."""
    found: dict[int, list[Image]] = {label: [] for label in range(min(len(data.classes), SAMPLED_CLASSES))}
    shards = data.splits["train"].shards if "train" in data.splits else ()
    places = ((folder / shard.file, *span.tolist()) for shard in shards for span in spans[shard.file])
    missing = len(found)
    for file, offset, length in islice(places, SAMPLE_RECORDS):
        record = random_access.data(file, offset, length)
        for label in example.parse(record)[0].labels:
            images = found.get(label)
            if images is not None and len(images) < SAMPLES:
                images.append(_image(record))
                missing -= len(images) == SAMPLES
        if not missing:
            break
    return {data.classes[label]: images for label, images in found.items()}


def _image(data: bytes) -> Image:
    fields, encoded = example.parse(data)
    return Image(encoded, fields.format, fields.height, fields.width, fields.filename)


def flagged(
    folder: Path, problems: Sequence[Problem], spans: Mapping[str, Spans]
) -> list[tuple[dict[str, Any], list[Image | None]]]:
    """The first record problems, each with its image (if readable) and the image that it resembles."""
    chosen = [problem for problem in problems if problem.record is not None][:FLAGGED]
    found = []
    for problem in chosen:
        places = (Place(problem.file, problem.record or 0), problem.like)
        images = [_flagged_image(folder, place, spans) for place in places if place is not None]
        found.append((as_json(problem), images))
    return found


def _flagged_image(folder: Path, place: Place, spans: Mapping[str, Spans]) -> Image | None:
    # With damaged framing, the spans end at the record with the problem.
    found = spans.get(place.file, ())[place.record :]
    try:
        return _image(random_access.data(folder / place.file, *map(int, found[0]))) if len(found) else None
    except ValueError:
        return None


def by_code(report: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    """The severity and count of each problem code: errors first, then by frequency."""
    severities = {problem["code"]: problem["severity"] for problem in report["problems"]}
    # Only the first of many errors are listed; of each warning, at least one is.
    kinds = [(code, severities.get(code, "error"), count) for code, count in report["problem_counts"].items()]
    return sorted(kinds, key=lambda kind: (kind[1] != "error", -kind[2], kind[0]))


def facts(statistics: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The name and value of each statistic of all images."""
    for name, unit in (("height", " pixels"), ("width", " pixels"), ("channels", "")):
        low, high = statistics[name]
        if high:
            yield name, f"{low:,}{unit}" if low == high else f"{low:,} to {high:,}{unit}"
    if "labels" in statistics:
        yield "labels an image", "mean {mean:.2f}, at most {most}".format(**statistics["labels"])
        for split, part in by_split(statistics["splits"]).items():
            yield f"without labels in {split}", f"{part['unlabelled']:,}"
    if statistics["channel_mean"]:
        yield "mean value", f"{statistics['mean']:.2f}"
        for title, name in (("mean by channel", "channel_mean"), ("deviation", "channel_std")):
            yield title, ", ".join(f"{number:.2f}" for number in statistics[name])
    yield "bytes", f"{statistics['bytes']:,}"


def flat(measured: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Name and value of each measurement of duplicates or drift."""
    for name, value in (measured or {}).items():
        match value:
            case {"distance": distance, "where": where}:
                shown = f"{distance:.4f} ({where})"
            case bool():
                shown = "yes" if value else "no"
            case int():
                shown = f"{value:,}"
            case _:  # the beginning of a digest identifies it
                shown = f"{value[:12]}…"
        yield name.replace("_", " "), shown


def titled(statistics: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Facts, duplicates and drift, each with a title; parts without lines are left out."""
    parts = {
        "Images": list(facts(statistics)),
        "Labels that are together": [
            (f"{one}, {other}", f"{count:,}") for one, other, count in statistics.get("pairs", ())
        ],
        "Duplicates": list(flat(statistics["duplicates"])),
        "Drift since the previous version": list(flat(statistics["drift"])),
    }
    return [(title, lines) for title, lines in parts.items() if lines]


def by_split(values: Mapping[Any, Any]) -> dict[str, Any]:
    """Sort values in the order of splits; JSON files have them in alphabetical order."""
    return {split: values[split] for split in SPLITS if split in values}
