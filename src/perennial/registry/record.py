"""Record what a run made: a commit, and where the gate promotes the model, a version and the champion.

All of it is pushed at once or not at all. A run that loses a race has changed nothing, and its gate must run
again, because the champion is another one now.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from perennial import pins
from perennial.config import Config
from perennial.errors import ConfigError, PerennialError, QualityError
from perennial.registry import checkout, versions
from perennial.registry.champion import may_promote
from perennial.registry.checkout import Decision, read_decision, recorded_files, require_reproduced
from perennial.registry.versions import Place, open_place

log = logging.getLogger(__name__)
RUN = re.compile(r"[A-Za-z0-9][\w-]*(\.[\w-]+)*")
# Answers of a server that never accepts this branch; other refusals are lost races.
CLOSED = re.compile(r"checked out|declined|protected|denied|prohibited", re.IGNORECASE)

Outcome = Literal["promoted", "not promoted", "unchanged", "kept", "refused"]


@dataclass(frozen=True, kw_only=True)
class Forced:
    """Who promotes a model in spite of the gate, and why."""

    by: str
    because: str


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """The result of recording a run.

    kept: the remote could not be reached, and the commit waits on a local branch. refused: the champion
    changed, nothing was recorded, and the gate must run again.
    """

    run: str
    outcome: Outcome
    message: str
    version: str | None = None
    commit: str | None = None
    branch: str | None = None
    pushed: bool = False


def record(config: Config, run: str, *, forced: Forced | None = None) -> Recorded:
    """Commit and push what a run made; promote its model if the gate, or a person, says so.

    Raises:
        ConfigError: the run's name is none, or there is no repository.
        DataError: the decision is missing or not valid.
        PerennialError: code changed while the run ran, or DVC has not made what dvc.lock says.
    """
    if not RUN.fullmatch(run):
        raise ConfigError(f"the name of a run may hold letters, digits, dots, - and _, got {run!r}")
    decision = read_decision(config)
    place = open_place(config)
    require_reproduced(place.repository, recorded_files(config))
    if place.remote and not place.unreachable:
        _push_waiting(place)
    promote, why = (True, "") if forced else may_promote(config, place, decision)
    if promote is None:
        return Recorded(run=run, outcome="refused", message=why)
    facts = _facts(decision, run, forced)
    branch, parent, note = _target(config, place) if promote else (None, "HEAD", "")
    tree = place.repository.tree_with(parent, recorded_files(config))
    commit = _recorded_before(place, tree, parent)
    if commit is None:
        commit = place.repository.commit(tree, parent, _commit_message(run, decision, facts))
    elif not promote or place.registry.at(commit):
        return _unchanged(place, run, commit)
    made = Recorded(run=run, outcome="not promoted", message=why, commit=commit, branch=branch)
    if promote:
        version, tags = versions.promotion(place.repository, place.registry, commit, facts)
        message = f"{place.registry.artifact} {version} is champion{note}"
        return _publish(place, replace(made, outcome="promoted", version=version, message=message), tags)
    return _publish(place, made, {})


def promote(config: Config, run: str, forced: Forced | None = None) -> Recorded:
    """Promote the model of this checkout as a flow would.

    Raises:
        QualityError: the gate rejected it, and nobody forces it.
        PerennialError: the registry changed meanwhile or cannot be reached; nothing was promoted.
    """
    decision = read_decision(config)
    if not decision.promote and forced is None:
        raise QualityError(
            f"the gate rejected this model: {'; '.join(decision.reasons)}; nothing was promoted; "
            "--force NAME --because TEXT promotes it all the same, and records both"
        )
    done = record(config, run, forced=forced)
    if done.outcome in {"refused", "kept"}:
        raise PerennialError(done.message)
    return done


def _target(config: Config, place: Place) -> tuple[str | None, str, str]:
    """The branch that a promoted run moves, if any, the parent of its commit, and what to tell a person."""
    repository = place.repository
    branch = repository.branch() if config.record.branch == "fast-forward" else None
    tip = branch and place.remote and repository.commit_of(place.tracking(branch))
    if not tip or repository.is_ancestor(tip, "HEAD"):
        return branch, "HEAD", ""
    others = repository.run("rev-list", f"HEAD..{tip}").split()
    prefix = repository.run("rev-parse", "--show-prefix")
    ours = {f"{prefix}{file.as_posix()}" for file in recorded_files(config)}
    by_runs = all(place.registry.at(commit) for commit in others) and ours.issuperset(
        repository.differing("HEAD", tip)
    )
    if by_runs and repository.is_ancestor("HEAD", tip):
        return branch, tip, ""
    return None, "HEAD", f"; {branch} has commits that this run does not have, so it was not moved"


def _recorded_before(place: Place, tree: str, parent: str) -> str | None:
    """A commit that holds this tree: the parent, a version's, or one of another run from the same parent."""
    git, parent_commit = place.repository, place.repository.commit_of(parent)
    remotes = [place.tracking("run/*")] if place.remote else []
    listed = git.run("for-each-ref", "--format=%(objectname) %(tree) %(parent)", "refs/heads/run/**", *remotes)
    runs = [line.split() for line in listed.splitlines()]
    found = [row[0] for row in runs if row[1:] == [tree, parent_commit]]
    registered = [each.commit for each in reversed(place.registry.versions)]
    for commit in (parent_commit, *registered, *found):
        if commit and git.run("rev-parse", f"{commit}^{{tree}}") == tree:
            return commit
    return None


