"""DVC objects that nothing needs, in caches and in the remote; `dvc gc` would consider only one clone.

Needed objects are those of all branch tips and tags, of commits since `cutoff`, and of this machine's checkouts
as they are on disk. Objects removed from a folder are set aside first; then git is fetched and checked once
more, and objects needed by now are put back. In S3, objects are removed at once, after git is checked again.
"""

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from perennial.base import documents
from perennial.base.errors import PerennialError
from perennial.base.project.git import GitError, Repository
from perennial.release.audit.needs import DEFINITIONS, DIGEST, FOLDER, members, needs
from perennial.release.audit.sides import Side, first_content, object_key

IN_PROGRESS = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD")
FETCHED = ("heads", "tags", "exps")  # the last are of `dvc exp push`
WHOLE = {"GIT_NO_REPLACE_OBJECTS": "1"}  # the history as it was made
log = logging.getLogger(__name__)
ASIDE = ".perennial-gc"  # folder of what is set aside; listings leave hidden names out


def fetch(repository: Repository) -> None:
    """Fetch branches, tags and experiments to references of our own: those of the user do not move."""
    for remote in repository.run("remote").split():
        own = f"refs/perennial/{remote}"
        try:
            repository.fetch(remote, [f"+refs/{kind}/*:{own}/{kind}/*" for kind in FETCHED])
        except GitError as error:
            raise GitError(f"the git remote {remote} cannot be reached ({error})") from error
    if repository.is_shallow():
        raise GitError(f"{repository.folder.resolve()} is a shallow clone; run `git fetch --unshallow` first")


def needed_commits(repository: Repository, cutoff: float) -> list[str]:
    """List each revision whose data are kept; commits since `cutoff` (seconds since 1970) are recent."""
    found = [
        *repository.ends(),
        *_recent(repository, cutoff),
        *_mentioned(repository, cutoff),
        *_worktrees(repository),
    ]
    return list(dict.fromkeys(found))


def _recent(repository: Repository, cutoff: float) -> Iterator[str]:
    """The commits that have, or follow a commit that has, a recent date; dates need not be ordered."""
    walk = ("rev-list", "--all", "--reflog", "--topo-order", "--reverse", "--format=%H|%P|%at|%ct")
    now, earliest = time.time(), dict[str, float]()  # when each commit was made at the earliest
    for row in repository.run(*walk, **WHOLE).splitlines():
        if row.startswith("commit "):
            continue
        name, parents, *dates = row.split("|")
        own = max(float(date) if date else math.inf for date in dates)  # none where it is malformed
        # The date of a clock that is ahead says nothing about later commits.
        before = [earliest.get(parent, 0.0) for parent in parents.split()]
        earliest[name] = max([own if own <= now else 0.0, *before])
        if max(own, earliest[name]) >= cutoff:
            yield name


def _mentioned(repository: Repository, cutoff: float) -> Iterator[str]:
    """What reflogs say was made or checked out since, all stashes, and a merge or rebase in progress."""
    shown = repository.ask("reflog", "show", "--all", "--date=unix", "--format=%H|%gD") or ""
    for row in shown.splitlines():
        name, _, place = row.partition("|")  # such as refs/heads/main@{1767225600}
        reference, _, moment = place.rstrip("}").rpartition("@{")
        if reference.endswith("stash") or not moment.isdecimal() or int(moment) >= cutoff:
            yield name
    yield from filter(None, map(repository.commit_of, IN_PROGRESS))


def _worktrees(repository: Repository) -> list[str]:
    """The revisions checked out in worktrees, and the current DVC files in them."""
    rows = repository.run("worktree", "list", "--porcelain").splitlines()
    heads = [row.split()[1] for row in rows if row.startswith("HEAD ") and set(row[5:]) != {"0"}]
    folders = [Path(row.removeprefix("worktree ")) for row in rows if row.startswith("worktree ")]
    trees = (on_disk(Repository(folder)) for folder in {*folders, repository.folder} if folder.is_dir())
    return [*heads, *filter(None, trees)]


