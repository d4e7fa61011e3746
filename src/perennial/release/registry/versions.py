"""The registry: annotated tags in GTO's format, which `dvc artifacts get` and DVC Studio also read.

`classifier@v0.0.7` is a version, `classifier#champion#9` the ninth assignment of a stage. The assignment with
the highest number is the champion. GTO orders tags by date, so each is dated after all earlier ones.
`pipelines/birds=classifier@v0.0.1` is a version of the artifact in the dvc.yaml of that folder.
Source: https://github.com/iterative/gto
"""

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perennial.base import documents
from perennial.base.errors import ConfigError, DataError, printable
from perennial.base.layout import STAGES, Project
from perennial.base.project.git import LAST_DATE, Repository, after
from perennial.model.evaluation import results
from perennial.release.registry import remote_tags

log = logging.getLogger(__name__)
CHAMPION = "champion"  # GTO calls this a stage
FIELDS = ("refname", "objectname", "*objecttype", "*objectname", "taggerdate:unix", "contents:body")
FORMAT = "".join(f"%({name})%00" for name in FIELDS)  # a message may hold any other character
# Of a dvc.yaml, as GTO and git take it in a tag.
FOLDER = re.compile(r"(?!.*\.lock(/|$))(?!.*\.\.)[A-Za-z0-9_][\w-]*([./][A-Za-z0-9_][\w-]*)*", re.ASCII)
DIGITS = 9  # of a number in a tag
# Assignments of any stage count. `!` revokes an assignment or a version; GTO may number such tags of a version.
TAG = re.compile(
    r"(?P<name>.+?)(?:@v(?P<version>N\.N\.N)|#(?P<stage>[\w/-]+))(?P<revoked>!?)(?:#(?P<number>N))?".replace(
        "N", rf"\d{{1,{DIGITS}}}"
    ),
    re.ASCII,
)


class TagFacts(documents.JsonFile):
    """The facts in the tag of a version, which anyone with push access can write."""

    accuracy: float | None = None
    map: float | None = None  # in place of accuracy, of several labels an image
    data: str | None = None
    model: str | None = None
    opponent: str | None = None
    run: str | None = None
    examples: int | None = None  # test examples
    comparison: int | None = None  # number of its decision among all that were recorded
    negative_flips: float | None = None  # share of the test examples that only its opponent got right
    audit: dict[str, Any] | None = None  # score on test examples that no decision reads
    opponent_unbiased: dict[str, Any] | None = None
    compared: dict[str, Any] | None = None  # with its opponent, if there is a budget (gate.false_share)
    decision: dict[str, Any] | None = None
    machine: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Version:
    """A registered version."""

    name: str  # such as v0.0.7
    commit: str
    date: int  # seconds since 1970
    facts: Mapping[str, Any]  # from the tag's message; empty where another program made the tag
    only_here: bool = False  # the server does not have it

    @property
    def order(self) -> tuple[int, ...]:
        """Sort key."""
        return _order(self.name[1:])


@dataclass(frozen=True, kw_only=True)
class Registry:
    """Versions and champions of an artifact."""

    artifact: str
    versions: tuple[Version, ...]  # by number, the newest last
    champions: tuple[Version, ...]  # in the order in which they became champion
    champion: Version | None  # in use
    only_here: tuple[Version, ...]  # tags that the server does not have, or no longer; none of the above
    last_version: tuple[int, ...]  # also counts versions that were revoked
    last_number: int  # of an assignment
    last_date: int | None  # of a tag

    @property
    def rolled_back(self) -> tuple[Version, ...]:
        """Versions that were rolled back, and have not become champion again."""
        rolled_back: dict[str, Version] = {}
        for n, now in enumerate(self.champions):
            rolled_back.pop(now.name, None)
            rolled_back |= {each.name: each for each in self.champions[:n] if each.order > now.order}
        return tuple(rolled_back.values())

    @property
    def unassigned(self) -> tuple[Version, ...]:
        """Versions above the champion that a run registered, but that never became champion: a half push."""
        highest = max((version.order for version in self.champions), default=(0,))
        return tuple(version for version in self.versions if version.order > highest and "run" in version.facts)

    def at(self, commit: str) -> Version | None:
        """The version at a commit."""
        return next((version for version in self.versions if version.commit == commit), None)

    def named(self, name: str) -> Version:
        """The version of a name, such as v0.0.3, 0.0.3 or classifier@v0.0.3."""
        wanted = name.removeprefix(f"{self.artifact}@").removeprefix("v")
        for version in self.versions:
            if version.name == f"v{wanted}":
                return version
        known = ", ".join(version.name for version in reversed(self.versions)) or "none"
        raise ConfigError(f"{self.artifact} has no version {name}; known: {known}")

    def previous(self) -> Version:
        """The highest version below the champion that was champion before."""
        now = self.champion
        below = [version for version in self.champions if now is not None and version.order < now.order]
        if not below:
            raise DataError(f"{self.artifact} has no earlier champion to roll back to; nothing was changed")
        return max(below, key=lambda version: version.order)

    def next_name(self) -> str:
        """The name of the next version."""
        major, minor, patch = self.last_version
        return f"v{major}.{minor}.{patch + 1}"


