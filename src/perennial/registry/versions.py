"""The registry: annotated tags in GTO's format, which `dvc artifacts get` and DVC Studio also read.

`classifier@v0.0.7` is a version, `classifier#champion#9` the ninth assignment of a stage. The assignment with
the highest number is the champion. GTO orders tags by date, so each is dated after all earlier ones.
Source: https://github.com/iterative/gto
"""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perennial import documents
from perennial.config import Config
from perennial.errors import ConfigError, DataError
from perennial.registry.git import GitError, Repository, after, repository

log = logging.getLogger(__name__)
STAGE = "champion"
FIELDS = ("refname:strip=2", "*objecttype", "*objectname", "taggerdate:unix", "contents:body")
FORMAT = "%00".join(f"%({name})" for name in FIELDS) + "%01"
# Assignments of any stage count. `!` revokes an assignment or a version; GTO may number such tags of a version.
TAG = re.compile(
    r"(?P<name>.+?)(?:@v(?P<version>\d+\.\d+\.\d+)|#(?P<stage>[\w/-]+))(?P<revoked>!?)(?:#(?P<number>\d+))?"
)


@dataclass(frozen=True, kw_only=True)
class Version:
    """A registered version."""

    name: str  # such as v0.0.7
    commit: str
    date: int  # seconds since 1970
    facts: Mapping[str, Any]  # from the tag's message; empty where another program made the tag

    @property
    def order(self) -> tuple[int, ...]:
        """Sort key."""
        return tuple(map(int, self.name[1:].split(".")))


@dataclass(frozen=True, kw_only=True)
class Registry:
    """Versions and champions of an artifact."""

    artifact: str
    versions: tuple[Version, ...]  # by number, the newest last
    champions: tuple[Version, ...]  # in the order in which they became champion
    champion: Version | None  # in use
    last_version: tuple[int, ...]  # also counts versions that were revoked
    last_number: int  # of an assignment
    last_date: int | None  # of a tag

    @property
    def rolled_back(self) -> tuple[Version, ...]:
        """Versions that were rolled back, and have not become champion again."""
        found: dict[str, Version] = {}
        for n, now in enumerate(self.champions):
            found.pop(now.name, None)
            found |= {each.name: each for each in self.champions[:n] if each.order > now.order}
        return tuple(found.values())

    def at(self, commit: str) -> Version | None:
        """The version at a commit."""
        return next((each for each in self.versions if each.commit == commit), None)

    def named(self, name: str) -> Version:
        """The version of a name.

        Raises:
            ConfigError: there is none.
        """
        for each in self.versions:
            if each.name == name:
                return each
        known = ", ".join(each.name for each in reversed(self.versions)) or "none"
        raise ConfigError(f"{self.artifact} has no version {name}; known: {known}")

    def previous(self) -> Version:
        """The highest version below the champion that was champion before.

        Raises:
            DataError: there is none.
        """
        now = self.champion
        below = [each for each in self.champions if now is not None and each.order < now.order]
        if not below:
            raise DataError(f"{self.artifact} has no earlier champion to roll back to; nothing was changed")
        return max(below, key=lambda each: each.order)

    def next_name(self) -> str:
        """The name of the next version."""
        major, minor, patch = self.last_version
        return f"v{major}.{minor}.{patch + 1}"


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


def open_registry(config: Config, *, fetch: bool = True) -> OpenRegistry:
    """Open the registry of this checkout, after fetching from its remote.

    Raises:
        ConfigError: there is no repository, or it has no commit.
    """
    options = config.record
    found = repository(Path(), options.git_name, options.git_email)
    remote = options.remote if options.remote and found.has_remote(options.remote) else None
    unreachable = None
    if remote and fetch:
        heads = f"+refs/heads/*:refs/remotes/{remote}/*"
        try:
            found.fetch(remote, [heads, *references(options.artifact)])
        except GitError as error:
            unreachable = str(error)
            log.warning("the remote %s cannot be reached: %s", remote, error)
    registry = read(found, options.artifact)
    return OpenRegistry(repository=found, registry=registry, remote=remote, unreachable=unreachable)


