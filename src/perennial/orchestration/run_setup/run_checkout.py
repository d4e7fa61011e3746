"""The checkout of a run: a git worktree of a shared mirror of the repository, at the requested revision.

The mirror is a cache: if git cannot use it although the repository answers, a new one takes its place. The old
one goes when no run has a checkout of it. Runs share the mirror, DVC's cache, the copies of a source, downloads
and checkpoints: a later run in another checkout resumes the training of one that was cancelled.
"""

import hashlib
import logging
import os
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from perennial.base import config
from perennial.base.dvc.dvc_program import quoted
from perennial.base.errors import ConfigError, PerennialError, redacted
from perennial.base.layout import Project
from perennial.base.processes import locks
from perennial.base.project.git import CHECKOUT, GitError, GitTimedOut, Repository, bare
from perennial.base.retries import GIT_PAUSES_S
from perennial.orchestration.client.owner import normal
from perennial.release.registry import remote_tags

log = logging.getLogger(__name__)
READY = "perennial-ready"  # in the worktree's git folder, written last
LOCK_S = 600.0  # git holds locks for seconds; older ones were left by a killed process
PROTOCOLS = "file:git:http:https:ssh"  # of submodules; git itself would refuse those on this machine
SHOWN = 10  # branches in a message
COMMIT = re.compile(r"[0-9a-f]{4,64}")
FULL = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
HEAD = re.compile(r"^ref: refs/heads/(.+)\tHEAD$", re.MULTILINE)
T = TypeVar("T")


def prepare_checkout(home: Path, repository: str, run: str, rev: str | None = None, inside: str = "") -> Path:
    """Return the project in the checkout of a run; a new one is at a branch, tag or commit, or the default."""
    # `inside`: the folder of the project in the repository.
    key = hashlib.sha256(repository.encode()).hexdigest()[:16]
    folder = home / "runs" / run
    with locks.inherited(home / "locks" / f"mirror-{key}.lock") as lock:
        mirrors = _mirrors(home, key)
        found = any((mirror / "worktrees" / run / READY).exists() for mirror in mirrors)
        if not (found and (folder / ".git").exists()):
            mirror = mirrors[-1]
            try:
                branch, commit = _checked_out(mirror, folder, repository, rev, lock)
            except ConfigError:
                raise
            except PerennialError as error:
                home.mkdir(parents=True, exist_ok=True)
                if isinstance(error, GitTimedOut) or not Repository(home).ask("ls-remote", repository, "HEAD"):
                    raise
                log.warning("the mirror %s is damaged, so a new one is made: %s", mirror, error)
                last = mirror.name.removeprefix(key).removeprefix("-") or "0"
                mirror = mirror.with_name(f"{key}-{int(last) + 1}")
                try:
                    branch, commit = _checked_out(mirror, folder, repository, rev, lock)
                except PerennialError:  # the old mirror was not the cause
                    shutil.rmtree(mirror, ignore_errors=True)
                    raise
            if not (folder / inside / "params.yaml").is_file():
                where = f"the folder {inside} of {redacted(repository)}" if inside else redacted(repository)
                raise ConfigError(f"{where} holds no project at {rev or branch or commit}: no params.yaml")
            _share(
                home, folder / inside, hashlib.sha256(f"{normal(repository)}\n{inside}".encode()).hexdigest()
            )
            (mirror / "worktrees" / run / READY).touch()
            for old in _mirrors(home, key)[:-1]:
                runs = (home / "runs" / each.name / ".git" for each in old.glob("worktrees/*"))
                if old.exists() and not any(map(Path.exists, runs)):  # no checkout of a run
                    shutil.rmtree(old)
    return folder / inside


def _mirrors(home: Path, key: str) -> list[Path]:
    """The mirrors of a repository, the one in use last; at least one, which may not exist yet."""
    others = sorted((home / "mirror").glob(f"{key}-*"), key=lambda each: int(each.name.rpartition("-")[2]))
    return [home / "mirror" / key, *others]


def _checked_out(
    mirror: Path, folder: Path, repository: str, rev: str | None, lock: int
) -> tuple[str | None, str]:
    """Make the worktree of a run, with its submodules; returns its branch, if it has one, and its commit."""
    git = _mirror(mirror, repository, lock)
    branch, commit = _resolve(git, rev, repository)
    if (folder / ".git").is_dir():
        raise PerennialError(f"{folder} is a repository of its own, not a run's checkout; move it away")
    for half_made in (folder, mirror / "worktrees" / folder.name):  # of a run that was killed
        with suppress(FileNotFoundError):
            shutil.rmtree(half_made)
    _add(git, folder, folder.name, branch, commit)
    _add_submodules(folder, repository, lock)
    return branch, commit


def _mirror(folder: Path, repository: str, lock: int) -> Repository:
    """Update the mirror to the current branches and tags of the repository."""
    folder.mkdir(parents=True, exist_ok=True)
    _remove_old_locks(folder)
    git = bare(folder, lock)
    git.run("init", "--quiet", "--bare")  # harmless if it exists
    git.run("config", "gc.autoDetach", "false")  # a detached process would keep the lock
    git.run("config", "remote.origin.url", repository)
    git.run("config", "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")
    before = remote_tags.listed_tags(git, remote_tags.copies("origin"))
    wanted = ["+refs/heads/*:refs/remotes/origin/*", *remote_tags.refspecs("origin", ["*"])]
    _retried(lambda: git.fetch("origin", wanted), repository)
    remote_tags.follow(git, "origin", ["**"], before)
    return git


