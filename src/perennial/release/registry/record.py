"""Record a run: a commit and, if the gate promotes the model, a version and the champion.

Everything is pushed atomically. A run that loses a race has changed nothing, and its gate must run
again, because the champion has changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perennial.base.config import Config
from perennial.base.devices import processor
from perennial.base.errors import ConfigError, PerennialError, QualityError
from perennial.base.project import pins
from perennial.model.evaluation import results
from perennial.release.registry import (
    access,
    approval,
    checkout_state,
    remote_tags,
    run_branches,
    run_records,
    scores,
    unpushed_commits,
    versions,
)
from perennial.release.registry.access import OpenRegistry, open_registry
from perennial.release.registry.checkout_state import read_decision, recorded_files, require_reproduced
from perennial.release.registry.current_champion import is_champion, may_promote
from perennial.release.registry.run_branches import Recorded
from perennial.release.registry.versions import Version

RACES = 5  # tries to push while runs of other pipelines move the branch


@dataclass(frozen=True, kw_only=True)
class ByHand:
    """The person who promotes a model, and the reason; `forced`: against the gate."""

    by: str
    because: str | None
    forced: bool


def record(config: Config, run: str) -> Recorded:
    """Commit and push what a run made; promote its model if it passed the gate."""
    checkout_state.require_name(run)
    decision = read_decision(config)
    for _ in range(RACES):
        opened = approval.completed(config, open_registry(config))
        promote, why = may_promote(config, opened, decision)
        if promote is None:
            done = Recorded(run=run, outcome="refused", message=why)
        else:
            done = _record(config, opened, run, decision, rejected=None if promote else why)
        if promote is None or done.outcome != "refused":
            break
        # The branch moved; perhaps another pipeline's run did that, and the champion is the same.
    run_records.add(config, run, recorded=done.outcome)
    return replace(done, reasons=decision.reasons)


def promote(config: Config, run: str, by_hand: ByHand | None = None, *, push: bool = True) -> Recorded:
    """Promote the model of this checkout as a flow does, or by the decision of a person.

    `push`: also on the remote, if there is one.
    """
    decision, opened = read_decision(config), open_registry(config)
    if not push:
        opened = access.here(opened)
    if opened.unreachable:
        raise PerennialError(
            f"{opened.remote} cannot be reached, so nothing was promoted: {opened.unreachable}"
        )
    here = opened if opened.remote is None else replace(opened, registry=access.here(opened).registry)
    if is_champion(config, here) and (known := here.registry.champion):
        return _push_champion(config, opened, run, known)
    forced = by_hand is not None and by_hand.forced
    allowed, why = (True, "") if forced else may_promote(config, opened, decision)
    if allowed is None:
        raise PerennialError(f"{why} (`perennial pin champion`, then `dvc repro`); nothing was promoted")
    if not allowed:
        raise QualityError(
            f"{why}; nothing was promoted; --force NAME --because TEXT promotes it anyway, on record"
        )
    if config.gate.approval and by_hand is None:
        raise ConfigError("gate.approval asks for a person: --approve NAME says who; nothing was promoted")
    done = _record(config, opened, run, decision, by_hand)
    if done.outcome == "refused":
        unpushed_commits.drop(opened.repository, run)  # the checkout has everything
    if done.outcome in {"refused", "kept"}:
        raise PerennialError(done.message)
    note = "" if push else access.kept_here(config, "perennial promote")
    return replace(done, message=done.message + note)


def _push_champion(config: Config, opened: OpenRegistry, run: str, champion: Version) -> Recorded:
    """The result if this model is champion already; pushes what only this repository has of it."""
    tags = remote_tags.made_here(opened.repository, champion.commit) if opened.remote else {}
    if not tags:
        message = f"{champion.name} is champion already"
        return Recorded(run=run, outcome="unchanged", message=message, version=champion.name)
    git, commit = opened.repository, champion.commit
    branch = run_branches.moved_branch(opened) if config.record.branch == "fast-forward" else None
    tip = branch and git.commit_of(opened.tracking(branch))
    made = Recorded(
        run=run,
        outcome="promoted",
        message=f"{opened.registry.artifact} {champion.name} is champion",
        version=champion.name,
        commit=commit,
        branch=branch if not tip or git.is_ancestor(tip, commit) else None,
    )
    done = run_branches.push_run(opened, made, tags, commit)
    if not done.pushed:
        raise PerennialError(done.message)
    return done


def _record(
    config: Config,
    opened: OpenRegistry,
    run: str,
    decision: results.Decision,
    by_hand: ByHand | None = None,
    *,
    rejected: str | None = None,
) -> Recorded:
    """Record a run; `rejected`: why its model is not promoted; `by_hand`: the person who promotes it."""
    waits = config.gate.approval and not rejected and by_hand is None
    written = recorded_files(config)
    compared = checkout_state.contents(written)
    require_reproduced(opened.repository, written)
    results.require_recorded(config.paths.training)
    results.require_recorded(config.paths.decision)
    _require_same_commit(config, opened, run)
    if opened.remote and not opened.unreachable:
        unpushed_commits.push_all(opened, run)
    scored = scores.facts(config, decision, opened.registry, run)
    facts = {**_facts(decision, run, by_hand), **scored}
    branch, parent, note = (None, "HEAD", "") if rejected else run_branches.target(config, opened)
    tree = opened.repository.tree_with(parent, written)
    checkout_state.require_contents(compared)
    asked = approval.listing(config, opened)
    commit = _recorded_before(opened, tree, parent, [each.commit for each in asked])
    if commit is None:
        message = _commit_message(run, decision, facts, run_records.reason(config, run))
        commit = opened.repository.commit(tree, parent, message)
    elif rejected or (known := opened.registry.at(commit)):
        if rejected or known not in opened.registry.unassigned:
            return _unchanged(opened, run, commit)
        return _complete(config, opened, run, known)
    elif waits and (before := approval.of_commit(asked, commit)):
        message = f"recorded already, in run {before.run}, which {approval.described(before)}"
        own = before.run == run and before.state == "waiting"  # it was killed after it was recorded
        return Recorded(run=run, outcome="waiting" if own else "unchanged", message=message, commit=commit)
    if waits:
        return _wait(config, opened, run, approval.request(config, decision, facts, commit, branch))
    recorded = "not promoted" if rejected else "promoted"
    run_records.add(config, run, **run_records.made(config), recorded=recorded, comparison=scored["comparison"])
    last = _with_record(config, opened, run, commit)
    if rejected:
        made = Recorded(run=run, outcome="not promoted", message=rejected, commit=commit)
        return run_branches.push_run(opened, made, {}, last)
    version, tags = versions.promotion(opened.repository, opened.registry, commit, facts)
    message = f"{opened.registry.artifact} {version} is champion{note}"
    made = Recorded(run=run, outcome="promoted", message=message, version=version, commit=commit, branch=branch)
    return run_branches.push_run(opened, made, tags, last)


def _complete(config: Config, opened: OpenRegistry, run: str, version: Version) -> Recorded:
    """Make a version champion whose push stopped before that, on a remote without atomic pushes."""
    subject = f"{opened.registry.artifact} {version.name}: champion"
    tags = versions.assignment(opened.repository, opened.registry, version.commit, subject, version.facts)
    run_records.add(config, run, **run_records.made(config), recorded="promoted")
    message = f"{opened.registry.artifact} {version.name} is champion; an earlier push had stopped before that"
    made = Recorded(run=run, outcome="promoted", message=message, version=version.name, commit=version.commit)
    return run_branches.push_run(opened, made, tags, _with_record(config, opened, run, version.commit))


def _wait(config: Config, opened: OpenRegistry, run: str, asked: Mapping[str, Any]) -> Recorded:
    """Record a run whose model waits for approval, on a separate branch."""
    commit = str(asked["commit"])
    if run_records.read(run_records.record_file(config, run)) is None:
        run_records.start(config, run)
    run_records.add(
        config,
        run,
        **run_records.made(config),
        recorded="waiting",
        approval=asked,
        comparison=asked["facts"]["comparison"],
    )
    last = _with_record(config, opened, run, commit, approval.WAITS)
    if last == commit:
        raise ConfigError(
            "gate.approval needs the record of the run in git: paths.runs must lie in the project"
        )
    message = f"passes the gate and waits for a person's approval until {asked['until'][:16]} UTC"
    made = Recorded(run=run, outcome="waiting", message=message, commit=commit)
    return run_branches.push_run(opened, made, {}, last)


def _require_same_commit(config: Config, opened: OpenRegistry, run: str) -> None:
    """Check that HEAD has not moved during the run, since stages may have run the old code."""
    head, record = opened.repository.commit_of("HEAD"), run_records.read(run_records.record_file(config, run))
    started = head if record is None else record.get("revision")
    if head != started and not (head and opened.registry.at(head)):
        raise PerennialError(
            f"commit {started} was checked out when this run started, and {head} is now; nothing was recorded; "
            "start the run again"
        )


def _with_record(config: Config, opened: OpenRegistry, run: str, commit: str, note: str = "") -> str:
    """Commit the record of the run after the run's own commit, so that equal runs have equal trees."""
    file = run_records.record_file(config, run)
    if run_records.read(file) is None or not file.resolve().is_relative_to(Path.cwd()):
        return commit
    tree = opened.repository.tree_with(commit, [file])
    return opened.repository.commit(tree, commit, f"Record of run {run}{note}")


