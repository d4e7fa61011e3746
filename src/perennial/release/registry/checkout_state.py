"""The state of a checkout: decision, outputs and dependencies, and whether dvc.lock describes it."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from perennial.base import documents
from perennial.base.config import Config
from perennial.base.config.paths import Paths
from perennial.base.dvc import dvc_lock, dvc_program
from perennial.base.dvc.dvc_program import DvcError
from perennial.base.errors import ConfigError, PerennialError, listed
from perennial.base.layout import STAGES, Project
from perennial.base.project import pins
from perennial.base.project.git import Repository
from perennial.base.project.stage_table import IN_GIT
from perennial.model.evaluation.results import Decision
from perennial.release.registry import verdict

SHOWN = 5
NAME = re.compile(r"[A-Za-z0-9][\w-]*(\.[\w-]+)*", re.ASCII)  # of a run


def require_name(run: str) -> None:
    """Check that a run name can be the name of a branch and a folder."""
    if not NAME.fullmatch(run):
        raise ConfigError(f"the name of a run may hold letters, digits, dots, - and _, got {run!r}")


def read_decision(config: Config) -> Decision:
    """Read the gate's decision about the model of this checkout."""
    return documents.read_checked(config.paths.decision, Decision, "`dvc repro gate` makes it")


def rejection(decision: Path, weights: object) -> str | None:
    """Why the gate rejected the model with these weights; None if it did not."""
    with suppress(PerennialError):
        found = documents.read_checked(decision, Decision, "")
        if not found.promote and found.candidate.model == weights:
            return verdict.sentence(found).removeprefix(f"{found.verdict}: ")
    return None


def recorded_files(config: Config) -> list[Path]:
    """The tracked files that a run writes."""
    return [Path("params.yaml"), *results_in_git(config.paths), config.paths.digests]


def results_in_git(paths: Paths) -> list[Path]:
    """The tracked files that no person edits: what runs found, and what `perennial forget` excludes."""
    found = (getattr(paths, name) for name in sorted(IN_GIT))
    return [dvc_lock.FILE, pins.Exclusions.FILE, *pins.FILES, paths.baseline, *found]


def require_reproduced(repository: Repository, written: Sequence[Path]) -> None:
    """Check that the code is that of HEAD, and that the outputs belong to it."""
    project = Project.find()
    tracked, others = replace(repository, folder=project.root).changed()
    sources = [project.from_root(path) for path in dvc_lock.sources(dvc_lock.here())]
    changed = set(tracked) - {project.from_root(file) for file in written} - of_siblings(tracked)
    changed |= {file for file in others if any(Path(file).is_relative_to(dep) for dep in sources)}
    if changed:
        raise PerennialError(
            f"{listed(sorted(changed), SHOWN)}: not as in the commit that this run would be recorded on; "
            "nothing was recorded: commit these files or restore them, then run the flow, or `dvc repro`, again"
        )
    if found := stale():
        raise PerennialError(
            f"dvc.lock does not describe this checkout ({', '.join(found)}); nothing was recorded; `dvc repro`"
        )


def of_siblings(names: Iterable[str]) -> set[str]:
    """Those of the files, relative to the project's top folder, that are other pipelines' and not read here."""
    project, stages = Project.find(), dvc_lock.here()
    read = {file for entry in stages.values() for file, _ in entry.params}
    inputs = [project.from_root(path) for path in (*dvc_lock.sources(stages), *read)]
    return {
        name for name in project.of_others(names) if not any(Path(name).is_relative_to(path) for path in inputs)
    }


def contents(written: Sequence[Path]) -> dict[Path, bytes | None]:
    """The contents of files; None where there is none."""
    return {file: file.read_bytes() if file.is_file() else None for file in written}


def require_contents(before: Mapping[Path, bytes | None]) -> None:
    """Check that no file was edited after it was compared with dvc.lock and before it was committed."""
    now = contents(list(before))
    if changed := [str(file) for file in before if now[file] != before[file]]:
        raise PerennialError(
            f"{listed(changed, SHOWN)} changed while this run was recorded; nothing was recorded: set it back, "
            "or `dvc repro`, then record it again"
        )


def stale() -> list[str]:
    """The stages whose dependencies, outputs or parameters differ from dvc.lock."""
    try:
        return sorted(json.loads(dvc_program.run("status", "--json", *dvc_targets()) or "{}"))
    except DvcError as error:
        raise PerennialError(f"{error}; nothing was recorded") from error


def dvc_targets() -> list[str]:
    """What a command is to be limited to that is about this pipeline; empty if the project has no other one."""
    project = Project.find()
    if len(project.pipelines()) < 2:
        return []
    added = Repository(project.root).run("ls-files", "-z", "--", "*.dvc").split("\0")
    others = {"", *project.of_others(added)}
    return [STAGES, *(project.shared(name).as_posix() for name in added if name not in others)]
