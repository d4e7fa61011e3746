"""The packages of a run: one environment per lock, created once from the hash-locked requirements.

Programs of a project, such as its flows, run in it, too.
"""

import hashlib
import logging
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import NoReturn

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from perennial.base import limits
from perennial.base.dvc import repro
from perennial.base.errors import ConfigError, PerennialError
from perennial.base.files import home
from perennial.base.layout import ENVIRONMENT_READY, FLOWS, PARAMS, Project
from perennial.base.processes import locks, programs
from perennial.base.project import code_digests

REQUIREMENTS = "PERENNIAL_REQUIREMENTS"  # such as `gpu`, or `base onnx`: names of files in requirements/
INSTALLED = "installed"  # in an environment that `make install` made: the digests of its lock files
PERENNIAL = "perennial.txt"  # beside the lock files of a project without source: the version of perennial
ENVIRONMENT = ".venv"  # in the project
BUILD = {"editables", "hatchling", "trove-classifiers"}  # install a clone's own source; a wheel needs none
log = logging.getLogger(__name__)


def python_for(home: Path, checkout: Path, log: Callable[[str], None], *, own: bool = True) -> Path:
    """Return a Python that has the packages of a checkout's lock files."""
    # These include perennial, unless the checkout has its source. It is this process's own if `own` allows it
    # and `make install` installed it from the same files, or if it has the same code and versions; else that of
    # an environment in `home`, which the first run with a lock creates.
    files = _lock_files(checkout, os.environ.get(REQUIREMENTS) or "base")
    digests = {hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    if own and is_own(files, digests):
        return Path(sys.executable)
    key = hashlib.sha256("\n".join([*sorted(digests), platform.python_version()]).encode()).hexdigest()[:16]
    folder = home / "environments" / key
    with locks.inherited(home / "locks" / f"environment-{key}.lock") as lock:
        if not (folder / ENVIRONMENT_READY).exists():
            names = ", ".join(f"requirements/{file.name}" for file in files)
            log(
                f"installing the packages of {names} into {folder}, which takes minutes; later runs with this "
                "lock use them, too"
            )
            if folder.exists():
                shutil.rmtree(folder)  # of a run that was killed
            try:
                _install(folder, files, lock)
            except PerennialError as error:
                raise PerennialError(
                    f"the packages of {names} cannot be installed on {platform.node()}: {error}; "
                    "look at the package index of this machine (pip.conf), then start the run again"
                ) from error
        (folder / ENVIRONMENT_READY).touch()  # `perennial gc` keeps what was used recently
    return folder / "bin" / "python"


def is_own(files: Sequence[Path], digests: set[str]) -> bool:
    """Whether this Python has the packages of these files."""
    if files[-1].name == PERENNIAL:
        installed: dict[str, str] = {
            canonicalize_name(each.metadata["Name"]): each.version for each in metadata.distributions()
        }
        with suppress(ConfigError):
            code_digests.require_all(root := files[-1].parents[1], root / ".work")
            return all(each.split()[0] in BUILD for file in files for each in differing(file, installed))
    note = Path(sys.prefix, INSTALLED)
    return note.is_file() and digests <= set(note.read_text(encoding="utf-8").split())


def differing(lock: Path, packages: Mapping[str, str]) -> Iterator[str]:
    """Yield what a lock file names for this machine and its Python, and is missing or of another version."""
    rows = (row.partition(" --hash")[0].rstrip("\\ ") for row in lock.read_text(encoding="utf-8").splitlines())
    for each in (Requirement(row) for row in rows if row and not row.startswith((" ", "#", "-"))):
        installed = packages.get(canonicalize_name(each.name))
        if (each.marker is None or each.marker.evaluate()) and (installed or "") not in each.specifier:
            yield f"{each.name} is {installed or 'missing'}, expected {each.specifier}"


def _lock_files(checkout: Path, names: str) -> list[Path]:
    folder, wanted = Project.find(checkout).root / "requirements", set(names.replace(",", " ").split())
    files = [folder / f"{name}.txt" for name in sorted(wanted)]
    if (folder / PERENNIAL).is_file():
        files.append(folder / PERENNIAL)
        if "--hash=" not in files[-1].read_text(encoding="utf-8"):
            raise ConfigError(f"{files[-1]} has no digest of a wheel; `perennial upgrade` adds both")
    if missing := [file.name for file in files if not file.is_file()]:
        raise ConfigError(
            f"requirements/{missing[0]} is not in this revision, so its packages are unknown; choose another "
            f"revision, or correct {REQUIREMENTS} of the worker"
        )
    return files


def _install(folder: Path, files: Sequence[Path], lock: int) -> None:
    """Create the environment; an installer whose parent was killed keeps the lock, and so the folder."""
    locked = [file for file in files if file.name != PERENNIAL]
    wanted = [["--require-hashes", *(f"--requirement={file}" for file in locked)]]
    wanted += [
        ["--no-deps", "--require-hashes", f"--requirement={file}"] for file in files if file not in locked
    ]
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder)], lock)
    newer = files[0].with_name("pip.txt")  # Python 3.11's takes `prefect[x]==1` for no pin of `prefect`
    before = [["--require-hashes", f"--requirement={newer}"]] if newer.is_file() else []
    install(str(folder / "bin" / "python"), wanted, lock, before_pip=before)


