"""The commands `seen` (which versions saw an image) and `forget` (exclude it from later versions)."""

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

from perennial.base import config
from perennial.base.choices import is_bucket
from perennial.base.errors import ConfigError, DataError, PerennialError, listed
from perennial.base.layout import Project
from perennial.base.project.pins import Exclusions
from perennial.cli.command import command, output
from perennial.cli.option_types import PARAMS, ParamsOption, argument, location, switch, typed

app = typer.Typer(rich_markup_mode=None)
DIGEST = re.compile(r"(?:sha256:)?([0-9a-fA-F]{64})")
SHOWN = 3  # images in a message
DONE = {"train": "trained", "validation": "validated", "test": "tested"}
ALIKE = {"file": "same file", "pixels": "same pixels", "near": "looks alike"}
HOW = {"pixels": "with equal pixels", "alike": "that show the same"}
NAMES = 5  # in a line


@command(app, "seen")
def _seen(
    image: Path = argument("Image file, or SHA-256 of one.", metavar="IMAGE|DIGEST"),
    params: ParamsOption = PARAMS,
    *,
    fetch: bool = switch("--fetch", "Retry what DVC's remote lacked."),
) -> None:
    from perennial.release.registry import access
    from perennial.reproduce.lineage import seen

    checked = config.load(params)
    opened = access.open_registry(checked, whole=True)
    digest = _digest(image)
    query = seen.of_file(image) if digest is None else seen.Query(sha256=[bytes.fromhex(digest)])
    cache = checked.paths.work / "lineage"
    past = seen.trainings(opened.repository, opened.registry, cache)
    bits = checked.validation.near_duplicate_bits
    found = seen.search(query, past, seen.Indices(cache), bits=bits, ask=fetch)
    digests = [each.hex() for each in query.sha256]
    known = sorted(set(digests) & set(Exclusions.read().digests))
    output(_document(found, digests, known), _lines(found, digests, known))
    if lost := [(training, reason) for training, reason in found.unknown if training.version]:
        versions, reason = [training.version for training, _ in lost], lost[0][1]
        raise DataError(
            f"unknown for {listed(versions, 1)}: {reason}; `perennial audit --all` lists what is lost"
        )


@command(app, "forget")
def _forget(
    images: list[Path] = argument("Image file, or SHA-256 as `seen` prints it.", metavar="IMAGE|DIGEST..."),
    because: str = typed("Reason, which is recorded.", default=..., metavar="TEXT"),
    params: ParamsOption = PARAMS,
    *,
    kept: list[str] | None = location(
        "Place of `serve --keep`; repeatable. [default: monitor.traffic, and those used here]", "PLACE"
    ),
) -> None:
    from perennial.release.registry import access
    from perennial.reproduce.lineage import forget

    checked = config.load(params)
    if not because.strip():
        raise ConfigError("--because needs a reason: it is recorded beside the digests; nothing was changed")
    named = [_digest(each) or each for each in images]
    places = _places(checked, kept or [])
    opened = access.open_registry(checked, whole=True)
    found = forget.forget(checked, opened.repository, named, places, because.strip())
    if opened.unreachable:
        found.failed[str(opened.remote)] = opened.unreachable
    output(_forget_document(found, images), list(_forget_lines(found, images)))
    if found.failed:
        raise PerennialError("; ".join(f"{place} may keep some: {why}" for place, why in found.failed.items()))
    if lost := [each for number, each in enumerate(images) if number not in found.images and each.is_file()]:
        raise DataError(
            f"{listed(lost, SHOWN)}: found nowhere, so nothing of it was removed; later versions leave it out "
            "all the same; --kept PLACE searches a place"
        )


def _places(checked: config.Config, kept: Sequence[str]) -> list[str]:
    """The places to search: those named, that of the monitor, and those used in this checkout."""
    from perennial.live.capture import place

    for each in kept:
        if not is_bucket(each) and not Path(each).is_dir():
            raise ConfigError(f"--kept: the folder {each} does not exist; nothing was changed")
    traffic = checked.monitor.traffic
    known = [*kept, *([traffic] if traffic else []), *place.noted_places(checked.paths.work)]
    return list({each if is_bucket(each) else str(Path(each).absolute()): each for each in known}.values())


def _digest(image: Path) -> str | None:
    """Parse an argument as a digest; None for an image file."""
    found = DIGEST.fullmatch(image.name)
    if image.is_file():
        return None
    if found is None:
        raise ConfigError(
            f"{image} is neither a file nor a SHA-256 (64 hexadecimal digits, as `sha256sum` prints it)"
        )
    return found[1].lower()


def _document(found: Any, digests: list[str], excluded: list[str]) -> dict[str, Any]:
    return {
        "digests": digests, "excluded": bool(excluded), "trainings": found.trainings,
        "versions": [_described(each) for each in found.sightings],
        "unknown": [{**_named(training), "reason": reason} for training, reason in found.unknown],
    }  # fmt: skip


def _lines(found: Any, digests: list[str], excluded: list[str]) -> Iterator[str]:
    for digest in digests:
        yield f"sha256 {digest}{'  excluded from later versions' if digest in excluded else ''}"
    for each in found.sightings:
        date = datetime.fromtimestamp(each.training.date, UTC).date().isoformat()
        yield f"{each.training.version or '-':<10} {each.training.commit[:10]}  {date}  {_verbs(each)}"
        for match in each.matches:
            how = f"{ALIKE[match.kind]}{f', {match.bits} bits differ' if match.kind == 'near' else ''}"
            yield f"    {match.split} record {match.record}: {how}, {match.digest}"
    same = sum(bool(each.same) for each in found.sightings)
    near, unknown = len(found.sightings) - same, len(found.unknown)
    if unknown:
        training, reason = found.unknown[0]
        yield f"{unknown} training runs are unknown, the first at commit {training.commit[:10]}: {reason}"
    yield f"{same} of {found.trainings} training runs saw it{f', {near} only images like it' if near else ''}"


