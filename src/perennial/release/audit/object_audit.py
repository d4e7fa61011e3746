"""Compare what revisions need with what DVC's cache and a remote hold, and repair one from the other."""

import logging
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from perennial.base.config.paths import FIXED
from perennial.base.dvc import dvc_lock
from perennial.base.project.git import Repository
from perennial.base.storage import Entry
from perennial.release.audit.needs import Need, in_project, needs
from perennial.release.audit.sides import Side, first_content

log = logging.getLogger(__name__)
Kind = Literal["missing", "damaged", "lost", "recorded wrongly"]
Held = Mapping[Side, Mapping[str, Entry]]  # the listing of each side, the cache's first
TRIED = 3  # objects whose ETag differs from their digest to read first, as a sample


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectProblem:
    """An object that is missing or damaged.

    missing, damaged: on the side `where`, and intact on the other one. lost: intact nowhere. recorded wrongly:
    dvc.lock contradicts what the training wrote about itself in the object; `why` says how.
    """

    kind: Kind
    need: Need
    where: str  # cache, remote or both
    repaired: bool = False
    why: str = ""

    def __str__(self) -> str:
        if self.why:
            return f"{self.need.path}: {self.kind}: {self.why} (commit {self.need.revision[:10]})"
        what = f"{self.kind}{f' in the {self.where}' if self.kind != 'lost' else ''}"
        by = f"stage {self.need.stage}" if self.need.stage else "dvc add"
        done = ", repaired" if self.repaired else ""
        return f"{self.need.path}: {what}{done} ({by}, commit {self.need.revision[:10]})"


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The result of an audit."""

    objects: int
    problems: Sequence[ObjectProblem]

    @property
    def ok(self) -> bool:
        """Whether every object is intact where it should be."""
        return all(problem.repaired for problem in self.problems)

    @property
    def lost(self) -> list[ObjectProblem]:
        """The objects that are intact nowhere."""
        return [problem for problem in self.problems if problem.kind == "lost"]

    @property
    def recorded_wrongly(self) -> list[ObjectProblem]:
        """The trainings that used other parameters or code than dvc.lock records."""
        return [problem for problem in self.problems if problem.kind == "recorded wrongly"]


def audit(
    repository: Repository,
    revisions: Iterable[str],
    cache: Side,
    remote: Side | None,
    *,
    spare: Side | None = None,
    deep: bool = False,
    repair: bool = False,
    own: bool = False,
) -> Audit:
    """Compare the objects that commits need with the cache and the remote; removes nothing."""
    # Compares sizes and, in a bucket, the digests in the listing. `deep` reads every object. The cache may lack
    # a whole stage of a revision, as in a fresh clone, but not a part of one. An object that is intact in
    # `spare` alone is not lost, and is repaired from there. `own`: of this pipeline alone.
    places = [cache, remote] if remote else [cache]
    sources = [*places, spare] if spare else places
    revisions, read = list(revisions), partial(first_content, sources)
    needed, members = needs(repository, revisions, read, in_project(repository, own=own))
    held = {side: side.listing(needed) for side in places}
    faults = {side: _faults(side, needed, members, held, deep=deep) for side in places}
    problems = list(_problems(held, faults, needed, spare))
    if repair:
        problems = [_repaired(problem, sources) for problem in problems]
    problems += _recorded_wrongly(repository, revisions, read)
    return Audit(objects=len(needed), problems=problems)


def ends(repository: Repository) -> list[str]:
    """The commits of HEAD, all branches, remote branches as last fetched, and tags."""
    commits = repository.ends("refs/heads", "refs/remotes", "refs/tags")
    return list(dict.fromkeys([repository.run("rev-parse", "HEAD"), *commits]))


def _faults(
    side: Side, needed: Mapping[str, Need], members: Mapping[str, list[str]], held: Held, *, deep: bool
) -> dict[str, Kind]:
    """Find the objects that are missing or damaged on a side."""
    found: dict[str, Kind] = {}
    unclear, doubtful, own = set[str](), list[str](), held[side]
    for digest, need in needed.items():
        entry = own.get(digest)
        sizes = {each[digest].size for each in held.values() if digest in each}
        if entry is None:
            found[digest] = "missing"
        elif need.size is not None and not need.is_folder and entry.size != need.size:
            found[digest] = "damaged"
        elif deep or len(sizes) > 1 or (need.is_folder and not side.digests_listed):
            unclear.add(digest)
        elif side.doubtful(digest, entry):
            doubtful.append(digest)
    for folder, inside in members.items():
        size = needed[folder].size  # in sum, as recorded
        if size is not None and found.keys().isdisjoint(inside):
            unclear.update(inside if sum(own[each].size for each in inside) != size else ())
    # With KMS encryption, ETags are not digests; reading a few objects shows this.
    first = side.damaged(doubtful[:TRIED])
    if doubtful and not first:
        side.digests_listed = False
        log.info("the ETags of the %s are no digests, so sizes alone were compared", side.name)
    else:
        unclear.update(doubtful[TRIED:])
    found.update(dict.fromkeys([*first, *side.damaged(unclear)], "damaged"))
    return found


def _problems(
    held: Held, faults: Mapping[Side, Mapping[str, Kind]], needed: Mapping[str, Need], spare: Side | None
) -> Iterable[ObjectProblem]:
    cache, *others = held
    # A fresh clone's cache lacks whole stages.
    present = {_made(need) for digest, need in needed.items() if digest in held[cache]}
    absent = {
        digest
        for digest, fault in faults[cache].items()
        if others and fault == "missing" and _made(needed[digest]) not in present
    }
    faulty = {digest for side in others for digest in faults[side]} | (faults[cache].keys() - absent)
    bad = [{*found, *side.damaged(faulty - found.keys())} for side, found in faults.items()]
    for digest in filter(faulty.__contains__, needed):
        need = needed[digest]
        if all(digest in each for each in bad) and not (spare and spare.is_whole(digest)):
            yield ObjectProblem(kind="lost", need=need, where="both" if others else cache.name)
            continue
        for side, found in faults.items():
            if digest in found and not (side is cache and digest in absent):
                yield ObjectProblem(kind=found[digest], need=need, where=side.name)


def _made(need: Need) -> tuple[str, str, str | None]:
    return need.revision, need.folder, need.stage


def _recorded_wrongly(
    repository: Repository, revisions: Iterable[str], read: Callable[[str], bytes | None]
) -> Iterable[ObjectProblem]:
    """Compare what each training wrote about itself with the dvc.lock that records it; equal files once."""
    seen = set[str | None]({None})
    for revision in revisions:
        if (lock := repository.read(revision, dvc_lock.FILE)) in seen:
            continue
        seen.add(lock)
        stages = dvc_lock.entries(lock)
        for path in (FIXED[name] for name in dvc_lock.DESCRIBED):
            digest, stage = dvc_lock.digest(stages, path), dvc_lock.maker(stages, path)
            why = "; ".join(dvc_lock.contradictions(stages, path, (digest and read(digest)) or b""))
            if why and digest and stage:
                need = Need(digest=digest, path=path, stage=stage, revision=revision)
                yield ObjectProblem(kind="recorded wrongly", need=need, where=str(dvc_lock.FILE), why=why)


def _repaired(problem: ObjectProblem, sources: Sequence[Side]) -> ObjectProblem:
    """Copy the object from a side where it is intact."""
    digest = problem.need.digest
    if problem.kind == "lost":
        return problem
    (target,) = (side for side in sources if side.name == problem.where)
    with tempfile.TemporaryDirectory(prefix="perennial-") as folder:
        copies = {side: Path(folder, side.name) for side in sources if side is not target}
        whole = next((file for side, file in copies.items() if side.fetch(digest, file)), None)
        if whole is None:
            return problem
        target.put(digest, whole)
    return replace(problem, repaired=target.is_whole(digest))
