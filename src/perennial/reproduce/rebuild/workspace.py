"""The workspace of a rebuild: a clean checkout with an empty cache, and the packages of its lock files."""

import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perennial.base import documents, files, layout, limits
from perennial.base.config.paths import FIXED
from perennial.base.devices import processor
from perennial.base.dvc import dvc_program, repro
from perennial.base.errors import PerennialError, redacted
from perennial.base.layout import Project
from perennial.base.processes import process, programs
from perennial.base.project import code_digests
from perennial.base.project.git import Repository
from perennial.orchestration.run_setup.run_checkout import prepare_checkout
from perennial.orchestration.run_setup.run_environment import differing, python_for

log = logging.getLogger(__name__)
NAME = re.compile(r"[0-9a-f]+-(\d+)")  # of a rebuild's folder: commit, process
DROPPED = ("PERENNIAL_RUN", "PYTHONHOME", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
PRINT_PACKAGES = (
    "import json, re; from importlib import metadata; print(json.dumps({re.sub('[-_.]+', '-', "
    "each.metadata['Name']).lower(): each.version for each in metadata.distributions()}))"
)


class DvcFailed(PerennialError):
    """A command of DVC in the checkout failed."""


@dataclass(frozen=True)
class Workspace:
    """A clean checkout of a revision, its Python, and the versions of the packages there.

    `threads`: of TensorFlow inside one operation, which change the last bits of its sums; None: one per core.
    """

    folder: Path
    python: Path
    packages: Mapping[str, str]
    threads: int | None = None

    @property
    def lock(self) -> Path:
        """The dvc.lock of the checkout."""
        return self.folder / "dvc.lock"

    def values(self) -> dict[str, Any]:
        """The parameters of the revision, unchecked, since they may be for another version of perennial."""
        return yaml_values(self.folder / "params.yaml")

    def stages(self) -> set[str]:
        """The names of the stages in dvc.yaml, except `foreach` stages, which dvc.lock names individually."""
        found = yaml_values(self.folder / "dvc.yaml").get("stages") or {}
        return {name for name, stage in found.items() if not {"foreach", "matrix"} & set(stage or ())}

    def with_packages(self) -> "Workspace":
        """This checkout with a Python that matches its current lock files."""
        python, packages = _python(self.folder)
        return replace(self, python=python, packages=packages)

    def repro(self, stage: str, *, above: bool = False) -> set[str]:
        """Force a stage, or with `above` get it and what it needs; returns the stages that ran."""
        return self.dvc("repro", *([] if above else ["--force", "--single-item"]), stage)

    def dvc(self, *arguments: str) -> set[str]:
        """Run a DVC command and log each line of its output; returns the stages that it ran."""
        ended = repro.run(
            self.python, *arguments, folder=self.folder, variables=self._environment(),
            work=self.folder / str((self.values().get("paths") or {}).get("work", FIXED["work"])),
            to=lambda line: log.info("%s", line),
        )  # fmt: skip
        if ended.failure:
            raise DvcFailed(str(ended.failure.get("message")))
        if ended.code:
            errors = [line for line in ended.lines if line.startswith("ERROR: ")] or ended.lines[-3:]
            raise DvcFailed(redacted(" ".join(errors)) or f"dvc {arguments[0]}: exit code {ended.code}")
        return ended.ran

    def _environment(self) -> dict[str, str]:
        found = repro.environment(self.python, self.folder)
        kept = {name: value for name, value in found.items() if name not in DROPPED}
        if self.threads is not None:
            kept.setdefault(processor.THREADS, str(self.threads))
        return kept


def yaml_values(file: Path) -> dict[str, Any]:
    """The values in a YAML file; empty if it cannot be read."""
    try:
        return documents.yaml_object(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


@contextmanager
def workspace(
    repository: Repository, commit: str, *, keep: bool = False, cache: Path | None = None
) -> Iterator[Workspace]:
    """Create the checkout and the environment of a commit; `cache`: DVC's cache to use, else an empty one."""
    top, inside = repository.run("rev-parse", "--show-toplevel"), repository.run("rev-parse", "--show-prefix")
    base = files.home() / "rebuilds"
    remove_left(base)
    here = base / f"{commit[:12]}-{os.getpid()}"
    try:
        if cache is not None:
            cache.mkdir(parents=True, exist_ok=True)
            here.mkdir(parents=True)
            (here / "cache").symlink_to(cache)
        folder = prepare_checkout(here, top, "rebuild", commit, inside.rstrip("/"))
        _add_remotes(Project.find(folder).root / ".dvc" / "config.local")
        python, packages = _python(folder)
        log.info("checkout in %s, packages of %s", folder, python.parents[1])
        yield Workspace(folder, python, packages)
    finally:
        if not keep:
            shutil.rmtree(here, ignore_errors=True)


def remove_left(base: Path) -> None:
    """Remove the checkouts of rebuilds whose process was killed."""
    for folder in base.iterdir() if base.is_dir() else ():
        named = NAME.fullmatch(folder.name)
        if named and not process.is_alive(int(named[1])):
            shutil.rmtree(folder, ignore_errors=True)


def _add_remotes(file: Path) -> None:
    """Copy the DVC remotes of this project to the checkout; its cache is one, too, with what others made."""
    options = {"core.remote": dvc_program.CACHE, **dvc_program.configuration()}
    options[f"remote.{dvc_program.CACHE}.url"] = str(dvc_program.cache_folder(options))
    file.touch(mode=0o600)
    file.chmod(0o600)  # it may hold secrets
    with file.open("a", encoding="utf-8") as stream:
        stream.write(dvc_program.remotes_section(options))


def _python(checkout: Path) -> tuple[Path, Mapping[str, str]]:
    """Return this Python if it has exactly the packages of the revision's lock, else that of an environment."""
    base = Project.find(checkout).root / "requirements" / "base.txt"
    own = Path(sys.executable)
    reasons = [f"{base.name} is not in this revision"]
    if base.is_file():
        packages = _packages(own)
        reasons = [*differing(base, packages), *_other_code(checkout)]
        if not reasons:
            return own, packages
        log.info("this Python has other packages than the revision's lock: %s", "; ".join(reasons[:5]))
    try:
        python = python_for(files.home(), checkout, lambda line: log.info("%s", line), own=False)
    except PerennialError as error:
        shown = "; ".join(reasons[:10]) + ("; ..." if len(reasons) > 10 else "")
        raise type(error)(
            f"{error}; nothing was rebuilt; this Python differs from the lock: {shown}"
        ) from error
    return python, _packages(python)


def _other_code(checkout: Path) -> Iterator[str]:
    """Yield the stages whose code here is not that of the revision, if it has no source of its own."""
    project = Project.find(checkout)
    file = project.root / code_digests.FILE
    if layout.source(project.root) or not file.is_file():
        return
    named, here = code_digests.read(file), code_digests.digests()
    if other := [stage for stage, digest in named["stages"].items() if here.get(stage) != digest]:
        yield f"the code of {', '.join(other)} is not that of perennial {named['perennial']}"


def _packages(python: Path) -> dict[str, str]:
    command = [str(python), "-c", PRINT_PACKAGES]
    done = programs.run(command, limit_s=limits.LOCAL_S)
    if done.code:
        raise PerennialError(f"{python} does not run: {done.last_lines()}; nothing was rebuilt")
    return dict(json.loads(done.output))
