"""The outputs, branches and tags of a recorded run: which move, their atomic push, and the same here.

A commit that cannot be pushed is kept once, on a local branch `unpushed/RUN`, for a later run to push.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from perennial.base.choices import LOST_RACE, Outcome
from perennial.base.config import Config
from perennial.base.dvc import dvc_lock, dvc_program
from perennial.base.errors import ConfigError, Failure, PerennialError, listed
from perennial.base.layout import Project
from perennial.base.project.git import CHECKOUT, GitError, Repository
from perennial.release.audit import sides
from perennial.release.audit.object_audit import audit
from perennial.release.registry import remote_tags
from perennial.release.registry.access import OpenRegistry
from perennial.release.registry.checkout_state import dvc_targets, of_siblings, recorded_files
from perennial.release.registry.push import push_references, short

log = logging.getLogger(__name__)
UNPUSHED = "refs/heads/unpushed/"
SUBJECTS = ("Run {}: ", "Record of run {}")
PASSING = "mend the cause if it does not pass by itself"


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """The result of recording a run."""

    run: str
    outcome: Outcome
    message: str
    version: str | None = None
    commit: str | None = None
    branch: str | None = None
    pushed: bool = False
    reasons: Sequence[str] = ()  # of the gate

    failure: ClassVar[Failure] = Failure.OUTSIDE  # that kept it from the remote


class NeedsPerson(Recorded):
    """A run that is kept until a person changes something, as the remote refuses it: no retry would help."""

    failure = Failure.REFUSED


def target(config: Config, opened: OpenRegistry) -> tuple[str | None, str, str]:
    """The branch that a promoted run moves, if any, the parent of its commit, and a note for the message."""
    repository = opened.repository
    branch = opened.moved_branch if config.record.branch == "fast-forward" else None
    if branch and (why := opened.withdrawn(branch)):
        is_run = (repository.branch() or "").startswith(CHECKOUT)
        remedy = "" if is_run else f"; `git branch -u {opened.remote}/BRANCH` sets the one to move"
        return None, "HEAD", f"; {why}, so it was not moved{remedy}"
    tip = branch and opened.remote and repository.commit_of(opened.tracking(branch))
    if not tip or repository.is_ancestor(tip, "HEAD"):
        return branch, "HEAD", ""
    # What runs have pushed meanwhile, of this pipeline or of others, is no reason to stay behind.
    names = set(repository.differing("HEAD", tip))
    own = names - _of_siblings(repository, names)
    prefix = repository.run("rev-parse", "--show-prefix")
    ours = {f"{prefix}{file.as_posix()}" for file in recorded_files(config)}
    between = repository.run("rev-list", f"HEAD..{tip}", "--", *(f":(top,literal){name}" for name in own))
    by_runs = not own or all(map(opened.registry.at, between.split()))
    if by_runs and ours.issuperset(own) and repository.is_ancestor("HEAD", tip):
        return branch, tip, ""
    return None, "HEAD", f"; {branch} has commits that this run does not have, so it was not moved"


def _of_siblings(repository: Repository, names: Iterable[str]) -> set[str]:
    """Those of the files, by their paths from the repository's top, that belong to other pipelines."""
    project = Project.find(repository.folder)
    top = replace(repository, folder=project.root).run("rev-parse", "--show-prefix")
    inside = [name.removeprefix(top) for name in names if name.startswith(top)]
    return {f"{top}{name}" for name in of_siblings(inside)}


def push_run(opened: OpenRegistry, made: Recorded, tags: Mapping[str, str], last: str) -> Recorded:
    """Publish branches and tags atomically, on the remote and here; `last` is the commit of run/RUN."""
    apart, commit = f"run/{made.run}", made.commit or ""

    def references(branch: str | None) -> dict[str, str]:
        own = {} if branch and last == commit else {f"refs/heads/{apart}": last}
        return {**({f"refs/heads/{branch}": commit} if branch else {}), **own, **tags}

    if opened.remote is None:
        try:
            return _finish(opened, replace(made, branch=made.branch or apart), references(made.branch))
        except GitError as error:  # a branch may block the name of another
            return _kept(opened, made, last, f"nothing was recorded: {error}")
    if problem := opened.unreachable or push_outputs(opened.repository, [commit]):
        return _kept(opened, made, last, f"nothing was pushed to {opened.remote}: {problem}")
    pushed = push_references(opened.repository, opened.remote, references(made.branch), f"refs/heads/{apart}")
    if made.branch and pushed.refused and not pushed.lost:
        # The server may let runs push everything but this branch.
        note = f"{opened.remote} does not let this run move {made.branch} ({pushed}), so {apart} has the commit"
        made = replace(made, branch=None, message=f"{made.message}; {note}")
        before = pushed.updated
        pushed = push_references(opened.repository, opened.remote, references(None), f"refs/heads/{apart}")
        pushed = replace(pushed, updated=(*before, *pushed.updated))
    if pushed.done:
        drop_unpushed(opened.repository, made.run, commit, last)
        return _finish(opened, replace(made, branch=made.branch or apart, pushed=True), references(made.branch))
    if pushed.lost:
        where = keep_unpushed(opened, made.run, commit, last)
        message = (
            f"another run was faster ({pushed}); the gate must run again; {where} has the commit until then"
        )
        return Recorded(run=made.run, outcome=LOST_RACE, message=message)
    what = "not everything" if pushed.updated else "nothing"
    problem = f"{what} was pushed to {opened.remote}: {pushed}"
    return _kept(opened, made, last, problem, pushed.remedy)


