"""Checkouts in which processes work; what they need is never garbage."""

import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

ADDRESS = re.compile(r"^\s*(?:dir|url)\s*=\s*(.+?)\s*$", re.MULTILINE)  # in DVC's configuration


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


def _process(found: psutil.Process) -> Process | None:
    with suppress(psutil.Error, OSError), found.oneshot():
        if "python" not in Path(found.exe()).name:
            return None
        words = [*found.cmdline(), *(f"{name}={value}" for name, value in found.environ().items())]
        text = "\0".join(words).encode("utf-8", "surrogateescape")
        return Process(found.pid, Path(found.cwd()), found.create_time(), text)
    return None