def _verbs(sighting: Any) -> str:
    counts = [
        (DONE[split], how, number)
        for how, found in (("", sighting.same), (" on images like it", sighting.near))
        for split, number in found.items()
    ]
    return ", ".join(f"{verb}{how}{f' ({number} times)' if number > 1 else ''}" for verb, how, number in counts)


def _named(training: Any) -> dict[str, object]:
    date = datetime.fromtimestamp(training.date, UTC).isoformat(timespec="seconds")
    return {"version": training.version, "commit": training.commit, "date": date, "champion": training.champion}


def _described(sighting: Any) -> dict[str, object]:
    return {
        **_named(sighting.training),
        "splits": dict(sighting.same),
        "near": dict(sighting.near),
        "images": [
            {"match" if key == "kind" else key: value for key, value in asdict(each).items()}
            for each in sighting.matches
        ],
    }


LABELS, NOUN = "labels", "image"


def _forget_document(found: Any, images: Sequence[Path]) -> dict[str, Any]:
    """The JSON document."""
    removed = {**found.kept, found.work: found.answers, LABELS: found.labels}
    records = Counter[Any]()
    for (_, each), count in (found.records or {}).items():
        records[each] += count
    there = {**removed, "records": records, "git": Counter(each.found for each in found.committed)}
    return {
        "file": str(Exclusions.FILE), "added": found.added, "excluded": len(found.excluded.digests),
        "images": [
            {
                "image": str(image),
                "decoded": number not in found.unreadable,
                "found": {
                    place: {each.how: count for each, count in counter.items() if each.image == number}
                    for place, counter in there.items()
                    if any(each.image == number for each in counter)
                },
            }
            for number, image in enumerate(images)
        ],
        "kept_removed": sum(counter.total() for counter in found.kept.values()),
        "not_searched": found.failed, "statistics": found.statistics, "shallow": found.shallow,
        "git": [{"path": each.path, "references": list(each.references)} for each in found.committed],
    }  # fmt: skip


def _forget_lines(found: Any, images: Sequence[Path]) -> Iterator[str]:
    """The lines for a person: what was removed, then what only the owner can decide."""
    for number in sorted(found.unreadable):
        yield f"{images[number]}: not a format that is read here; only its bytes were searched, so name a JPEG"
    yield from _of_places(found)
    yield from _of_records(found.records)
    for number in set(range(len(images))) - found.images:
        yield f"{images[number]}: found nowhere here; `perennial seen` searches earlier versions"
    yield f"{Exclusions.FILE}: {len(found.added)} digests are new, {len(found.excluded.digests)} in all"
    if found.labels:
        yield f"commit it: perennial pin source && git add {LABELS} {Exclusions.FILE.parent} && git commit"
    elif found.added:
        yield f"commit it: git add {Exclusions.FILE} && git commit"
    yield from _of_git(found.committed)
    if found.shallow:
        yield "this clone is shallow: older commits were not searched; `git fetch --unshallow` gets them"
    project = Project.find()
    if others := [str(each.folder) for each in project.pipelines() if each.folder != project.folder]:
        yield f"other pipelines have exclusions of their own; run it there, too: {listed(others, NAMES)}"


def _of_places(found: Any) -> Iterator[str]:
    for place, counter in found.kept.items():
        yield f"{place}: removed {_counted(counter, 'kept image')}"
        if count := found.statistics.get(place):
            yield f"{place}: {count} statistics have no pixels, so only their digests were compared"
    if not found.kept and not found.failed:
        yield "no place of `serve --keep` was searched, because none is known here; --kept PLACE names one"
    if found.answers:
        yield f"{found.work}: removed {_counted(found.answers, 'image')} and what was answered"
    if found.labels:
        yield f"{LABELS}: removed {_counted(found.labels, 'labelled image')} and the rows"


def _counted(counter: Mapping[Any, int], noun: str) -> str:
    count, how = sum(counter.values()), Counter[str]()
    for each, number in counter.items():
        how[each.how] += number
    alike = [f"{how[key]} {text}" for key, text in HOW.items() if how[key]]
    more = f" ({', '.join(alike)})" if alike else ""
    return f"{count} {noun}{'s'[: count != 1]}{more}"


def _of_records(records: Mapping[Any, int] | None) -> Iterator[str]:
    if records is None:
        none = "this checkout has none that were validated, so none were searched"
        yield f"records: {none}; later ones leave out what is excluded"
    if not records:
        return
    splits: dict[str, Counter[Any]] = {}
    for (split, each), count in records.items():
        splits.setdefault(split, Counter())[each] += count
    yield f"records: {', '.join(f'{_counted(own, NOUN)} of {split}' for split, own in splits.items())}"
    yield "`perennial run` makes raw data, records and their page again without it, and trains without it"
    yield "report.html may show it until `perennial report` makes it again; MLflow keeps what it was sent"
    yield (
        "your own files, earlier versions, and DVC's cache and remote keep it; `perennial gc` removes what no "
        "version needs"
    )


def _of_git(committed: Sequence[Any]) -> Iterator[str]:
    for each in committed:
        now = f", now in {listed(each.references, NAMES)}" if each.references else ""
        yield f"git's history has {each.path}{now}"
    if committed:
        known = dict.fromkeys(each.path for each in committed)
        paths = " ".join(f"--path {shlex.quote(path)}" for path in known)
        yield f"you decide: git filter-repo --invert-paths {paths} rewrites it; then every clone is made again"
