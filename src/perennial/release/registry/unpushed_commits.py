"""Commits that were not pushed: each is kept once, on a local branch `waiting/RUN`, for a later run to push."""

import logging
from collections.abc import Mapping

from perennial.base.project.git import GitError, Repository
from perennial.release.audit import dvc_remote
from perennial.release.registry.access import OpenRegistry
from perennial.release.registry.push import push, short

log = logging.getLogger(__name__)
# The second where a branch named `waiting` leaves no room for the first.
FOLDERS = ("refs/heads/waiting/", "refs/heads/waiting-runs/")
PATTERNS = tuple(f"{folder}**" for folder in FOLDERS)
SUBJECTS = ("Run {}: ", "Record of run {}")


def keep(opened: OpenRegistry, run: str, commit: str, tip: str) -> str:
    """Keep a run's commit, and its record if that is the tip; returns the branch that has the commit.

    A commit that waits already, or is on a branch of a run on the remote, is not kept a second time.
    """
    git = opened.repository
    own = [f"{folder}{run}" for folder in FOLDERS]
    remote = [opened.tracking("run/**")] if opened.remote else []
    holding = git.run("for-each-ref", "--format=%(refname)", f"--contains={commit}", *PATTERNS, *remote).split()
    if others := [name for name in holding if name not in own]:
        return short(others[0]).removeprefix("refs/remotes/")
    for name in own:
        try:
            git.update({name: tip})
        except GitError as error:
            if name == own[-1] or "exists; cannot create" not in str(error):
                raise
        else:
            return short(name)
    raise AssertionError


def drop(git: Repository, run: str) -> None:
    """Remove the waiting branch of a run, whose commit was pushed."""
    names = git.run("for-each-ref", "--format=%(refname)", *(f"{folder}{run}" for folder in FOLDERS)).split()
    git.update(dict.fromkeys(names))


def push_all(opened: OpenRegistry, run: str) -> None:
    """Push what other runs than `run` left waiting, each for itself, so that one refusal stops no other."""
    git, remote = opened.repository, opened.remote
    found = {name: tip for name, tip in _waiting(git).items() if not name.endswith(f"/{run}")}
    if not found or remote is None:
        return
    found = {name: _signed(opened, name, tip) for name, tip in found.items()}
    if problem := dvc_remote.push(git, list(found.values()), all_branches=True):
        log.warning("%s: still waiting: %s", ", ".join(map(short, found)), problem)
        return
    for name, tip in found.items():
        branch = f"refs/heads/run/{name.rpartition('/')[2]}"
        pushed = push(git, remote, {branch: tip})
        if pushed.done:
            git.update({name: None})
            log.info("pushed %s, which had waited, to %s", short(name), short(branch))
            continue
        log.warning("%s still waits: %s", short(name), pushed)
        if pushed.failure:
            return


def _waiting(git: Repository) -> Mapping[str, str]:
    """The commits of waiting branches that runs made; a person's branches of such names are left alone."""
    listed = git.run("for-each-ref", "--format=%(refname) %(objectname) %(contents:subject)", *PATTERNS)
    rows = [row.split(" ", 2) for row in listed.splitlines()]
    return {
        name: tip
        for name, tip, subject in rows
        if any(subject.startswith(start.format(name.rpartition("/")[2])) for start in SUBJECTS)
    }


def _signed(opened: OpenRegistry, name: str, tip: str) -> str:
    """Sign the commits of a waiting branch that were made before git was configured to sign."""
    git = opened.repository
    if not git.signs("commit.gpgSign"):
        return tip
    new = dict[str, str]()
    for commit in git.run("rev-list", "--reverse", tip, "--not", f"--remotes={opened.remote}").split():
        header, _, message = git.run("cat-file", "commit", commit).partition("\n\n")
        tree, parent = git.run("show", "-s", "--format=%T %P", commit).split()
        if parent in new or "\ngpgsig" not in header:
            new[commit] = git.commit(tree, new.get(parent, parent), message)
    if tip in new:
        git.update({name: new[tip]})
    return new.get(tip, tip)
