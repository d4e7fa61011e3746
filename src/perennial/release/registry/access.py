"""The registry of a checkout, as it is on the remote after a fetch, and what only this repository has of it."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perennial.base.config import Config
from perennial.base.errors import printable, redacted
from perennial.base.project.git import CHECKOUT, GitError, Repository, repository
from perennial.release.registry.versions import Registry, full_name, read, tag_patterns

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
        """Why the checkout of a run must not move a branch of the remote: a person removed it or set it back.

        The checkout began at the tip of that branch. A clone may be ahead, with commits of its own to push.
        """
        git = self.repository
        if self.remote is None or self.unreachable or not (git.branch() or "").startswith(CHECKOUT):
            return None
        listed = git.ask("ls-remote", self.remote, f"refs/heads/{branch}")
        if listed == "":
            return f"{branch} is no longer on {self.remote}"
        tip, head = (listed or "").partition("\t")[0], git.commit_of("HEAD")
        if tip and tip != head and git.is_ancestor(tip, "HEAD"):
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
    unreachable, artifact = None, full_name(git, options.artifact)
    if options.remote and not remote and fetch and (others := git.run("remote").split()):
        log.warning(
            "git has no remote %s, which record.remote names, only %s: results stay in this repository; "
            "`perennial config --set record.remote=%s`", options.remote, ", ".join(others), others[0],
        )  # fmt: skip
    if remote and fetch:
        heads, before = f"+refs/heads/*:refs/remotes/{remote}/*", _tags(git, artifact)
        try:
            git.fetch(remote, [heads, *references(artifact)])
        except GitError as error:
            unreachable = str(error)
            log.warning("the remote %s cannot be reached: %s", remote, error)
        _warn_of_replaced(git, artifact, remote, before)
    registry = read(git, artifact)
    return OpenRegistry(repository=git, registry=registry, remote=remote, unreachable=unreachable)


def remote(config: Config) -> str | None:
    """The remote that commands push to, by name and address; None without one."""
    url = Repository(Path()).ask("remote", "get-url", config.record.remote) if config.record.remote else None
    return url and f"{config.record.remote} ({redacted(url)})"


def here(opened: OpenRegistry) -> OpenRegistry:
    """The same registry, for changes that stay in this repository."""
    return replace(opened, remote=None, unreachable=None)


def kept_here(config: Config, command: str) -> str:
    """The end of a message about a change that was not pushed; empty without a remote."""
    where = remote(config)
    return (
        f", in this repository only: nothing was pushed to {where}; `{command} --push` does it" if where else ""
    )


def unpushed(opened: OpenRegistry) -> dict[str, str]:
    """The tags of this registry that the remote lacks.

    Raises:
        PerennialError: the remote does not answer.
    """
    ours = _tags(opened.repository, opened.registry.artifact)
    listed = opened.repository.run("ls-remote", "--tags", "--refs", opened.remote or "")
    there = {line.partition("\t")[2] for line in listed.splitlines()}
    return {name: tag for name, tag in ours.items() if name not in there}


def _tags(repository: Repository, artifact: str) -> dict[str, str]:
    """The objects of this artifact's tags."""
    listed = repository.run("for-each-ref", "--format=%(objectname) %(refname)", *tag_patterns(artifact))
    return {name: tag for tag, name in (line.split(" ", 1) for line in listed.splitlines())}


def _warn_of_replaced(repository: Repository, artifact: str, remote: str, before: Mapping[str, str]) -> None:
    """Name the tags of this repository whose name the remote has for another commit: they were replaced."""
    now = _tags(repository, artifact)
    for name, tag in before.items():
        if now.get(name, tag) != tag:
            commit = repository.commit_of(tag) or tag
            found = (printable(name.removeprefix("refs/tags/")), remote, commit)
            log.warning("%s is now the one of %s; the one that only this repository had was at %s", *found)


def references(artifact: str) -> Sequence[str]:
    """The refspecs of a registry; the remote's tags replace the local ones."""
    return [f"+{pattern}:{pattern}" for pattern in tag_patterns(artifact)]