def names(repository: Repository, artifact: str) -> Sequence[str]:
    """The names that an artifact may have in tags: its own, and with the folder of its dvc.yaml."""
    folder = repository.run("rev-parse", "--show-prefix").rstrip("/")
    return (artifact, f"{folder}={artifact}") if FOLDER.fullmatch(folder) else (artifact,)


def full_name(repository: Repository, artifact: str) -> str:
    """The name of an artifact in tags: with the folder of its dvc.yaml, if that is not the repository's top."""
    # A project in a subfolder that has versions without it keeps such names.
    *_, name = names(repository, artifact)
    if name == artifact:
        return artifact
    is_top = not Project.find(repository.folder).name

    def known(of: str) -> bool:
        patterns = (f"{remote_tags.TAGS}{pattern}" for pattern in tag_patterns(of))
        return bool(repository.run("for-each-ref", "--count=1", *patterns))

    at_top = repository.ask("cat-file", "-e", f"HEAD:{STAGES}") is not None
    return artifact if is_top and not at_top and known(artifact) and not known(name) else name


def read(repository: Repository, artifact: str, *, unpushed: bool = True) -> Registry:
    """Read the registry of this repository, as last fetched."""
    # `unpushed`: with the versions and champions that a command made here without pushing them.
    here = remote_tags.listed_tags(repository, remote_tags.UNPUSHED, tag_patterns(artifact))
    only = remote_tags.listed_tags(repository, remote_tags.ONLY_HERE, tag_patterns(artifact))
    if not repository.run("remote"):  # this repository is the registry: all of its tags count
        only = {}
    found = _Tags(artifact)
    for tag, object_, *row in _rows(repository, remote_tags.TAGS, artifact):
        if only.get(tag) == object_ or (not unpushed and here.get(tag) == object_):
            continue
        found.add(tag, *row, only_here=here.get(tag) == object_)
    others = _Tags(artifact)
    for tag, object_, *row in _rows(repository, remote_tags.ONLY_HERE, artifact):
        if only.get(tag) == object_:
            others.add(tag, *row, only_here=True)
    versions = _registered(found.events)
    assigned = [(revoked, commit) for _, kind, revoked, commit in sorted(found.assignments) if kind == CHAMPION]
    champions, champion = _champions(assigned, {version.commit: version for version in versions})
    return Registry(
        artifact=artifact,
        versions=versions,
        champions=champions,
        champion=champion,
        only_here=_registered(others.events),
        last_version=max(found.taken + others.taken),
        last_number=max(found.numbers + others.numbers),
        last_date=max(found.dates + others.dates) or None,
    )


def read_artifact(repository: Repository, artifact: str) -> Registry:
    """Read the registry of an artifact of this folder's dvc.yaml, as last fetched."""
    return read(repository, full_name(repository, artifact))


def _rows(repository: Repository, folder: str, artifact: str) -> Iterator[tuple[str, ...]]:
    """The tags of an artifact in a folder of references: name, object, and `FIELDS`."""
    patterns = [f"{folder}{pattern}" for pattern in tag_patterns(artifact)]
    values = repository.run("for-each-ref", f"--format={FORMAT}", *patterns).split("\0")[:-1]
    for name, *row in zip(*[iter(values)] * len(FIELDS), strict=True):  # one iterator: consecutive
        yield name.removeprefix("\n").removeprefix(folder), *row


