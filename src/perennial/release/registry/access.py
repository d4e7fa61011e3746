"""The registry of a checkout, as it is on the remote after a fetch, and what only this repository has of it."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path

from perennial.base.config import Config
from perennial.base.errors import redacted
from perennial.base.project.git import CHECKOUT, GitError, GitTimedOut, Repository, repository
from perennial.release.registry import remote_tags
from perennial.release.registry.versions import Registry, full_name, names, read, tag_patterns

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

    def withdrawn(self, branch: str) -> str | None:
        """Why a branch of the remote that this checkout follows must not move: it is gone, or was set back.

        A run's checkout began at the tip of that branch. A clone may be ahead, with commits of its own to push.
        """
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


def open_registry(config: Config, *, fetch: bool = True) -> OpenRegistry:
    """Open the registry of this checkout, after fetching from its remote.

    Raises:
        ConfigError: there is no repository, or it has no commit.
    """
    options = config.record
    git = repository(Path(), options.git_name, options.git_email)
    remote = options.remote if options.remote and git.has_remote(options.remote) else None
    unreachable = None
    if options.remote and not remote and fetch and (others := git.run("remote").split()):
        log.warning(
            "git has no remote %s, which record.remote names, only %s: results stay in this repository; "
            "`perennial config --set record.remote=%s`", options.remote, ", ".join(others), others[0],
        )  # fmt: skip
    if remote and fetch:
        try:
            _fetch(git, remote, options.artifact)
        except GitError as error:
            unreachable = str(error)
            log.warning("%s could not be asked; the registry is as of the last fetch: %s", remote, error)
    registry = read(git, full_name(git, options.artifact), unpushed=not (remote and fetch))
    return OpenRegistry(repository=git, registry=registry, remote=remote, unreachable=unreachable)


def _fetch(git: Repository, remote: str, artifact: str) -> None:
    """Fetch the branches of a remote and the tags of an artifact, which then are the remote's here."""
    patterns = [pattern for name in names(git, artifact) for pattern in tag_patterns(name)]
    before = remote_tags.listed(git, remote_tags.copies(remote), patterns)
    heads = f"+refs/heads/*:refs/remotes/{remote}/*"
    git.fetch(remote, [heads, *remote_tags.refspecs(remote, patterns)])
    remote_tags.follow(git, remote, patterns, before)


def remote(config: Config) -> str | None:
    """The remote that commands push to, by name and address; None without one."""
    url = Repository(Path()).ask("remote", "get-url", config.record.remote) if config.record.remote else None
    return url and f"{config.record.remote} ({redacted(url)})"


def here(opened: OpenRegistry) -> OpenRegistry:
    """The registry with what was made here without a push, for changes that stay in this repository."""
    registry = read(opened.repository, opened.registry.artifact)
    return replace(opened, registry=registry, remote=None, unreachable=None)


def kept_here(config: Config, command: str) -> str:
    """The end of a message about a change that was not pushed; empty without a remote."""
    where = remote(config)
    return (
        f", in this repository only: nothing was pushed to {where}; `{command} --push` does it" if where else ""
    )
