"""The registry of a checkout, as it is on the remote after a fetch, and what only this repository has of it."""

import logging
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from perennial.base import limits
from perennial.base.config import Config
from perennial.base.errors import ConfigError, PerennialError, redacted
from perennial.base.project.git import CHECKOUT, GitError, GitTimedOut, Repository, repository
from perennial.release.registry import remote_tags, versions
from perennial.release.registry.versions import Registry, Version

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class OpenRegistry:
    """The repository, its remote, and the registry as it is on the remote."""

    repository: Repository
    registry: Registry
    remote: str | None  # None: this repository alone
    unreachable: str | None  # why the remote could not be reached

    def tracking(self, branch: str) -> str:
        """The reference of a branch of the remote."""
        return f"refs/remotes/{self.remote}/{branch}"

    @cached_property
    def moved_branch(self) -> str | None:
        """The remote's name of the branch that promoted runs move."""
        git = self.repository
        return (git.upstream(self.remote) if self.remote else None) or git.branch()

    def withdrawn(self, branch: str) -> str | None:
        """Why a branch of the remote that this checkout follows must not move: it is gone, or was set back."""
        # A run's checkout began at the tip of that branch. A clone may be ahead, with commits to push.
        git = self.repository
        if self.remote is None or self.unreachable or git.upstream(self.remote) is None:
            return None
        try:
            listed = git.ask("ls-remote", self.remote, f"refs/heads/{branch}")
        except GitTimedOut:  # so does the push, which then keeps the commit
            return None
        if listed == "":
            return f"{branch} is no longer on {self.remote}"
        tip, head = (listed or "").partition("\t")[0], git.commit_of("HEAD")
        is_run = (git.branch() or "").startswith(CHECKOUT)
        if is_run and tip and tip != head and git.is_ancestor(tip, "HEAD"):
            return f"{branch} was set back to {tip[:10]} meanwhile"
        return None


def open_registry(
    config: Config, *, fetch: bool = True, whole: bool = False, answer_s: float = limits.ANSWER_S
) -> OpenRegistry:
    """Open the registry after a fetch from a remote that answers in `answer_s`; `whole`: history and tags."""
    options = config.record
    git = replace(repository(Path(), options.git_name, options.git_email), answer_s=answer_s)
    remote = options.remote if options.remote and git.has_remote(options.remote) else None
    unreachable = None
    if fetch and remote is None and (wrong := misnamed(config)):
        log.warning("%s; results stay in this repository", wrong)
    if remote and fetch:
        try:
            _fetch(git, remote, options.artifact, whole=whole)
        except GitError as error:
            unreachable = str(error)
            log.warning("%s could not be asked; the registry is as of the last fetch: %s", remote, error)
    if whole and git.is_shallow():
        log.warning("this clone is shallow, and older revisions could not be fetched, so they are unknown")
    name = versions.full_name(git, options.artifact)
    registry = versions.read(git, name, unpushed=not (remote and fetch))
    return OpenRegistry(repository=git, registry=registry, remote=remote, unreachable=unreachable)


def open_for_change(config: Config, *, push: bool = True) -> OpenRegistry:
    """Open the registry for a change here and, with `push`, on the remote, which must then answer."""
    opened = open_registry(config)
    if not push:
        return here(opened)
    if opened.unreachable:
        raise PerennialError(f"{opened.remote} cannot be reached, so nothing was changed: {opened.unreachable}")
    return opened


def with_history(config: Config, *revisions: str) -> OpenRegistry:
    """Open the registry with all of git's history and these revisions; asks the remote for what is not here."""
    opened = open_registry(config, fetch=False)
    git = opened.repository
    if git.is_shallow() or not all(_found(git, opened.registry, each) for each in revisions):
        return open_registry(config, whole=True)
    return opened


def find(git: Repository, artifact: str, revision: str) -> tuple[Version | None, str]:
    """Resolve a version name, branch, tag or commit to a version (if it is one) and a commit."""
    registry = versions.read_artifact(git, artifact)
    if commit := _found(git, registry, revision):
        return registry.at(commit), commit
    what = f"this clone has no version, branch, tag or commit {revision}"
    raise ConfigError(f"{what}; `perennial versions` and `git branch --all` list what there is")


def _found(git: Repository, registry: Registry, revision: str) -> str | None:
    """The commit of a version or revision, else of a branch that one remote has."""
    for version in registry.versions:
        if revision in {version.name, f"{registry.artifact}@{version.name}"}:
            return version.commit
    if commit := git.commit_of(revision):
        return commit
    there = set(git.ends(f"refs/remotes/*/{revision}"))
    return there.pop() if len(there) == 1 else None


def _fetch(git: Repository, remote: str, artifact: str, *, whole: bool) -> None:
    """Fetch a remote's branches and an artifact's tags; `whole`: with all history and other tags."""
    patterns = [pattern for name in versions.names(git, artifact) for pattern in versions.tag_patterns(name)]
    before = remote_tags.listed_tags(git, remote_tags.copies(remote), patterns)
    heads = f"+refs/heads/*:refs/remotes/{remote}/*"
    git.fetch(remote, [heads, *remote_tags.refspecs(remote, patterns)], whole=whole)
    remote_tags.follow(git, remote, patterns, before)
    if whole:
        git.ask("fetch", "--quiet", "--no-prune", remote, "refs/tags/*:refs/tags/*")  # refuses to move one


def misnamed(config: Config) -> str | None:
    """What to set if git has remotes, but none of the name in record.remote."""
    git, name = Repository(Path()), config.record.remote
    if not name or git.has_remote(name) or not (others := git.run("remote").split()):
        return None
    what = f"git has no remote {name}, which record.remote names, only {', '.join(others)}"
    return f"{what}: `perennial config --set record.remote={others[0]}`"


def remote(config: Config) -> str | None:
    """The remote that commands push to, by name and address; None without one."""
    url = Repository(Path()).ask("remote", "get-url", config.record.remote) if config.record.remote else None
    return url and f"{config.record.remote} ({redacted(url)})"


def here(opened: OpenRegistry) -> OpenRegistry:
    """The registry with what was made here without a push, for changes that stay in this repository."""
    registry = versions.read(opened.repository, opened.registry.artifact)
    return replace(opened, registry=registry, remote=None, unreachable=None)


def kept_here(config: Config, command: str) -> str:
    """The end of a message about a change that was not pushed; empty without a remote."""
    if where := remote(config):
        return f", in this repository only: nothing was pushed to {where}; `{command} --push` does it"
    return ""
