"""The outputs of the stages: whether a path may be replaced, and what `make clean` may remove.

A folder that a stage makes has a file `.perennial`. One without it is replaced only if it is empty or as
dvc.lock lists it: `dvc commit` recorded what another program made, or an earlier version made it.
"""

import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from perennial.base import config, files
from perennial.base.config.paths import Paths
from perennial.base.dvc import dvc_lock
from perennial.base.errors import ConfigError, PerennialError
from perennial.base.project.git import Repository
from perennial.base.project.stage_table import FOLDERS, IN_GIT, STAGES

CURVES = {"training.csv", "validation.csv"}  # a training adds to them line by line, so this folder has no mark
WORK = Path(".work")
# In paths.work; not `downloads`, which may hold manually added files.
LEFT = ("*.lock", "*.log", "failure*.json", "curves.*", "all.txt", "benchmarks", "cache", "convert", "inputs",
        "kept", "site", "champion-*", "source", "timings", "train", "try", "watch", ".*.tmp",
        ".*.old")  # fmt: skip
SHOWN = 3


@contextmanager
def new_folder(folder: Path, stage: str) -> Iterator[Path]:
    """Replace the output folder of a stage as `files.new_folder` does, and mark the new one."""
    require_replaceable([folder])
    with files.new_folder(folder) as new:
        yield new
        (new / files.MARK).write_bytes(files.mark(stage))


def require_outputs(paths: Paths, stages: Iterable[str] = STAGES) -> None:
    """Check that these stages would not replace files that no stage made."""
    names = [name for stage in stages for name in STAGES[stage].outputs]
    require_replaceable(getattr(paths, name) for name in names if name in FOLDERS)
    taken = [f"{path} is a folder" for name, path in _single(paths, names) if path.is_dir()]
    names = [name for name in names if name not in IN_GIT]
    taken += [f"{path} is a file that git tracks" for path in _tracked(getattr(paths, name) for name in names)]
    _refuse(taken)


def require_replaceable(folders: Iterable[Path]) -> None:
    """Check that folders were made by a stage, so that they may be replaced."""
    _refuse([reason for folder in folders if (reason := _foreign(folder))])


def clean_outputs(paths: Paths) -> list[Path]:
    """Remove outputs and what runs left in `.work`; returns the outputs that stay, as no stage made them."""
    names = [name for stage in STAGES.values() for name in stage.outputs]
    kept, tracked = [], set(_tracked(getattr(paths, name) for name in (*names, "report")))
    for name in FOLDERS:
        folder = getattr(paths, name)
        if _foreign(folder):
            kept.append(folder)
        elif folder.is_symlink():  # the user chose the location; the content is ours
            for path in folder.iterdir():
                remove(path)
        else:
            remove(folder)
    for _, path in _single(paths, (*names, "report")):
        if path.is_dir() or path in tracked:
            kept.append(path)
        else:
            path.unlink(missing_ok=True)
    for path in [path for pattern in LEFT for path in WORK.glob(pattern)]:
        remove(path)
    for path in {WORK, *(getattr(paths, name).parent for name in names)} - {Path()}:
        with suppress(OSError):  # not empty: it holds files that no stage made
            path.rmdir()
    return kept


def _single(paths: Paths, names: Iterable[str]) -> list[tuple[str, Path]]:
    return [(name, getattr(paths, name)) for name in names if name not in FOLDERS]


def _refuse(reasons: list[str]) -> None:
    if reasons:
        raise ConfigError(
            f"{'; '.join(reasons)}; a stage would replace it, so nothing was started or changed: "
            "move it away, then run this again"
        )


def _foreign(folder: Path) -> str | None:
    """Why a folder must not be replaced, or None."""
    if not folder.exists():
        return None
    if not folder.is_dir():
        return f"{folder} is not a folder"
    found = sorted(path.name for path in folder.iterdir() if not files.TEMPORARY.fullmatch(path.name))
    if not found or (folder / files.MARK).is_file() or CURVES.issuperset(found) or _locked(folder):
        return None
    shown = ", ".join(found[:SHOWN]) + (", ..." if found[SHOWN:] else "")
    return f"{folder} holds files that no stage made ({shown})"


def _locked(folder: Path) -> bool:
    """Whether a folder has as many files and bytes as the output that dvc.lock lists under its path."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return dvc_lock.size(dvc_lock.here(), folder) == dvc_lock.Size(sum(sizes), len(sizes))


def _tracked(paths: Iterable[Path]) -> list[Path]:
    """The paths that git tracks, or under which it tracks files."""
    existing = list(filter(Path.exists, paths))
    listed = _listed(existing) if existing else []
    if listed is None:  # git refuses all where one is outside the repository
        return [path for path in existing if _listed([path])]
    below = {parent for file in listed for parent in (file, *file.parents)}
    return [path for path in existing if path.resolve() in below]


def _listed(paths: list[Path]) -> list[Path] | None:
    """The files that git tracks at or below paths; None if git fails."""
    with suppress(ConfigError):  # git is not installed
        found = Repository(Path()).ask("ls-files", "-z", "--", *map(str, paths))
        return None if found is None else [Path(name).resolve() for name in found.split("\0") if name]
    return None


def remove(path: Path) -> None:
    """Remove a file, or a folder with its content; of a link, only the link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    try:
        for path in clean_outputs(config.load(Path("params.yaml")).paths):
            sys.stdout.write(f"kept {path}, which no stage made\n")
    except PerennialError as error:
        sys.exit(f"make clean: {error}; nothing was removed")