def _retried(call: Callable[[], T], repository: str) -> T:
    """Call a function that needs the network, with retries."""
    for pause in (*GIT_PAUSES_S, None):
        try:
            return call()
        except GitTimedOut:
            raise
        except GitError as error:
            if pause is None:
                raise PerennialError(
                    f"the repository {redacted(repository)} cannot be fetched: {error}; look at "
                    "PERENNIAL_REPOSITORY and at git's access from the worker's machine, then start another run"
                ) from error
            time.sleep(pause)
    raise AssertionError


def _resolve(git: Repository, rev: str | None, repository: str) -> tuple[str | None, str]:
    """Resolve a revision to its branch (None for a tag or commit) and its commit."""
    where = redacted(repository)
    if rev is None:
        head = HEAD.search(_retried(lambda: git.run("ls-remote", "--symref", "origin", "HEAD"), repository))
        if head is None:
            raise ConfigError(f"{where} has no default branch; name one as `rev` of the run; {_branches(git)}")
        rev = head[1]
    if commit := git.commit_of(f"refs/remotes/origin/{rev}"):
        return rev, commit
    if FULL.fullmatch(rev) and not git.commit_of(rev):
        git.ask("fetch", "--quiet", "origin", rev)  # of no branch there, such as one that was only fetched
    named = [f"refs/tags/{rev}", *([rev] if COMMIT.fullmatch(rev) else [])]
    if commit := next(filter(None, map(git.commit_of, named)), None):
        return None, commit
    raise ConfigError(f"{where} has no branch, tag or commit {rev}; {_branches(git)}; push what is missing")


def _branches(git: Repository) -> str:
    """The branches of the repository, for a message."""
    newest_first = ("--sort=-committerdate", "--format=%(refname:strip=3)", "refs/remotes/origin")
    known = [each for each in git.run("for-each-ref", *newest_first).split() if not each.startswith("run/")]
    return f"branches: {', '.join(known[:SHOWN]) or 'none'}"


def _add(git: Repository, folder: Path, run: str, branch: str | None, commit: str) -> None:
    """Add the worktree; for a branch, it has its own local branch that tracks it."""
    if branch is None:
        git.run("worktree", "add", "--quiet", "--force", "--detach", str(folder), commit)
        return
    local = f"{CHECKOUT}{run}"
    git.run("worktree", "add", "--quiet", "--force", "--no-track", "-B", local, str(folder), commit)
    git.run("config", f"branch.{local}.remote", "origin")
    git.run("config", f"branch.{local}.merge", f"refs/heads/{branch}")


def _add_submodules(folder: Path, repository: str, lock: int) -> None:
    """Check out the submodules of a worktree, and theirs."""
    # They may lie on this machine, too: what is in the repository is run, so it is trusted.
    if not (folder / ".gitmodules").is_file():
        return
    git = Repository(folder, lock=lock)
    update = ("submodule", "--quiet", "update", "--init", "--recursive")
    _retried(lambda: git.run(*update, GIT_ALLOW_PROTOCOL=PROTOCOLS), f"{repository} with its submodules")


def _share(home: Path, folder: Path, project: str) -> None:
    """Link the shared caches and folders into a checkout; `project`: the digest of its place in git."""
    dvc = Project.find(folder).root / ".dvc"
    dvc.mkdir(exist_ok=True)
    local = dvc / "config.local"
    local.write_text(f"[cache]\n    dir = {quoted(str(home / 'cache'))}\n", encoding="utf-8")
    work = folder / ".work"
    work.mkdir(exist_ok=True)
    # One run of a pipeline of a project works at a time, so each has its own trainings.
    for name, shared in (
        ("source", home / "source"),
        ("downloads", home / "downloads"),
        ("train", home / "train" / f"{_pipeline(folder)}-{project[:8]}"),
    ):
        shared.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(work / name):
            (work / name).symlink_to(shared)


def _pipeline(folder: Path) -> str:
    """The name of the model, as in the checkout's params.yaml; the flow checks it."""
    try:
        named = config.read((folder / "params.yaml").read_text(encoding="utf-8"))["record"]["artifact"]
    except (OSError, LookupError, TypeError, ConfigError):
        return "unknown"
    return named if isinstance(named, str) and re.fullmatch(r"[a-z0-9-]+", named) else "unknown"


def _remove_old_locks(mirror: Path) -> None:
    """Remove the locks of a killed git, which would block all later git commands."""
    # Only the holder of our own lock changes a mirror's settings, so their lock is always a dead one's.
    (mirror / "config.lock").unlink(missing_ok=True)
    for lock in (*mirror.glob("*.lock"), *mirror.glob("refs/**/*.lock")):
        with suppress(FileNotFoundError):
            if time.time() - lock.stat().st_mtime > LOCK_S:
                lock.unlink()