@dataclass(frozen=True)
class _Tags:
    """What the tags of an artifact say."""

    artifact: str
    events: list[tuple[Version, bool]] = field(default_factory=list)
    assignments: list[tuple[int, str, bool, str]] = field(default_factory=list)
    taken: list[tuple[int, ...]] = field(default_factory=lambda: [(0, 0, 0)])
    numbers: list[int] = field(default_factory=lambda: [0])
    dates: list[int] = field(default_factory=lambda: [0])

    def add(self, tag: str, kind: str, commit: str, date: str, body: str, *, only_here: bool) -> None:
        """Add a tag, if it is one of the artifact."""
        parts = TAG.fullmatch(tag)
        if parts is None or parts["name"] != self.artifact:
            return
        if parts["stage"] == CHAMPION and not parts["number"]:  # `gto assign --simple true`
            log.warning("the tag %s is left out, although GTO counts it: it has no number", printable(tag))
            return
        # No new tag may have the name of any there is.
        if parts["version"]:
            self.taken.append(_order(parts["version"]))
        elif parts["number"]:
            self.numbers.append(int(parts["number"]))
        if kind != "commit":  # GTO ignores such tags
            what = f"a tag of a {kind}" if kind else "a lightweight tag"
            log.warning("the tag %s is left out: it is %s, no annotated one of a commit", printable(tag), what)
            return
        if not date or int(date) > LAST_DATE:  # git prints dates before 1970 as huge numbers
            log.warning("the tag %s is left out: it has no tagger with a valid date", printable(tag))
            return
        self.dates.append(int(date))
        revoked = bool(parts["revoked"])
        if parts["version"]:
            name, facts = f"v{parts['version']}", _facts(tag, body)
            version = Version(name=name, commit=commit, date=int(date), facts=facts, only_here=only_here)
            self.events.append((version, revoked))
        elif parts["number"]:
            self.assignments.append((int(parts["number"]), parts["stage"], revoked, commit))


def tag_patterns(artifact: str) -> Sequence[str]:
    """Patterns of the names of an artifact's tags, also for a fetch."""
    return [f"{artifact}{sign}*" for sign in "@#"]


def _order(numbers: str) -> tuple[int, ...]:
    return tuple(map(int, numbers.split(".")))


def _facts(tag: str, body: str) -> Mapping[str, Any]:
    """The facts in a tag's message, without invalid ones."""
    facts, wrong = documents.valid_fields(documents.json_object(body), TagFacts)
    if wrong:
        log.warning("the tag %s has invalid values, which are left out: %s", printable(tag), ", ".join(wrong))
    elif not facts and body.lstrip().startswith("{"):
        log.warning("the message of the tag %s has no valid JSON; its facts are left out", printable(tag))
    return facts


def _registered(events: Sequence[tuple[Version, bool]]) -> tuple[Version, ...]:
    """The versions whose last event is not a revocation, by number."""
    last: dict[str, tuple[Version, bool]] = {}
    for version, revoked in sorted(events, key=lambda event: (event[0].date, event[1])):
        last[version.name] = version, revoked
    known = (version for version, revoked in last.values() if not revoked)
    return tuple(sorted(known, key=lambda version: version.order))


def _champions(
    assigned: Sequence[tuple[bool, str]], by_commit: Mapping[str, Version]
) -> tuple[tuple[Version, ...], Version | None]:
    """Every version each time it became champion, and the champion; after a revocation, the one before it."""
    history, current = list[Version](), list[Version]()
    for revoked, commit in assigned:
        version = by_commit.get(commit)
        if version is None:  # revoked itself
            continue
        current = [other for other in current if other is not version]
        if not revoked:
            current.append(version)
        if current and (not history or current[-1] is not history[-1]):
            history.append(current[-1])
    return tuple(history), current[-1] if current else None


def promotion(
    repository: Repository, registry: Registry, commit: str, facts: Mapping[str, object]
) -> tuple[str, dict[str, str]]:
    """Create the tags of the next version, which is champion; returns its name, and tags by reference."""
    # A commit that is a version already, because a push stopped halfway, only becomes champion.
    known = registry.at(commit)
    name = known.name if known else registry.next_name()
    what, value = results.named_score(facts)
    scored = f", {what} {value:.4g}" if isinstance(value, float) else ""
    subject, date, tags = f"{registry.artifact} {name}{scored}", after(registry.last_date), dict[str, str]()
    if not known:
        tag = f"{registry.artifact}@{name}"
        tags[f"refs/tags/{tag}"] = repository.tag(tag, commit, _message(subject, facts), date)
        date += 1
    return name, tags | assignment(repository, registry, commit, f"{subject}: champion", facts, date=date)


def assignment(
    repository: Repository, registry: Registry, commit: str, subject: str, facts: Mapping[str, object],
    *, date: int | None = None,
) -> dict[str, str]:  # fmt: skip
    """Create the tag that makes a commit champion; nothing else does. Returns it by its reference."""
    tag = f"{registry.artifact}#{CHAMPION}#{registry.last_number + 1}"
    made = repository.tag(tag, commit, _message(subject, facts), date or after(registry.last_date))
    return {f"refs/tags/{tag}": made}


def _message(subject: str, facts: Mapping[str, object]) -> str:
    return f"{subject}\n\n{json.dumps(facts, sort_keys=True, indent=2, ensure_ascii=False)}\n"
