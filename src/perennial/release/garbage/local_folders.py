"""Local folders: checkouts of runs, environments and checkpoints; others are listed, but never removed."""

import logging
import os
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from perennial.base.layout import ENVIRONMENT_READY
from perennial.base.processes import locks
from perennial.base.project.git import CHECKOUT, GitError, Repository, bare

ADDRESS = re.compile(r"^\s*(?:dir|url)\s*=\s*(.+?)\s*$", re.MULTILINE)  # in DVC's configuration
log = logging.getLogger(__name__)
KNOWN = ("refs/remotes", "refs/tags", "refs/perennial")  # copies of a remote's references


@dataclass(frozen=True)
class Process:
    """A Python process of this machine: shells and editors run no stage."""

    id: int
    folder: Path  # it works in
    started: float  # seconds since 1970
    text: bytes  # arguments and environment


def processes() -> list[Process]:
    """The readable Python processes, except this one and its ancestors."""
    this = psutil.Process()
    own = {this, *this.parents()}
    return [each for found in psutil.process_iter() if found not in own and (each := _process(found))]


def checkouts(found: list[Process]) -> dict[Path, float]:
    """The projects in which processes work, with the start time of the first, in seconds since 1970."""
    projects: dict[Path, float] = {}
    for each in found:
        for folder in (each.folder, *each.folder.parents):
            if (folder / ".dvc").is_dir():
                projects[folder] = min(each.started, projects.get(folder, each.started))
                break
    return projects


def shares(checkout: Path, places: Collection[str]) -> bool:
    """Whether DVC's cache or a remote of a project is one of these folders and URLs."""
    own = {str((checkout / ".dvc" / "cache").resolve())}
    for name in ("config", "config.local"):
        with suppress(OSError):
            text = (checkout / ".dvc" / name).read_text(encoding="utf-8", errors="replace")
            for found in ADDRESS.findall(text):
                own |= {found, str((checkout / ".dvc" / found).resolve())}
    return not own.isdisjoint(places)


def _process(found: psutil.Process) -> Process | None:
    with suppress(psutil.Error, OSError), found.oneshot():
        if "python" not in Path(found.exe()).name:
            return None
        words = [*found.cmdline(), *(f"{name}={value}" for name, value in found.environ().items())]
        text = "\0".join(words).encode("utf-8", "surrogateescape")
        return Process(found.pid, Path(found.cwd()), found.create_time(), text)
    return None


Check = Callable[[list[Process]], str | None]


@dataclass(frozen=True, kw_only=True)
class Item:
    """A folder that could be removed; `bytes`: space that its removal frees."""

    path: Path
    bytes: int
    check: Check  # repeated before the removal
    kept: str | None  # result of the check: why it stays; None: nothing needs it
    lock: Callable[[], AbstractContextManager[object]] = nullcontext
    after: Callable[[], None] = field(default=lambda: None)  # once it is removed


@dataclass(frozen=True)
class Area:
    """Folders of one kind below a folder."""

    name: str
    where: Path
    items: Sequence[Item]


def areas(home: Path, work: Path, runs: Path, cutoff: float) -> list[Area]:
    """Space used in the folder that runs share, and in the work folder; what was used since `cutoff` stays."""
    found = processes()
    made = {
        "checkouts": ("runs", _checkout),
        "rebuilds": ("rebuilds", lambda _, each, now, cutoff: _item(each, now, partial(_in_use, each, cutoff))),
        "environments": ("environments", _environment),
    }
    listed = (
        ("mirrors", home / "mirror"), ("downloads", home / "downloads"), ("sources", home / "source"),
        ("downloads", work / "downloads"), ("records of runs", runs),
    )  # fmt: skip
    return [
        *(
            Area(name, home / below, [item(home, each, found, cutoff) for each in _below(home / below)])
            for name, (below, item) in made.items()
        ),
        *(
            Area("checkpoints", each, list(_trainings(each, found, cutoff)))
            for each in (work / "train", *_below(home / "train"))
            if _is_folder(each)
        ),
        *(
            Area(name, where, [_item(where, found, lambda _: "only listed")])
            for name, where in listed
            if _is_folder(where)
        ),
    ]


