"""Pushing outputs to DVC's default remote, and checking that they arrived."""

import logging
from collections.abc import Sequence

from perennial.base.dvc import dvc_lock, dvc_program, dvc_remotes
from perennial.base.errors import ConfigError, PerennialError, listed
from perennial.base.layout import STAGES, Project
from perennial.base.project.git import Repository
from perennial.release.audit import sides
from perennial.release.audit.object_audit import audit

log = logging.getLogger(__name__)


def push(repository: Repository, commits: Sequence[str], *, all_branches: bool = False) -> str | None:
    """Push the outputs of this checkout, or of all branches, to the default DVC remote, if there is one."""
    # Then check that the remote holds everything that the commits need, and copy what is missing: DVC takes the
    # list of a folder for the folder, and so would never push a member that is gone from the remote; and on a
    # bad line it gives up earlier than `storage`. Returns the error message, or None on success.
    failed, options = None, dict[str, str]()
    try:
        options = dvc_remotes.configuration()
        if "core.remote" not in options:
            return None
        dvc_program.run("push", *(["--all-branches"] if all_branches else targets()))
    except PerennialError as error:
        failed = str(error)
        if not options:
            return failed
    try:
        cache, remote = sides.open_sides(options=options)
        found = audit(repository, commits, cache, remote, repair=True, own=not all_branches)
    except (ConfigError, sides.Unsupported) as error:
        log.warning("what was pushed was not compared with what the run needs: %s", error)
        return failed
    except PerennialError as error:
        return failed or str(error)
    if failed:
        log.warning("%s", failed)
    for problem in found.problems:
        log.warning("%s", problem)
    ours = (cache.name, str(dvc_lock.FILE))
    left = [problem for problem in found.problems if not problem.repaired and problem.where not in ours]
    if not left:
        return None
    return f"after `dvc push`, {listed(left, 1)}; `perennial audit` lists all, `dvc repro` makes what is lost"


def targets() -> list[str]:
    """What a command is to be limited to that is about this pipeline; empty if the project has no other one."""
    project = Project.find()
    if len(project.pipelines()) < 2:
        return []
    added = Repository(project.root).run("ls-files", "-z", "--", "*.dvc").split("\0")
    others = {"", *project.of_others(added)}
    return [STAGES, *(project.shared(name).as_posix() for name in added if name not in others)]
