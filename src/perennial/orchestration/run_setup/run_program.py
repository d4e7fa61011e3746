"""Programs of a project, such as its flows, in the environment of its lock files."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from perennial.base import files
from perennial.base.dvc import repro
from perennial.base.errors import ConfigError
from perennial.base.layout import FLOWS, PARAMS, Project
from perennial.orchestration.run_setup.run_environment import python_for

log = logging.getLogger(__name__)
ENVIRONMENT = ".venv"  # in the project


def become(module: str, arguments: Sequence[str] = (), *, at_top: bool = False) -> NoReturn:
    """Replace this process by a module of the project, in its environment, which is made first if need be."""
    # at_top: work in the project's top folder instead of the pipeline's.
    project = Project.find()
    if not (project.root / FLOWS).is_dir():
        raise ConfigError(
            f"{project.folder} is no project: it has no {PARAMS} with {FLOWS}/ beside it or above it; "
            "`perennial new NAME` makes one"
        )
    python = python_for(files.home(), project.root, lambda line: log.info("%s", line))
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
