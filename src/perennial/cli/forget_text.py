"""What `perennial forget` says of the images that it found."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from perennial.base.errors import listed
from perennial.base.layout import Project
from perennial.base.project.exclusions import FILE

HOW = {"pixels": "with equal pixels", "alike": "that show the same"}
LABELS, NOUN = "labels", "image"
SHOWN = 5  # names in a line


def document(found: Any, images: Sequence[Path]) -> dict[str, Any]:
    """The JSON document."""
    removed = {**found.kept, found.work: found.answers, LABELS: found.labels}
    records = Counter[Any]()
    for (_, each), count in (found.records or {}).items():
        records[each] += count
    there = {**removed, "records": records, "git": Counter(each.found for each in found.committed)}
    return {
        "file": str(FILE),
        "added": found.added,
        "excluded": len(found.excluded.digests),
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
        "not_searched": found.failed,
        "statistics": found.statistics,
        "shallow": found.shallow,
        "git": [{"path": each.path, "references": list(each.references)} for each in found.committed],
    }


def lines(found: Any, images: Sequence[Path]) -> Iterator[str]:
    """The lines for a person: what was removed, then what only the owner can decide."""
    for number in sorted(found.unreadable):
        yield f"{images[number]}: not a format that is read here; only its bytes were searched, so name a JPEG"
    yield from _of_places(found)
    yield from _of_records(found.records)
    for number in set(range(len(images))) - found.images:
        yield f"{images[number]}: found nowhere here; `perennial seen` searches earlier versions"
    yield f"{FILE}: {len(found.added)} digests are new, {len(found.excluded.digests)} in all"
    if found.labels:
        yield f"commit it: perennial pin source && git add {LABELS} {FILE.parent} && git commit"
    elif found.added:
        yield f"commit it: git add {FILE} && git commit"
    yield from _of_git(found.committed)
    if found.shallow:
        yield "this clone is shallow: older commits were not searched; `git fetch --unshallow` gets them"
    if others := _other_pipelines():
        yield f"other pipelines have exclusions of their own; run it there, too: {listed(others, SHOWN)}"


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
    yield "report.html may show it until `perennial report` makes it again"
    yield (
        "your own files, earlier versions, and DVC's cache and remote keep it; `perennial gc` removes what no "
        "version needs"
    )


def _of_git(committed: Sequence[Any]) -> Iterator[str]:
    for each in committed:
        now = f", now in {listed(each.references, SHOWN)}" if each.references else ""
        yield f"git's history has {each.path}{now}"
    if committed:
        paths = " ".join(
            f"--path {shlex.quote(path)}" for path in dict.fromkeys(each.path for each in committed)
        )
        yield f"you decide: git filter-repo --invert-paths {paths} rewrites it; then every clone is made again"


def _other_pipelines() -> list[str]:
    """The folders of the other pipelines of this project."""
    project = Project.find()
    return [str(each.folder) for each in project.pipelines() if each.folder != project.folder]