def push_outputs(repository: Repository, commits: Sequence[str], *, all_branches: bool = False) -> str | None:
    """Push the outputs of this checkout, or of all branches, to the default DVC remote, if there is one."""
    # Then check that the remote holds everything that the commits need, and copy what is missing: DVC takes the
    # list of a folder for the folder, and so would never push a member that is gone from the remote; and on a
    # bad line it gives up earlier than `storage`. Returns the error message, or None on success.
    failed, options = None, dict[str, str]()
    try:
        options = dvc_program.configuration()
        if "core.remote" not in options:
            return None
        dvc_program.run("push", *(["--all-branches"] if all_branches else dvc_targets()))
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


def _kept(opened: OpenRegistry, made: Recorded, last: str, problem: str, remedy: str | None = None) -> Recorded:
    """The result if a run's commit could not be pushed."""
    where = keep_unpushed(opened, made.run, made.commit or last, last)
    what_next = f"{remedy or PASSING}; the next push of a run here, or `perennial promote --push`, completes it"
    message = f"{problem}; the commit is kept on {where}; {what_next}"
    result = NeedsPerson if remedy else Recorded
    return result(run=made.run, outcome="kept", message=message, commit=made.commit)


def _finish(opened: OpenRegistry, made: Recorded, references: Mapping[str, str]) -> Recorded:
    """Update this repository to what was published."""
    git, moved = opened.repository, f"refs/heads/{opened.moved_branch}"
    tags_only = {name: value for name, value in references.items() if name.startswith(remote_tags.TAGS)}
    here = dict(references if opened.remote is None else tags_only)
    here.pop(moved, None)
    remote_tags.update(git, here, pushed=opened.remote is not None)
    if moved in references:
        follow(opened, references[moved])
    return made


def holds(opened: OpenRegistry, commit: str) -> bool:
    """Whether the remote's branch contains a commit."""
    git, branch = opened.repository, opened.moved_branch
    tip = branch and opened.remote and git.commit_of(opened.tracking(branch))
    return opened.remote is None or bool(tip and git.is_ancestor(commit, tip))


def follow(opened: OpenRegistry, commit: str) -> None:
    """Fast-forward the checked-out branch to a commit with the checkout's tree, but for other pipelines' files.

    Those of their files that nobody has edited here become the commit's.
    """
    git, branch = opened.repository, opened.repository.branch()
    head = git.run("rev-parse", "HEAD")
    if branch and commit != head and git.is_ancestor(head, commit):
        names = git.differing(head, commit)
        top = replace(git, folder=Path(git.run("rev-parse", "--show-toplevel")))
        siblings = _of_siblings(git, names) - set(top.changed()[0])
        git.update({f"refs/heads/{branch}": commit})
        try:
            git.run("reset", "--quiet", "--", *(f":(top,literal){name}" for name in names))
            there = [name for name in siblings if top.ask("cat-file", "-e", f"{commit}:{name}") is not None]
            top.run("checkout-index", "--quiet", "--force", "--", *there)
            for name in siblings.difference(there):
                (top.folder / name).unlink(missing_ok=True)
        except GitError as error:  # a lock that a dead git left
            log.warning("git's index was not updated, so `git status` shows changes: %s; `git reset`", error)


def keep_unpushed(opened: OpenRegistry, run: str, commit: str, tip: str) -> str:
    """Keep a run's commit, and its record if that is the tip; returns the branch that has the commit.

    A commit that is kept already, or is on a branch of a run on the remote, is not kept a second time.
    """
    git = opened.repository
    own = f"{UNPUSHED}{run}"
    remote = [opened.tracking("run/**")] if opened.remote else []
    holding = git.run("for-each-ref", "--format=%(refname)", f"--contains={commit}", UNPUSHED, *remote).split()
    if others := [name for name in holding if name != own]:
        return short(others[0]).removeprefix("refs/remotes/")
    git.update({own: tip})
    return short(own)


def drop_unpushed(git: Repository, run: str, *pushed: str) -> None:
    """Remove the local branch of a run, and those that end with a commit that was pushed."""
    rows = map(str.split, git.run("for-each-ref", "--format=%(refname) %(objectname)", UNPUSHED).splitlines())
    git.update({name: None for name, tip in rows if name.rpartition("/")[2] == run or tip in pushed})


def push_unpushed(opened: OpenRegistry, run: str) -> None:
    """Push what other runs than `run` could not push, each for itself, so that one refusal stops no other."""
    git, remote = opened.repository, opened.remote
    found = {name: tip for name, tip in _unpushed(git).items() if not name.endswith(f"/{run}")}
    if not found or remote is None:
        return
    if problem := push_outputs(git, list(found.values()), all_branches=True):
        log.warning("%s: still not pushed: %s", ", ".join(map(short, found)), problem)
        return
    for name, tip in found.items():
        branch = f"refs/heads/run/{name.rpartition('/')[2]}"
        pushed = push_references(git, remote, {branch: tip})
        if pushed.done:
            git.update({name: None})
            log.info("pushed %s, as an earlier run could not, to %s", short(name), short(branch))
            continue
        log.warning("%s is still not pushed: %s", short(name), pushed)
        if pushed.failure:
            return


def _unpushed(git: Repository) -> Mapping[str, str]:
    """The commits of these branches that runs made; a person's branches of such names are left alone."""
    listed = git.run("for-each-ref", "--format=%(refname) %(objectname) %(contents:subject)", UNPUSHED)
    rows = [row.split(" ", 2) for row in listed.splitlines()]
    return {
        name: tip
        for name, tip, subject in rows
        if any(subject.startswith(start.format(name.rpartition("/")[2])) for start in SUBJECTS)
    }
