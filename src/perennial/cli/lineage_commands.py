"""The commands `seen` (which versions saw an image) and `forget` (exclude it from later versions)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from perennial.base import config
from perennial.base.choices import is_bucket
from perennial.base.errors import ConfigError, DataError, PerennialError, listed
from perennial.base.processes import process
from perennial.cli.command import PARAMS, JsonOption, ParamsOption, PathOrUrl, command, output

app = typer.Typer()
DIGEST = re.compile(r"(?:sha256:)?([0-9a-fA-F]{64})")
SHOWN = 3  # images in a message
DONE = {"train": "trained", "validation": "validated", "test": "tested"}
ALIKE = {"file": "same file", "pixels": "same pixels", "near": "looks alike"}


@command(app, "seen", "List the versions trained, validated or tested on an image.")
def _seen(
    image: Annotated[Path, typer.Argument(metavar="IMAGE|DIGEST", help="Image file, or SHA-256 of one.")],
    params: ParamsOption = PARAMS,
    *,
    fetch: Annotated[bool, typer.Option("--fetch", help="Retry what DVC's remote lacked.")] = False,
    as_json: JsonOption = False,
) -> None:
    from perennial.base.project import exclusions
    from perennial.release.registry import access
    from perennial.reproduce.lineage import indices, seen, trainings

    checked = config.load(params)
    opened = access.open_registry(checked, whole=True)
    digest = _digest(image)
    query = seen.of_file(image) if digest is None else seen.Query(sha256=[bytes.fromhex(digest)])
    cache = checked.paths.work / "lineage"
    with process.interruptible():
        past = trainings.trainings(opened.repository, opened.registry, cache)
        found = seen.search(
            query,
            past,
            indices.Indices(cache, checked.compute),
            bits=checked.validation.near_duplicate_bits,
            ask=fetch,
        )
    digests = [each.hex() for each in query.sha256]
    known = sorted(set(digests) & set(exclusions.Exclusions.read().digests))
    output(_document(found, digests, known), _lines(found, digests, known), as_json=as_json)
    if lost := [(training, reason) for training, reason in found.unknown if training.version]:
        versions, reason = [training.version for training, _ in lost], lost[0][1]
        raise DataError(
            f"unknown for {listed(versions, 1)}: {reason}; `perennial audit --all` lists what is lost"
        )


@command(app, "forget", "Remove kept images, and exclude them from later versions.")
def _forget(
    images: Annotated[
        list[Path],
        typer.Argument(metavar="IMAGE|DIGEST...", help="Image file, or SHA-256 as `seen` prints it."),
    ],
    because: Annotated[str, typer.Option(metavar="TEXT", help="Reason, which is recorded.")],
    params: ParamsOption = PARAMS,
    *,
    kept: Annotated[
        list[str] | None,
        typer.Option(
            parser=PathOrUrl,
            metavar="PLACE",
            help="Place of `serve --keep`; repeatable. [default: monitor.traffic, and those used here]",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    from perennial.cli import forget_text
    from perennial.release.registry import access
    from perennial.reproduce.lineage import forget

    checked = config.load(params)
    if not because.strip():
        raise ConfigError("--because needs a reason: it is recorded beside the digests; nothing was changed")
    named = [_digest(each) or each for each in images]
    places = _places(checked, kept or [])
    with process.interruptible():
        opened = access.open_registry(checked, whole=True)
        found = forget.forget(checked, opened.repository, named, places, because.strip())
    if opened.unreachable:
        found.failed[str(opened.remote)] = opened.unreachable
    output(forget_text.document(found, images), list(forget_text.lines(found, images)), as_json=as_json)
    if found.failed:
        raise PerennialError(
            "; ".join(f"{place} was not searched: {why}" for place, why in found.failed.items())
        )
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
    known = [*kept, *([traffic] if traffic else []), *place.remembered(checked.paths.work)]
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
        "digests": digests,
        "excluded": bool(excluded),
        "trainings": found.trainings,
        "versions": [_described(each) for each in found.sightings],
        "unknown": [{**_named(training), "reason": reason} for training, reason in found.unknown],
    }


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
