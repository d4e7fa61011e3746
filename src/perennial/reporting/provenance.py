"""What one must have to make a run again: revision, changes, lock, packages."""

import importlib.metadata
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perennial import files
from perennial.reporting import parameters

LOCK = Path("dvc.lock")
PACKAGES = ("tensorflow", "keras", "numpy", "dvc", "prefect")  # of which the results or their order depend
TIMEOUT_S = 10


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where a run came from; None for what is not known."""

    revision: str | None
    # Tracked files of the project that differ from the revision's, less those that runs write.
    changed: tuple[str, ...] | None
    lock: str | None  # SHA-256 of dvc.lock
    parameters: tuple[str, ...] | None  # keys of params.yaml that differ from those of the run
    packages: tuple[tuple[str, str], ...]  # name and version, Python first


def provenance(stages: Sequence[str], *written: Path) -> Provenance:
    """That of the folder that this process works in; runs write dvc.lock and some other tracked files."""
    # A project may be a folder of a larger repository, whose other files are not its own.
    differing = _git("diff", "--name-only", "--no-renames", "--relative", "-z", "HEAD")
    results = {LOCK.as_posix(), *(file.as_posix() for file in written)}
    return Provenance(
        revision=_git("rev-parse", "HEAD"),
        changed=None
        if differing is None
        else tuple(file for file in differing.split("\0") if file and file not in results),
        lock=files.sha256(LOCK) if LOCK.is_file() else None,
        parameters=parameters.changed(Path(), stages),
        packages=(("Python", platform.python_version()), *_packages()),
    )


def _git(*arguments: str) -> str | None:
    """What git answers; None where there is none, no checkout or no commit."""
    try:
        done = subprocess.run(
            ("git", "--no-optional-locks", *arguments), capture_output=True, text=True,
            errors="replace", check=True, timeout=TIMEOUT_S,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.rstrip()


def _packages() -> list[tuple[str, str]]:
    """Versions of those that are installed; asking for them imports none."""
    found = []
    for name in PACKAGES:
        try:
            found.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
