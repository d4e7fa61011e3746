"""Pushing references, and why a remote refuses: a lost race, or anything else, in the words of git and server.

A push is atomic where the remote can do that. Elsewhere the references follow each other: the branch, the tags,
the record of the run. The next run, or the same answer again, completes a push that stopped halfway.
"""

import logging
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from perennial.base import retries
from perennial.base.errors import Failure, printable, redacted
from perennial.base.processes import programs
from perennial.base.project.git import GitTimedOut, Repository

log = logging.getLogger(__name__)
NOT_ATOMIC = "does not support --atomic"
BESIDE = re.compile(r"atomic (push failed|push failure|transaction failed)")  # another reference was refused
# Git's words if the reference has another value than this repository knows.
MOVED = re.compile(
    r"^\[rejected\] \((fetch first|non-fast-forward|already exists|stale info|remote ref updated)"
)
LOCKED = re.compile(r"Unable to create '[^']*\.lock': File exists")  # by another push, for a moment
# Settings of the user change neither what is pushed nor whether.
OPTIONS = ("--porcelain", "--no-verify", "--no-follow-tags", "--no-recurse-submodules")
RUNS = "refs/heads/run/"  # branches that end with the record of a run
SHOWN = 8  # lines of the server
FAILED = "error: failed to push some refs"  # says no more than the exit code
UPDATED = (" ", "+", "*", "-")  # git's flags in its listing
ENDED = ("error: remote", "error: insufficient", "fatal: ")
NO_ACCESS = re.compile(
    r"could not read (Username|Password)|Authentication failed|\b40[134]\b|Permission (to .* )?denied|"
    r"publickey|access denied|not have (the correct )?(access|permission)|not found|"
    r"not appear to be a git repository",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class Push:
    """The result of a push."""

    refused: Mapping[str, str] = field(default_factory=dict)  # git's reason for each reference
    failure: str | None = None  # of the whole push: no connection, no access
    said: tuple[str, ...] = ()  # by the server
    lost: bool = False  # another push was first: a reference has a value that this repository did not know
    updated: tuple[str, ...] = ()  # references that were pushed although others were not

    @property
    def done(self) -> bool:
        """Whether all references were updated."""
        return not self.refused and self.failure is None

    @property
    def remedy(self) -> str | None:
        """What a person can do about it; None if it may pass by itself."""
        if self.refused:
            return "change what the remote names, or the account that pushes"
        found = NO_ACCESS.search(str(self))
        return "look at the address of the remote and at git's access from this machine" if found else None

    @property
    def kind(self) -> Failure:
        """The kind of failure; no retry helps where a person must change something."""
        return Failure.REFUSED if self.remedy and not self.lost else Failure.OUTSIDE

    def __str__(self) -> str:
        """The reasons, in the words of git and the server."""
        reasons = dict[str, list[str]]()
        for name, reason in self.refused.items():
            own = re.fullmatch(r"\[[^\]]*\] \((.*)\)", reason)  # `[remote rejected] (hook declined)`
            reasons.setdefault(own[1] if own else reason, []).append(short(name))
        causes = {reason: names for reason, names in reasons.items() if not BESIDE.search(reason)} or reasons
        words = [f"{', '.join(names)}: {reason}" for reason, names in causes.items()]
        words += [self.failure] if self.failure else []
        words += [f"the server says: {' / '.join(self.said)}"] if self.said else []
        words += [f"already pushed: {', '.join(map(short, self.updated))}"] if self.updated else []
        return "; ".join(words)


def push_references(
    git: Repository, remote: str, references: Mapping[str, str], replaced: str | None = None
) -> Push:
    """Push all or none where the remote can, else in order; `replaced`: may be force-pushed."""
    done = _tried(git, remote, references, replaced, atomic=True)
    if done.failure and NOT_ATOMIC in done.failure:
        log.info("%s does not support atomic pushes: the references are pushed one after the other", remote)
        done = _in_order(git, remote, references, replaced)
    if done.done or any(MOVED.search(reason) for name, reason in done.refused.items() if name != replaced):
        return done if done.done else replace(done, lost=True)
    there = _there(git, remote, references)
    if done.failure and there == dict(references):  # the connection broke after the server had finished
        return Push()
    # Whether another value there has what the pushed one does not contain.
    other = [name for name, value in there.items() if name != replaced and value != references[name]]
    lost = (ref.startswith("refs/tags/") or not git.is_ancestor(there[ref], references[ref]) for ref in other)
    return replace(done, lost=any(lost))


def _in_order(git: Repository, remote: str, references: Mapping[str, str], replaced: str | None) -> Push:
    """Push one reference after the other, and stop at the first that is refused."""
    updated: list[str] = []
    # The branch, the tags, the record of the run.
    for name in sorted(references, key=lambda name: (name.startswith(RUNS), name.startswith("refs/tags/"))):
        done = _tried(git, remote, {name: references[name]}, replaced, atomic=False)
        if not done.done:
            return replace(done, updated=tuple(updated))
        updated.append(name)
    return Push()


def _tried(
    git: Repository, remote: str, references: Mapping[str, str], replaced: str | None, *, atomic: bool
) -> Push:
    """Push once; again if another push holds a lock there."""
    sources = [f"{'+' if name == replaced else ''}{value}:{name}" for name, value in references.items()]
    options = ("--atomic" if atomic else "--no-atomic", *OPTIONS)
    for pause in (*retries.GIT_RACE_S, None):
        try:
            done = git.call("push", *options, remote, *sources)
        except GitTimedOut as error:
            return Push(failure=str(error))
        if pause is None or not LOCKED.search(done.errors):
            break
        time.sleep(pause)
    return _result(done)


def _result(done: programs.Finished) -> Push:
    # Lines such as: `!\tsource:reference\t[rejected] (fetch first)`
    rows = [line.split("\t") for line in done.output.splitlines() if line.count("\t") == 2]
    refused = {row[1].rpartition(":")[2]: printable(row[2]) for row in rows if row[0] == "!"}
    lines = [line.strip() for line in done.errors.splitlines() if line.strip()]
    server = [words for line in lines if (words := line.removeprefix("remote:").strip()) and words != line]
    own = [line for line in lines if not line.startswith(("remote:", "hint:", FAILED))]
    if done.code == 0:
        return Push()
    if refused:  # git's own lines tell what it heard of the other end
        said = _shown([*server, *(line for line in own if line.startswith(ENDED))])
        # git updates others in spite of `--atomic` if it may not touch one at all, such as a hidden one.
        updated = tuple(row[1].rpartition(":")[2] for row in rows if row[0] in UPDATED)
        return Push(refused=refused, said=said, updated=updated)
    return Push(failure=" ".join(_shown(own or lines)) or f"exit code {done.code}", said=_shown(server))


def _shown(lines: list[str]) -> tuple[str, ...]:
    return tuple(printable(redacted(line)) for line in lines[:SHOWN])


def _there(git: Repository, remote: str, references: Mapping[str, str]) -> dict[str, str]:
    """The values of these references on the remote, without missing ones; empty if it does not answer."""
    try:
        listed = git.ask("ls-remote", remote, *references) or ""
    except GitTimedOut:
        return {}
    found = {name: value for value, _, name in (row.partition("\t") for row in listed.splitlines())}
    return {name: found[name] for name in references if name in found}


def short(name: str) -> str:
    """The usual name of a branch or tag."""
    return name.removeprefix("refs/heads/").removeprefix("refs/tags/")
