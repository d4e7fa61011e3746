"""The state of a checkout: decision, outputs and dependencies, and whether dvc.lock describes it."""

import json
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perennial import dvc, dvc_lock, exclusions, files, pins
from perennial.audit import sides
from perennial.audit.compare import audit
from perennial.config import Config
from perennial.dvc import DvcError
from perennial.errors import ConfigError, PerennialError, listed
from perennial.registry.git import Repository

log = logging.getLogger(__name__)
SHOWN = 5
NAME = re.compile(r"[A-Za-z0-9][\w-]*(\.[\w-]+)*", re.ASCII)  # of a run


class Decision(files.JsonFile):
    """The part of the gate's decision that a record needs."""

    promote: bool
    reasons: list[str]
    candidate: dict[str, Any]
    champion: dict[str, Any] | None = None


def require_name(run: str) -> None:
    """Check that a run name can be the name of a branch and a folder.

    Raises:
        ConfigError: the name is not valid.
    """
    if not NAME.fullmatch(run):
        raise ConfigError(f"the name of a run may hold letters, digits, dots, - and _, got {run!r}")


def read_decision(config: Config) -> Decision:
    """Read the gate's decision about the model of this checkout.

    Raises:
        DataError: it is missing or not valid.
    """
    return files.read_checked(config.paths.decision, Decision, "`dvc repro gate` makes it")


def recorded_files(config: Config) -> list[Path]:
    """The tracked files that a run writes."""
    return [
        dvc_lock.FILE,
        Path("params.yaml"),
        exclusions.FILE,
        *pins.FILES,
        config.paths.digests,
        config.paths.baseline,
    ]


def require_reproduced(repository: Repository, written: Sequence[Path]) -> None:
    """Check that the code is that of HEAD, and that the outputs belong to it."""
    tracked, others = repository.changed()
    sources = dvc_lock.sources(dvc_lock.here())
    changed = set(tracked) - {file.as_posix() for file in written}
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


def stale() -> list[str]:
    """The stages whose dependencies, outputs or parameters differ from dvc.lock."""
    try:
        return sorted(json.loads(dvc.run("status", "--json") or "{}"))
    except DvcError as error:
        raise PerennialError(f"{error}; nothing was recorded") from error


def push(repository: Repository, commits: Sequence[str], *, all_branches: bool = False) -> str | None:
    """Push the outputs of this checkout, or of all branches, to the default DVC remote, if there is one.

    Then check that the remote holds everything that the commits need, and copy what is missing: DVC takes the
    list of a folder for the folder, and so would never push a member that is gone from the remote; and on a bad
    line it gives up earlier than `storage`.

    Returns the error message, or None on success.
    """
    failed = None
    try:
        if "core.remote" not in dvc.configuration():
            return None
        try:
            dvc.run("push", "--quiet", *(["--all-branches"] if all_branches else []))
        except DvcError as error:
            failed = str(error)
        return _not_pushed(repository, commits, failed)
    except PerennialError as error:
        return failed or str(error)


def push_again(repository: Repository, commits: Sequence[str]) -> None:
    """Check again, after other machines can see the commits, that the remote holds what they need.

    Until then, `perennial gc` on another machine could have removed an old object that `dvc push` found there.
    """
    try:
        problem = _not_pushed(repository, commits)
    except PerennialError as error:
        problem = str(error)
    if problem:
        log.warning("%s", problem)


def _not_pushed(repository: Repository, commits: Sequence[str], failed: str | None = None) -> str | None:
    """Describe what the remote lacks after copying, or the failure of `dvc push` if that is unknown."""
    try:
        cache, remote = sides.open_sides()
        if remote is None:
            return failed
        found = audit(repository, commits, cache, remote, repair=True)
    except (ConfigError, sides.Unsupported) as error:
        log.warning("what was pushed was not compared with what the run needs: %s", error)
        return failed
    if failed:
        log.warning("%s", failed)
    for problem in found.problems:
        log.warning("%s", problem)
    left = [problem for problem in found.problems if not problem.repaired and problem.where != cache.name]
    if not left:
        return None
    return f"after `dvc push`, {listed(left, 1)}; `perennial audit` lists all, `dvc repro` makes what is lost"