def on_disk(repository: Repository) -> str | None:
    """A git tree of a checkout with its current DVC files; None for a bare repository."""
    if repository.ask("rev-parse", "--is-inside-work-tree") != "true" or repository.commit_of("HEAD") is None:
        return None
    patterns = ["*.dvc", *(f":(glob)**/{name}" for name in DEFINITIONS)]
    listed = repository.run("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns)
    names = filter(None, listed.split("\0"))
    return repository.tree_with("HEAD", [Path(name) for name in names])


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where revisions and objects are."""

    repositories: Sequence[Repository]  # of this checkout, and the mirrors of runs
    checkouts: Mapping[Path, float]  # in which processes work, with the start of the first
    sides: Sequence[Side]
    cutoff: float  # seconds since 1970

    def content(self, digest: str) -> bytes | None:
        """The content of a folder's list; None where no side has it whole."""
        try:
            return first_content(self.sides, digest)
        except PerennialError as error:
            raise Incomplete(
                f"the list of a needed folder cannot be read ({error}), so objects stay"
            ) from error

    def needs_of(self, repository: Repository, revisions: Iterable[str]) -> set[str]:
        """The digests that revisions need."""
        found, members = needs(repository, revisions, self.content)
        for digest, need in found.items():
            # A missing list restores nothing; but the members of a damaged list are still needed.
            if need.is_folder and digest not in members and any(side.listing([digest]) for side in self.sides):
                raise Incomplete(
                    f"the list of {need.path} of commit {need.revision[:10]} is damaged, so objects stay; "
                    "`perennial audit --all --repair` repairs it"
                )
        return set(found)


@dataclass(frozen=True, kw_only=True)
class Garbage:
    """The objects on a side, and those that nothing needs; `problem`: why the list may not be complete."""

    side: Side
    objects: int
    bytes: int
    unneeded: Mapping[str, int]
    problem: str | None = None


class Incomplete(PerennialError):
    """The needs of some revision are unknown, so nothing may be removed."""


def find(places: Places) -> list[Garbage]:
    """Find the objects on each side that nothing needs."""
    needed = needed_now(places)
    # A run writes an output to the cache before it writes dvc.lock.
    cutoff = min([places.cutoff, *places.checkouts.values()])
    return [measured(side, needed, cutoff) for side in places.sides]


def measured(side: Side, needed: Collection[str] = (), cutoff: float = 0.0) -> Garbage:
    """List a side as far as it can be; what nothing needs was written before `cutoff` (seconds since 1970)."""
    unneeded, problem = dict[str, int](), None
    objects = size = 0
    try:
        for digest, entry in side.everything():
            objects, size = objects + 1, size + entry.size
            old = entry.modified is not None and entry.modified.timestamp() < cutoff
            if old and digest not in needed and not side.linked(digest):
                unneeded[digest] = entry.size
    except (PerennialError, OSError) as error:
        problem = str(error)
    return Garbage(side=side, objects=objects, bytes=size, unneeded=unneeded, problem=problem)


def needed_now(places: Places) -> set[str]:
    """The digests that branches, tags, recent commits and checkouts need, after a fetch."""
    needed: set[str] = set()
    for repository in places.repositories:
        try:
            fetch(repository)
            revisions = needed_commits(repository, places.cutoff)
        except GitError as error:
            raise Incomplete(f"{error}, so objects stay") from error
        needed |= places.needs_of(repository, revisions)
    for checkout in places.checkouts:
        repository = Repository(checkout)
        if tree := on_disk(repository):
            needed |= places.needs_of(repository, [tree, *repository.ends()])
    if places.checkouts:
        for side in places.sides:
            if side.folder is not None:
                needed |= _run_cache(side.folder / "runs", places.content)
    return needed


def remove(places: Places, garbage: Garbage) -> tuple[dict[str, int], str | None]:
    """Remove what nothing needs from a side; returns what is gone, with its bytes, and what kept the rest."""
    if garbage.side.folder is not None:
        return _from_folder(places, garbage, garbage.side.folder)
    needed = needed_now(places)
    wanted = {digest: size for digest, size in garbage.unneeded.items() if digest not in needed}
    refused = garbage.side.remove(wanted)
    still = {digest: size for digest, size in wanted.items() if digest not in refused}
    try:
        back = still.keys() & needed_now(places)
    except PerennialError as error:
        raise PerennialError(
            f"{len(still)} objects were removed from {garbage.side.url}, but whether a commit that was pushed "
            f"meanwhile needs one of them is unknown: {error}; `perennial audit --all` lists what is missing"
        ) from error
    if back:
        _put_back(places, garbage.side, back)
    return {digest: size for digest, size in still.items() if digest not in back}, _problem(refused)


def _problem(refused: Mapping[str, str]) -> str | None:
    """What kept objects from being removed, by the first of them."""
    reason = next(iter(refused.values()), None)
    return reason and f"{len(refused)} objects that nothing needs could not be removed; the first: {reason}"


def restore_left(folder: Path) -> None:
    """Put back objects that a killed call set aside."""
    for file in (folder / ASIDE).glob("*") if (folder / ASIDE).is_dir() else ():
        if DIGEST.fullmatch(file.name) and file.is_file():
            _return(folder, file.name)
    with suppress(OSError):
        (folder / ASIDE).rmdir()


def _from_folder(places: Places, garbage: Garbage, folder: Path) -> tuple[dict[str, int], str | None]:
    aside, moved, refused = folder / ASIDE, dict[str, int](), dict[str, str]()
    aside.mkdir(exist_ok=True)
    try:
        for digest, size in garbage.unneeded.items():
            try:
                (place := folder / object_key(digest)).rename(aside / digest)
            except FileNotFoundError:
                continue  # by another gc
            except OSError as error:
                refused[digest] = f"{error.filename}: {error.strerror}"
            else:
                moved[digest] = size
                with suppress(OSError):
                    place.parent.rmdir()
        for digest in moved.keys() & needed_now(places):
            _return(folder, digest)
            del moved[digest]
    except BaseException:
        restore_left(folder)
        raise
    for digest in moved:
        (aside / digest).unlink(missing_ok=True)
    restore_left(folder)  # removes the folder itself
    return moved, _problem(refused)


def _return(folder: Path, digest: str) -> None:
    target = folder / object_key(digest)
    target.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        (folder / ASIDE / digest).rename(target)


def _put_back(places: Places, side: Side, digests: Collection[str]) -> None:
    """Restore objects on a remote that were removed while another machine pushed a commit that needs them."""
    lost = []
    for digest in digests:
        others = [other.folder for other in places.sides if other.folder is not None and other.is_whole(digest)]
        if others:
            side.put(digest, others[0] / object_key(digest))
        else:
            lost.append(digest)
    if lost:
        raise PerennialError(
            f"{len(lost)} objects, {lost[0]} the first, became needed by a commit that was pushed meanwhile; "
            "`dvc push` on the machine that pushed it copies them again"
        )


def _run_cache(folder: Path, read: Callable[[str], bytes | None]) -> set[str]:
    """The objects in DVC's run cache, from which stages may be restored."""
    found = set[str]()
    for file in folder.glob("*/*/*") if folder.is_dir() else ():
        # One that was removed meanwhile or is damaged: DVC restores nothing from it.
        with suppress(OSError, ValueError, AttributeError, TypeError):
            outs = documents.yaml_object(file.read_bytes()).get("outs") or ()
            found |= {str(out["md5"]) for out in outs if DIGEST.fullmatch(str(out.get("md5")))}
    lists = [digest for digest in found if digest.endswith(FOLDER)]
    for listed in filter(None, map(read, lists)):
        found |= set(members(listed, "an output in DVC's run cache").values())
    return found