def read(repository: Repository, artifact: str) -> Registry:
    """Read the registry of this repository, as last fetched."""
    patterns = [f"refs/tags/{artifact}{sign}*" for sign in "@#"]
    listed = repository.run("for-each-ref", f"--format={FORMAT}", *patterns)
    events, assignments, dates = list[tuple[Version, bool]](), list[tuple[int, str, bool, str]](), [0]
    for row in filter(None, (row.strip("\n") for row in listed.split("\x01"))):
        tag, kind, commit, date, body = row.split("\0")
        parts = TAG.fullmatch(tag)
        if kind != "commit" or parts is None or parts["name"] != artifact:
            continue  # GTO ignores such tags, lightweight ones among them
        dates.append(int(date))
        revoked = bool(parts["revoked"])
        if parts["version"]:
            facts = documents.json_object(body)
            version = Version(name=f"v{parts['version']}", commit=commit, date=int(date), facts=facts)
            events.append((version, revoked))
        elif parts["number"]:
            assignments.append((int(parts["number"]), parts["stage"], revoked, commit))
    versions = _registered(events)
    assigned = [(revoked, commit) for _, stage, revoked, commit in sorted(assignments) if stage == STAGE]
    champions, champion = _champions(assigned, {each.commit: each for each in versions})
    return Registry(
        artifact=artifact,
        versions=versions,
        champions=champions,
        champion=champion,
        last_version=max((version.order for version, _ in events), default=(0, 0, 0)),
        last_number=max((number for number, *_ in assignments), default=0),
        last_date=max(dates) or None,
    )


def _registered(events: Sequence[tuple[Version, bool]]) -> tuple[Version, ...]:
    """The versions whose last event is not a revocation, by number."""
    last: dict[str, tuple[Version, bool]] = {}
    for version, revoked in sorted(events, key=lambda each: (each[0].date, each[1])):
        last[version.name] = version, revoked
    return tuple(sorted((each for each, revoked in last.values() if not revoked), key=lambda each: each.order))


def _champions(
    assigned: Sequence[tuple[bool, str]], by_commit: Mapping[str, Version]
) -> tuple[tuple[Version, ...], Version | None]:
    """Every version each time it became champion, and the champion.

    After a revocation, the one assigned before it is champion again.
    """
    history, current = list[Version](), list[Version]()
    for revoked, commit in assigned:
        version = by_commit.get(commit)
        if version is None:  # revoked itself
            continue
        current = [each for each in current if each is not version]
        if not revoked:
            current.append(version)
        if current and (not history or current[-1] is not history[-1]):
            history.append(current[-1])
    return tuple(history), current[-1] if current else None


def promotion(
    repository: Repository, registry: Registry, commit: str, facts: Mapping[str, object]
) -> tuple[str, dict[str, str]]:
    """Create the tags that register a commit as the next version and as champion.

    Returns the version's name, and the tag of each reference.
    """
    name = registry.next_name()
    version_date = after(registry.last_date)
    accuracy = facts.get("accuracy")
    scored = f", accuracy {accuracy:.4g}" if isinstance(accuracy, float) else ""
    subject = f"{registry.artifact} {name}{scored}"
    tag = f"{registry.artifact}@{name}"
    version = repository.tag(tag, commit, _message(subject, facts), version_date)
    assigned = assignment(repository, registry, commit, f"{subject}: champion", facts, date=version_date + 1)
    return name, {f"refs/tags/{tag}": version, **assigned}


def assignment(
    repository: Repository,
    registry: Registry,
    commit: str,
    subject: str,
    facts: Mapping[str, object],
    *,
    date: int | None = None,
) -> dict[str, str]:
    """Create the tag that makes a commit champion; returns it by its reference."""
    tag = f"{registry.artifact}#{STAGE}#{registry.last_number + 1}"
    made = repository.tag(tag, commit, _message(subject, facts), date or after(registry.last_date))
    return {f"refs/tags/{tag}": made}


def listing(registry: Registry) -> list[dict[str, object]]:
    """The versions as `perennial versions --json` prints them, the newest first."""
    champion = registry.champion
    return [
        {
            "version": each.name,
            "commit": each.commit,
            "date": datetime.fromtimestamp(each.date, UTC).isoformat(timespec="seconds"),
            "data": each.facts.get("data"),
            "accuracy": each.facts.get("accuracy"),
            "champion": champion is not None and each.name == champion.name,
            "decision": each.facts.get("decision"),
        }
        for each in reversed(registry.versions)
    ]


def references(artifact: str) -> Sequence[str]:
    """The refspecs of a registry; the remote's tags replace the local ones."""
    return [f"+refs/tags/{artifact}{sign}*:refs/tags/{artifact}{sign}*" for sign in "@#"]


def _message(subject: str, facts: Mapping[str, object]) -> str:
    return f"{subject}\n\n{json.dumps(facts, sort_keys=True, indent=2, ensure_ascii=False)}\n"
