"""Checkouts in which processes work; what they need is never garbage."""

import os
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
ADDRESS = re.compile(r"^\s*(?:dir|url)\s*=\s*(.+?)\s*$", re.MULTILINE)  # in DVC's configuration
STARTED, PARENT = 19, 1  # fields of /proc/PID/stat after the name: start in ticks since boot, parent


@dataclass(frozen=True)
class Process:
    """A Python process of this machine: shells and editors run no stage."""

    id: int
    folder: Path  # it works in
    started: float  # seconds since 1970
    text: bytes  # arguments and environment


def processes() -> list[Process]:
    """The readable Python processes, except this one and its ancestors."""
    own = set(_ancestors(os.getpid()))
    ids = [int(each.name) for each in PROC.iterdir() if each.name.isdigit()] if PROC.is_dir() else []
    return [found for each in ids if each not in own and (found := _process(each)) is not None]


def in_folder(folder: Path, found: list[Process]) -> list[Process]:
    """The processes that work in a folder or below it."""
    resolved = folder.resolve()
    return [each for each in found if each.folder.is_relative_to(resolved)]


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


def _process(number: int) -> Process | None:
    with suppress(OSError, ValueError):
        here = PROC / str(number)
        if "python" not in (here / "exe").readlink().name:
            return None
        folder = (here / "cwd").readlink()
        ticks = int(_stat(number)[STARTED])
        text = (here / "cmdline").read_bytes() + b"\0" + (here / "environ").read_bytes()
        return Process(number, folder, _boot() + ticks / os.sysconf("SC_CLK_TCK"), text)
    return None


def _ancestors(number: int) -> Iterator[int]:
    with suppress(OSError, ValueError):
        while number:
            yield number
            number = int(_stat(number)[PARENT])


def _stat(number: int) -> list[str]:
    # The name of a program may hold spaces and parentheses.
    return (PROC / str(number) / "stat").read_text(encoding="latin-1").rpartition(")")[2].split()


def _boot() -> float:
    rows = (PROC / "stat").read_text(encoding="latin-1").splitlines()
    return next(float(row.split()[1]) for row in rows if row.startswith("btime"))
