"""Pushing outputs to DVC's default remote, and checking that they arrived."""

import logging
from collections.abc import Sequence

from perennial.base.dvc import dvc_lock, dvc_program, dvc_remotes
from perennial.base.dvc.dvc_program import DvcError
from perennial.base.errors import ConfigError, PerennialError, listed
from perennial.base.layout import STAGES, Project
from perennial.base.project.git import Repository
from perennial.release.audit import sides
from perennial.release.audit.object_audit import audit

log = logging.getLogger(__name__)


def push(repository: Repository, commits: Sequence[str], *, all_branches: bool = False) -> str | None:
    """Push the outputs of this checkout, or of all branches, to the default DVC remote, if there is one.

    Then check that the remote holds everything that the commits need, and copy what is missing: DVC takes the
    list of a folder for the folder, and so would never push a member that is gone from the remote; and on a bad
    line it gives up earlier than `storage`.

    Returns the error message, or None on success.
    """
    failed = None
    try:
        if "core.remote" not in dvc_remotes.configuration():
            return None
        try:
            dvc_program.run("push", *(["--all-branches"] if all_branches else targets()))
        except DvcError as error:
            failed = str(error)
        return _not_pushed(repository, commits, failed, own=not all_branches)
    except PerennialError as error:
        return failed or str(error)


def targets() -> list[str]:
    """What a command is to be limited to that is about this pipeline; empty if the project has no other one."""
    project = Project.find()
    if len(project.pipelines()) < 2:
        return []
    added = Repository(project.root).run("ls-files", "-z", "--", "*.dvc").split("\0")
    others = {"", *project.of_others(added)}
    return [STAGES, *(project.shared(name).as_posix() for name in added if name not in others)]


def _not_pushed(
    repository: Repository, commits: Sequence[str], failed: str | None = None, *, own: bool = True
) -> str | None:
    """Describe what the remote lacks after copying, or the failure of `dvc push` if that is unknown."""
    try:
        cache, remote = sides.open_sides()
        if remote is None:
            return failed
        found = audit(repository, commits, cache, remote, repair=True, own=own)
        ours = (cache.name, str(dvc_lock.FILE))
    except (ConfigError, sides.Unsupported) as error:
        log.warning("what was pushed was not compared with what the run needs: %s", error)
        return failed
    if failed:
        log.warning("%s", failed)
    for problem in found.problems:
        log.warning("%s", problem)
    left = [problem for problem in found.problems if not problem.repaired and problem.where not in ours]
    if not left:
        return None
    return f"after `dvc push`, {listed(left, 1)}; `perennial audit` lists all, `dvc repro` makes what is lost"