def _recorded_before(opened: OpenRegistry, tree: str, parent: str, asked: Sequence[str]) -> str | None:
    """Find a commit with this tree: the parent, the champion's, or a run's or version's with the same parent.

    `asked`: commits of runs that asked for approval.
    """
    git = opened.repository
    remote = [opened.tracking("run/**")] if opened.remote else []
    ends = git.run(
        "for-each-ref",
        "--format=%(objectname) %(parent)",
        *unpushed_commits.PATTERNS,
        "refs/heads/run/**",
        *remote,
    )
    known = "\n".join([parent, *ends.split(), *asked, *(each.commit for each in opened.registry.versions)])
    listed = git.run(
        "rev-list", "--ignore-missing", "--no-walk=unsorted", "--format=%H %T %P", "--stdin", stdin=known
    )
    rows = [row for row in listed.splitlines() if not row.startswith("commit ")]
    here = rows[0].split()[0]
    champion = opened.registry.champion
    for row in rows:
        commit, its_tree, *parents = row.split()
        if its_tree == tree and (here in {commit, *parents} or (champion and commit == champion.commit)):
            return commit
    return None


def _unchanged(opened: OpenRegistry, run: str, commit: str) -> Recorded:
    """The result if a commit with this content exists already, perhaps from a run that was killed."""
    known = opened.registry.at(commit)
    if known and run_branches.holds(opened, commit):
        run_branches.follow(opened, commit)
    what = f"recorded already, as {known.name}" if known else f"recorded already, in commit {commit[:10]}"
    name = known.name if known else None
    return Recorded(run=run, outcome="unchanged", message=what, commit=commit, version=name)


def _facts(decision: results.Decision, run: str, by_hand: ByHand | None) -> dict[str, object]:
    """The facts in the tag of a version."""
    decided: dict[str, object] = {"promote": decision.promote, "reasons": decision.reasons, "forced": None}
    if by_hand:
        who = {"by": by_hand.by, "because": by_hand.because}
        decided |= {"forced" if by_hand.forced else "approved": who}
    return {
        "accuracy": decision.candidate.accuracy,
        "data": decision.candidate.data,
        "model": decision.candidate.model,
        "opponent": pins.ChampionPin.read().version,
        "decision": decided,
        "run": run,
        "machine": processor.facts(),
    }


def _commit_message(
    run: str, decision: results.Decision, facts: Mapping[str, object], reason: str | None
) -> str:
    accuracy = facts["accuracy"]
    scored = f"accuracy {accuracy:.4g}, " if isinstance(accuracy, float) else ""
    passed = "passes the gate" if decision.promote else "rejected by the gate"
    started = f"\nReason of the run: {reason}\n" if reason else ""
    reasons = "\n".join(f"- {each}" for each in decision.reasons)
    return f"Run {run}: {scored}{passed}\n{started}\n{reasons}\n"
