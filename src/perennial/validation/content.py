"""What stands in a validation report, as page and terminal tell it; parts of it may be missing."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from perennial.records.manifest import SPLITS


def by_code(report: Mapping[str, object]) -> list[tuple[str, str, int]]:
    """Code, severity and number of the problems of each kind: errors first, then the most frequent."""
    listed = [(str(one["code"]), str(one["severity"])) for one in problems(report)]
    severities = dict(listed)
    # Of a frequent kind only the first are listed.
    numbers = mapping(report.get("problem_counts")) or Counter(code for code, _ in listed)
    found = [(code, severities.get(code, "error"), int(str(number))) for code, number in numbers.items()]
    return sorted(found, key=lambda kind: (kind[1] != "error", -kind[2], kind[0]))


def facts(statistics: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Facts about all images, those that are known."""
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
    """A nested object as lines of name and value."""
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
        case _:  # a digest is known by its beginning
            return text if len(text := str(value)) <= 20 else f"{text[:12]}…"


def mapping(value: object) -> Mapping[str, object]:
    """The value where it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def by_split(value: object) -> dict[str, object]:
    """An object with splits as keys, in their order: JSON files have them in that of the alphabet."""
    found = mapping(value)
    return {split: found[split] for split in (*SPLITS, *sorted(found.keys() - set(SPLITS))) if split in found}


def counts(split: object, name: str) -> list[int]:
    """A histogram of a split; empty where there is none."""
    found = mapping(split).get(name)
    return list(found) if isinstance(found, Sequence) else []


def problems(report: Mapping[str, object]) -> list[Mapping[str, object]]:
    """The problems of a report, in its order."""
    found = report.get("problems")
    return [problem(mapping(one)) for one in found] if isinstance(found, Sequence) else []


def problem(found: Mapping[str, object]) -> Mapping[str, object]:
    """A problem with every key that is shown."""
    return {"severity": "error", "code": "", "file": "", "record": None, "offset": None, "message": "", **found}