def _unchanged(place: Place, run: str, commit: str) -> Recorded:
    known = place.registry.at(commit)
    _follow(place, commit)
    what = f"recorded already, as {known.name}" if known else f"recorded already, in commit {commit[:10]}"
    name = known.name if known else None
    return Recorded(run=run, outcome="unchanged", message=what, commit=commit, version=name)


def _publish(place: Place, made: Recorded, tags: Mapping[str, str]) -> Recorded:
    """Make branch and tags visible at once, on the remote and here."""
    apart = f"run/{made.run}"
    commit = made.commit or ""
    references = {f"refs/heads/{made.branch or apart}": commit, **tags}
    if place.remote is None:
        return _finish(place, replace(made, branch=made.branch or apart), references)
    problem = place.unreachable or checkout.push()
    if problem is None:
        pushed = place.repository.push(place.remote, references)
        refusal = pushed.rejected.get(f"refs/heads/{made.branch}", "")
        if CLOSED.search(refusal):
            log.info("%s does not accept %s %s", place.remote, made.branch, refusal)
            note = (
                f"{made.message}; the remote does not accept {made.branch} {refusal}, so {apart} has the commit"
            )
            made = replace(made, branch=None, message=note)
            references = {f"refs/heads/{apart}": commit, **tags}
            pushed = place.repository.push(place.remote, references)
        if pushed.done:
            return _finish(place, replace(made, branch=made.branch or apart, pushed=True), references)
        problem = pushed.unreachable
        if problem is None:
            reasons = ", ".join(f"{name} {reason}" for name, reason in pushed.rejected.items())
            message = f"another run was faster ({reasons}); the gate must run again"
            return Recorded(run=made.run, outcome="refused", message=message)
    place.repository.update({f"refs/heads/{apart}": commit})
    message = (
        f"nothing was pushed ({problem}); the local branch {apart} has the commit, and the next run pushes it"
    )
    return Recorded(run=made.run, outcome="kept", message=message, commit=commit, branch=apart)


def _finish(place: Place, made: Recorded, references: Mapping[str, str]) -> Recorded:
    """Bring this repository to what was published."""
    git, checked_out = place.repository, f"refs/heads/{place.repository.branch()}"
    here = {
        name: value for name, value in references.items() if not place.remote or name.startswith("refs/tags/")
    }
    here.pop(checked_out, None)
    git.update(here)
    if checked_out in references:
        _follow(place, references[checked_out])
    return made


def _follow(place: Place, commit: str) -> None:
    """Move the checked-out branch forward to a commit whose tree is the checkout's."""
    git, branch = place.repository, place.repository.branch()
    head = git.run("rev-parse", "HEAD")
    if branch and commit != head and git.is_ancestor(head, commit):
        names = git.differing(head, commit)
        git.update({f"refs/heads/{branch}": commit})
        git.run("reset", "--quiet", "--", *(f":(top,literal){name}" for name in names))


def _push_waiting(place: Place) -> None:
    """Push runs that were recorded while the remote could not be reached."""
    git = place.repository
    listed = git.run("for-each-ref", "--format=%(refname:strip=2)", "refs/heads/run/**").split()
    waiting = {name: git.commit_of(f"refs/heads/{name}") for name in listed}
    waiting = {f"refs/heads/{name}": commit for name, commit in waiting.items() if name != git.branch()}
    if not waiting or not place.remote:
        return
    problem = checkout.push(all_branches=True)
    pushed = git.push(place.remote, waiting) if problem is None else None
    if pushed and pushed.done:
        git.update(dict.fromkeys(waiting))
        log.info("pushed what had waited: %s", ", ".join(waiting))
    else:
        log.warning("%s still waits: %s", ", ".join(waiting), problem or pushed)


def _facts(decision: Decision, run: str, forced: Forced | None) -> dict[str, object]:
    """What the tag of a version says."""
    by_hand = {"by": forced.by, "because": forced.because} if forced else None
    return {
        "accuracy": decision.candidate.get("accuracy"),
        "data": decision.candidate.get("data"),
        "model": decision.candidate.get("model"),
        "opponent": pins.read_champion().version,
        "decision": {"promote": decision.promote, "reasons": decision.reasons, "forced": by_hand},
        "run": run,
    }


def _commit_message(run: str, decision: Decision, facts: Mapping[str, object]) -> str:
    accuracy = facts["accuracy"]
    scored = f"accuracy {accuracy:.4g}, " if isinstance(accuracy, float) else ""
    passed = "passes the gate" if decision.promote else "rejected by the gate"
    reasons = "\n".join(f"- {reason}" for reason in decision.reasons)
    return f"Run {run}: {scored}{passed}\n\n{reasons}\n"