def install(
    python: str,
    wanted: Sequence[Sequence[str]],
    lock: int | None = None,
    before_pip: Sequence[Sequence[str]] = (),
) -> None:
    """Install with uv, or with pip if uv is missing or cannot reach the package index."""
    # Mirrors are usually set in pip.conf, which uv does not read.
    beside = Path(sys.executable).with_name("uv")
    uv = shutil.which("uv") or (str(beside) if beside.exists() else None)
    if uv:
        with suppress(PerennialError):
            for each in wanted:
                _run([uv, "pip", "install", "--quiet", f"--python={python}", *each], lock)
            return
    if programs.run([python, "-m", "pip", "--version"], limit_s=limits.INSTALL_S).code:  # uv's have none
        _run([python, "-m", "ensurepip"], lock)
    for each in (*before_pip, *wanted):
        _run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *each], lock)


def _run(command: Sequence[str], lock: int | None) -> None:
    done = programs.run(command, limit_s=limits.INSTALL_S, lock=lock)
    if done.code:
        raise PerennialError(done.last_lines(5))


def become(module: str, arguments: Sequence[str] = (), *, at_top: bool = False) -> NoReturn:
    """Replace this process by a module of the project, in its environment, which is made first if need be."""
    # at_top: work in the project's top folder instead of the pipeline's.
    project = Project.find()
    if not (project.root / FLOWS).is_dir():
        raise ConfigError(
            f"{project.folder} is no project: it has no {PARAMS} with {FLOWS}/ beside it or above it; "
            "`perennial new NAME` makes one"
        )
    log.info("starting %s in the environment of this project, which takes some seconds", module)
    python = python_for(home(), project.root, lambda line: log.info("%s", line))
    link(project.root, python)
    os.chdir(project.root if at_top else project.folder)
    environment = {**os.environ, **repro.search_paths(python, project.root)}
    os.execve(python, [str(python), "-m", module, *arguments], environment)  # noqa: S606 - no shell is wanted


def link(root: Path, python: Path) -> None:
    """Let `.venv` name the environment, for `source .venv/bin/activate`; an environment of the user's stays."""
    link, environment = root / ENVIRONMENT, python.parents[1]
    if not (environment / "pyvenv.cfg").is_file() or environment == link.absolute():
        return
    if link.is_symlink() and link.resolve() != environment.resolve():
        link.unlink()
    if not os.path.lexists(link):
        link.symlink_to(environment)