def remove(item: Item) -> int | None:
    """Remove a folder; returns the freed bytes, or None if it is needed by now or gone."""
    with item.lock():
        if not item.path.is_dir() or item.check(processes()) is not None:
            return None
        size = usage(item.path)
        # Rename first, so that a kill leaves nothing that looks complete.
        gone = item.path.with_name(f".{item.path.name}.removed")
        shutil.rmtree(gone, ignore_errors=True)
        item.path.rename(gone)
        item.after()
        shutil.rmtree(gone)
    return size


def remove_left(folder: Path) -> None:
    """Finish removals that were killed."""
    for each in folder.glob(".*.removed") if folder.is_dir() else ():
        shutil.rmtree(each, ignore_errors=True)


def usage(folder: Path) -> int:
    """The bytes that removing a folder frees: files without hard links elsewhere, each counted once."""
    seen: dict[tuple[int, int], list[int]] = {}
    for above, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                found = Path(above, name).lstat()
                entry = seen.setdefault((found.st_dev, found.st_ino), [found.st_size, found.st_nlink, 0])
                entry[2] += 1
    return sum(size for size, links, here in seen.values() if links == here)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _below(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))


def _item(folder: Path, found: list[Process], check: Check, **options: Any) -> Item:
    return Item(path=folder, bytes=usage(folder), check=check, kept=check(found), **options)


def _in_use(folder: Path, cutoff: float, found: list[Process]) -> str | None:
    here = folder.resolve()
    if running := [each.id for each in found if each.folder.is_relative_to(here)]:
        return f"process {running[0]} works in it"
    if Path.cwd().is_relative_to(here) or Path(sys.prefix).resolve().is_relative_to(here):
        return "this process works in it"
    return "used recently" if _newest(folder) >= cutoff else None


def _newest(folder: Path) -> float:
    """The time of the last change below a folder, in seconds since 1970."""
    times = [folder.stat().st_mtime]
    for above, folders, names in os.walk(folder):
        for name in (*folders, *names):
            with suppress(FileNotFoundError):
                times.append(Path(above, name).lstat().st_mtime)
    return max(times)


def _checkout(home: Path, folder: Path, found: list[Process], cutoff: float) -> Item:
    """The checkout of a run, which may hold commits that no branch or tag has."""
    mirror = _mirror(folder, home)
    if mirror is None:
        return _item(folder, found, lambda _: "not a run's checkout")

    def check(now: list[Process]) -> str | None:
        if (kept := _in_use(folder, cutoff, now)) is not None:
            return kept
        git = Repository(folder)
        commit = git.ask("rev-parse", "HEAD") or ""
        known = git.ask("for-each-ref", f"--contains={commit}", "--count=1", *KNOWN)
        return None if known else "its commit is on no branch of the remote"

    def after() -> None:
        with suppress(GitError):
            git = bare(mirror)
            git.run("worktree", "prune")
            git.run("branch", "--quiet", "-D", f"{CHECKOUT}{folder.name}")

    lock = home / "locks" / f"mirror-{mirror.name.partition('-')[0]}.lock"
    return _item(folder, found, check, lock=lambda: locks.inherited(lock), after=after)


def _mirror(folder: Path, home: Path) -> Path | None:
    common = Repository(folder).ask("rev-parse", "--path-format=absolute", "--git-common-dir")
    found = Path(common) if common else None
    return found if found and found.parent.resolve() == (home / "mirror").resolve() else None


def _environment(home: Path, folder: Path, found: list[Process], cutoff: float) -> Item:
    """An environment; each run that uses it touches its mark."""

    def check(now: list[Process]) -> str | None:
        if users := [each.id for each in now if os.fsencode(folder) in each.text]:
            return f"process {users[0]} uses it"
        if Path(sys.prefix) == folder:
            return "this process uses it"
        mark = folder / ENVIRONMENT_READY
        used = mark if mark.exists() else folder
        return "used recently" if used.stat().st_mtime >= cutoff else None

    lock = home / "locks" / f"environment-{folder.name}.lock"
    return _item(folder, found, check, lock=lambda: locks.inherited(lock))


def _trainings(folder: Path, found: list[Process], cutoff: float) -> Iterator[Item]:
    """The checkpoints of each training in a folder, which checkouts may share by a link."""

    def check(training: Path, now: list[Process]) -> str | None:
        here, project = folder.resolve(), folder.parent.parent.resolve()
        for each in checkouts(now):
            if each == project or (each / ".work" / "train").resolve() == here:
                return f"a process works in {each}"
        return "used recently" if _newest(training) >= cutoff else None

    for each in _below(folder):
        yield _item(each, found, partial(check, each))
