"""Garbage collection: find what each place holds and what nothing needs, and remove it."""

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from perennial.base.config import Config
from perennial.base.errors import ConfigError, PerennialError
from perennial.base.processes import locks
from perennial.base.project.git import bare, repository
from perennial.release.audit import sides
from perennial.release.audit.sides import Side
from perennial.release.garbage import local_folders, unneeded_objects
from perennial.release.garbage.local_folders import Area
from perennial.release.garbage.unneeded_objects import Garbage, Incomplete, Places

log = logging.getLogger(__name__)
DAY_S = 86400


@dataclass(frozen=True, kw_only=True)
class SpaceUsed:
    """Space used in a place, and the part that can be or was removed.

    kept: why the rest stays, as it should.
    problem: why a part that nothing needs stays nevertheless, or why the place cannot be read.
    """

    what: str
    where: str
    number: int
    bytes: int
    garbage_number: int
    garbage_bytes: int
    kept: str | None = None
    problem: str | None = None


def collect(config: Config, home: Path, *, days: float, yes: bool) -> Iterator[SpaceUsed]:
    """Yield a row for each place, with `yes` after removing its garbage; it says what went wrong there."""
    cutoff = time.time() - days * DAY_S
    with locks.held(home / "locks" / "gc.lock", "gc", busy="another gc runs on this machine"):
        # Objects first: a dry run does not count those needed only by checkouts that are removed below.
        yield from _objects(config, home, cutoff, yes=yes)
        for area in local_folders.areas(home, config.paths.work, config.paths.runs, cutoff):
            if area.items:
                yield _swept(area, yes=yes)


def _swept(area: Area, *, yes: bool) -> SpaceUsed:
    unneeded = [item for item in area.items if item.kept is None]
    sizes = [item.bytes for item in unneeded]
    problem = None
    if yes:
        local_folders.remove_left(area.where)
        sizes = []
        for item in unneeded:
            try:
                size = local_folders.remove(item)
            except OSError as error:
                problem = problem or f"{error.filename or item.path}: {error.strerror}"
                continue
            sizes += [] if size is None else [size]
    kept = next((item.kept for item in area.items if item.kept is not None), None)
    return SpaceUsed(
        what=area.name, where=str(area.where), number=len(area.items),
        bytes=sum(item.bytes for item in area.items), garbage_number=len(sizes), garbage_bytes=sum(sizes),
        kept=kept, problem=problem,
    )  # fmt: skip


def _objects(config: Config, home: Path, cutoff: float, *, yes: bool) -> Iterator[SpaceUsed]:
    known = _sides(home)
    for side in known:
        if side.folder is not None:
            unneeded_objects.restore_left(side.folder)
    mirrors = [bare(each) for each in sorted((home / "mirror").glob("*")) if each.is_dir()]
    here = repository(Path(), config.record.git_name, config.record.git_email)
    own = replace(here, folder=Path(here.run("rev-parse", "--show-toplevel")))  # with all pipelines
    shared = {str(side.folder.resolve()) if side.folder is not None else side.url for side in known}
    working = local_folders.checkouts(local_folders.processes())
    places = Places(
        repositories=[own, *mirrors],
        checkouts={each: start for each, start in working.items() if local_folders.shares(each, shared)},
        sides=known,
        cutoff=cutoff,
    )
    try:
        found = unneeded_objects.find(places)
    except Incomplete as error:
        for side in known:
            yield _row(unneeded_objects.measured(side), {}, str(error))
        return
    for each in found:
        gone, kept, problem = each.unneeded, None, each.problem
        if yes and each.unneeded:
            try:
                gone, refused = unneeded_objects.remove(places, each)
                problem = refused or problem
            except Incomplete as error:
                gone, kept = {}, str(error)
            except (PerennialError, OSError) as error:
                gone, problem = {}, str(error)
        yield _row(replace(each, problem=problem), gone, kept)


def _row(garbage: Garbage, gone: Mapping[str, int], kept: str | None = None) -> SpaceUsed:
    side = garbage.side
    return SpaceUsed(
        what=side.name, where=str(side.folder) if side.folder is not None else side.url,
        number=garbage.objects, bytes=garbage.bytes, garbage_number=len(gone),
        garbage_bytes=sum(gone.values()), kept=kept, problem=garbage.problem,
    )  # fmt: skip


def _sides(home: Path) -> list[Side]:
    """DVC's cache of this checkout, the cache that runs share, and the default remote."""
    try:
        cache, remote = sides.open_sides()
    except (sides.Unsupported, ConfigError) as error:
        log.warning("%s; so the remote's objects are neither counted nor removed", error)
        cache, remote = sides.open_cache(), None
    shared = sides.open_cache_of_runs(home)
    folders = {side.folder.resolve(): side for side in (shared, cache) if side and side.folder is not None}
    return [*reversed(folders.values()), *([remote] if remote is not None else [])]
