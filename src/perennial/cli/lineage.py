"""The commands `seen` (which versions saw an image) and `forget` (exclude it from later versions)."""

import hashlib
import importlib
import re
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from perennial.base import config
from perennial.base.errors import ConfigError, DataError, listed, redacted
from perennial.base.runtime import process
from perennial.cli.runner import PARAMS, JsonOption, ParamsOption, command, output

app = typer.Typer()
DIGEST = re.compile(r"(?:sha256:)?([0-9a-fA-F]{64})")
DONE = {"train": "trained", "validation": "validated", "test": "tested"}
ALIKE = {"file": "same file", "pixels": "same pixels", "near": "looks alike"}


@command(app, "seen", "List the versions trained, validated or tested on an image.")
def _seen(
    image: Annotated[Path, typer.Argument(metavar="IMAGE|DIGEST", help="Image file, or SHA-256 of one.")],
    params: ParamsOption = PARAMS,
    *,
    fetch: Annotated[
        bool, typer.Option("--fetch", help="Fetch from the git remote first; retry what DVC's remote lacked.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    checked = config.load(params)
    module = importlib.import_module("perennial.reproduce.lineage.seen")
    trainings = importlib.import_module("perennial.reproduce.lineage.trainings")
    opened = importlib.import_module("perennial.release.registry.access").open_registry(checked, fetch=fetch)
    digest = _digest(image)
    query = module.of_file(image) if digest is None else module.Query(sha256=[bytes.fromhex(digest)])
    cache = checked.paths.work / "lineage"
    with process.interruptible():
        past = trainings.trainings(opened.repository, opened.registry, cache)
        indices = importlib.import_module("perennial.reproduce.lineage.indices").Indices(cache, checked.compute)
        found = module.search(query, past, indices, bits=checked.validation.near_duplicate_bits, ask=fetch)
    digests = [each.hex() for each in query.sha256]
    excluded = importlib.import_module("perennial.base.project.exclusions").Exclusions.read().digests
    known = sorted(set(digests) & set(excluded))
    output(_document(found, digests, known), _lines(found, digests, known), as_json=as_json)
    if lost := [(training, reason) for training, reason in found.unknown if training.version]:
        versions, reason = [training.version for training, _ in lost], lost[0][1]
        raise DataError(
            f"unknown for {listed(versions, 1)}: {reason}; `perennial audit --all` lists what is lost"
        )


@command(app, "forget", "Exclude images from all later versions.")
def _forget(
    images: Annotated[
        list[Path],
        typer.Argument(metavar="DIGEST|IMAGE...", help="SHA-256 as `seen` prints it, or image file."),
    ],
    because: Annotated[str, typer.Option(metavar="TEXT", help="Reason, which is recorded.")],
    params: ParamsOption = PARAMS,
    *,
    kept: Annotated[
        str | None,
        typer.Option(metavar="PLACE", help="Remove them also from what `serve --keep` has kept there."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    checked = config.load(params)
    if not because.strip():
        raise ConfigError("--because needs a reason: it is recorded beside the digests; nothing was changed")
    digests = [_digest(each) or hashlib.sha256(each.read_bytes()).hexdigest() for each in images]
    repository = importlib.import_module("perennial.base.project.git").repository(
        Path(), checked.record.git_name, checked.record.git_email
    )
    module = importlib.import_module("perennial.reproduce.lineage.forget")
    excluded, new = module.forget(repository, digests, because.strip())
    absent = module.not_in(checked.paths.index, digests)
    file = str(importlib.import_module("perennial.base.project.exclusions").FILE)
    known = f", {len(set(digests)) - len(new)} were there" if len(new) < len(set(digests)) else ""
    lines = [f"{file}: added {len(new)}{known}; it excludes {len(excluded.digests)} in all"]
    lines += [
        f"no record has {each}: it is an image that the records do not hold, or a file that convert "
        "encodes again; `perennial seen IMAGE` lists the digests of what the records hold of it"
        for each in absent
    ]
    if new:
        lines.append("`perennial run` trains without them; sources, earlier versions and their data keep them")
    document = {"file": file, "added": new, "excluded": len(excluded.digests), "not_in_records": absent}
    if kept is not None:
        removed = _forget_kept(kept, images, digests)
        lines.append(f"{redacted(kept)}: removed {removed} kept image{'' if removed == 1 else 's'}")
        document["kept_removed"] = removed
    output(document, lines, as_json=as_json)


def _forget_kept(url: str, images: list[Path], digests: list[str]) -> int:
    """Remove images from a place; a photo is kept without its metadata, so its file has another digest."""
    place = importlib.import_module("perennial.operations.capture.place")
    named = [place.digest_of(each.read_bytes()) for each in images if each.is_file()]
    return int(place.forget(place.open_store(url), [*digests, *filter(None, named)]))


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
