"""Record a run: a commit and, if the gate promotes the model, a version and the champion.

Everything is pushed atomically. A run that loses a race has changed nothing on the remote, and its gate must
run again, because the champion has changed; a commit that it made is kept in this repository.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perennial.base.choices import LOST_RACE, Outcome
from perennial.base.config import Config
from perennial.base.devices import processor
from perennial.base.errors import ConfigError, PerennialError, QualityError
from perennial.base.project import pins
from perennial.base.retries import RACES
from perennial.model.evaluation import results
from perennial.release.registry import (
    access,
    approval,
    checkout_state,
    current_champion,
    remote_tags,
    run_branches,
    run_records,
    scores,
    versions,
)
from perennial.release.registry.access import OpenRegistry, open_registry
from perennial.release.registry.approval import ApprovalRequest
from perennial.release.registry.checkout_state import read_decision, recorded_files, require_reproduced
from perennial.release.registry.run_branches import Recorded
from perennial.release.registry.versions import Version


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
        opened = open_registry(config)
        verdict, why = current_champion.judge(config, opened, decision)
        if verdict == "compare again":
            done = Recorded(run=run, outcome=LOST_RACE, message=why)
            break
        done = _record(config, opened, run, decision, rejected=why if verdict == "reject" else None)
        if done.outcome != LOST_RACE:
            break
        # The branch moved; perhaps another pipeline's run did that, and the champion is the same.
    run_records.add(config, run, recorded=done.outcome)
    return replace(done, reasons=decision.reasons)


def promote(config: Config, run: str, by_hand: ByHand | None = None, *, push: bool = True) -> Recorded:
    """Promote the model of this checkout, as a flow does or by a person; `push`: also on the remote."""
    decision, opened = read_decision(config), access.open_for_change(config, push=push)
    here = opened if opened.remote is None else replace(opened, registry=access.here(opened).registry)
    if (champion := here.registry.champion) and current_champion.is_champion(config, here):
        return _push_champion(config, opened, run, champion)
    if by_hand is None or not by_hand.forced:
        verdict, why = current_champion.judge(config, opened, decision)
        if verdict == "compare again":
            raise PerennialError(f"{why} (`perennial pin champion`, then `dvc repro`); nothing was promoted")
        if verdict == "reject":
            remedy = "--force NAME --because TEXT promotes it anyway, on record"
            raise QualityError(f"{why}; nothing was promoted; {remedy}")
    if config.gate.approval and by_hand is None:
        raise ConfigError("gate.approval asks for a person: --approve NAME says who; nothing was promoted")
    done = _record(config, opened, run, decision, by_hand)
    if done.outcome == LOST_RACE:
        run_branches.drop_unpushed(opened.repository, run)  # the checkout has everything
    if done.outcome in {LOST_RACE, "kept"}:
        raise PerennialError(done.message, kind=done.failure)
    note = "" if push else access.kept_here(config, "perennial promote")
    return replace(done, message=done.message + note)


def _push_champion(config: Config, opened: OpenRegistry, run: str, champion: Version) -> Recorded:
    """The result if this model is champion already; pushes what only this repository has of it."""
    tags = remote_tags.made_here(opened.repository, champion.commit) if opened.remote else {}
    if not tags:
        message = f"{champion.name} is champion already"
        return Recorded(run=run, outcome="unchanged", message=message, version=champion.name)
    git, commit = opened.repository, champion.commit
    branch = opened.moved_branch if config.record.branch == "fast-forward" else None
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
        raise PerennialError(done.message, kind=done.failure)
    return done


@dataclass(frozen=True, kw_only=True)
class _Run:
    """A run whose checkout may be recorded, and the commit that has its files."""

    config: Config
    opened: OpenRegistry
    name: str
    decision: results.Decision
    facts: Mapping[str, Any]  # for the tag of a version
    commit: str
    committed_before: bool  # by an earlier run
    asked_before: ApprovalRequest | None  # about this commit, by an earlier run
    branch: str | None  # that a promotion moves
    note: str  # on the branch, for a message

    def result(self, outcome: Outcome, message: str, version: str | None = None) -> Recorded:
        """The result for this commit."""
        return Recorded(run=self.name, outcome=outcome, message=message, version=version, commit=self.commit)

    def add(self, **facts: object) -> None:
        """Add facts to the record of the run, with what it made."""
        run_records.add(self.config, self.name, **run_records.made(self.config), **facts)

    def with_record(self, note: str = "") -> str:
        """Commit the record of the run after the run's own commit, so that equal runs have equal trees."""
        file = run_records.record_file(self.config, self.name)
        if run_records.read(file) is None or not file.resolve().is_relative_to(Path.cwd()):
            return self.commit
        git = self.opened.repository
        tree = git.tree_with(self.commit, [file])
        return git.commit(tree, self.commit, f"Record of run {self.name}{note}")


def _record(
    config: Config, opened: OpenRegistry, run: str, decision: results.Decision, by_hand: ByHand | None = None,
    *, rejected: str | None = None,
) -> Recorded:  # fmt: skip
    """Record a run; `rejected`: why its model is not promoted; `by_hand`: the person who promotes it."""
    made = _committed(config, opened, run, decision, by_hand, rejected=rejected is not None)
    version = opened.registry.at(made.commit)
    if rejected is not None:
        return _unchanged(made, version) if made.committed_before else _reject(made, rejected)
    half_pushed = version in opened.registry.unassigned
    if version is not None and not half_pushed:
        return _unchanged(made, version)
    if half_pushed or not config.gate.approval or by_hand is not None:
        return _promote(made)
    return _asked(made, made.asked_before) if made.asked_before else _ask(made)


def _committed(
    config: Config, opened: OpenRegistry, run: str, decision: results.Decision, by_hand: ByHand | None,
    *, rejected: bool,
) -> _Run:  # fmt: skip
    """Check that dvc.lock describes this checkout, and commit it, unless a run did that before."""
    written = recorded_files(config)
    compared = checkout_state.contents(written)
    require_reproduced(opened.repository, written)
    results.require_recorded(config.paths.training)
    results.require_recorded(config.paths.decision)
    _require_same_commit(config, opened, run)
    if opened.remote and not opened.unreachable:
        run_branches.push_unpushed(opened, run)
    facts = {**_facts(decision, run, by_hand), **scores.facts(config, decision, opened.registry, run)}
    branch, parent, note = (None, "HEAD", "") if rejected else run_branches.target(config, opened)
    tree = opened.repository.tree_with(parent, written)
    checkout_state.require_contents(compared)
    requests = approval.listing(config, opened)
    before = _recorded_before(opened, tree, parent, [each.commit for each in requests])
    commit = before or opened.repository.commit(
        tree, parent, _commit_message(run, decision, facts, run_records.reason(config, run))
    )
    return _Run(
        config=config,
        opened=opened,
        name=run,
        decision=decision,
        facts=facts,
        commit=commit,
        committed_before=before is not None,
        asked_before=approval.of_commit(requests, commit),
        branch=branch,
        note=note,
    )


def _unchanged(made: _Run, version: Version | None) -> Recorded:
    """The outcome if a commit with this content exists already, perhaps from a run that was killed."""
    if version is None:
        return made.result("unchanged", f"recorded already, in commit {made.commit[:10]}")
    if run_branches.holds(made.opened, made.commit):
        run_branches.follow(made.opened, made.commit)
    return made.result("unchanged", f"recorded already, as {version.name}", version.name)


def _reject(made: _Run, why: str) -> Recorded:
    """Record a run whose model is not promoted, on a separate branch."""
    made.add(recorded="not promoted", comparison=made.facts["comparison"])
    return run_branches.push_run(made.opened, made.result("not promoted", why), {}, made.with_record())


def _promote(made: _Run) -> Recorded:
    """Register the model of a run as the next version, and as champion."""
    made.add(recorded="promoted", comparison=made.facts["comparison"])
    last, registry = made.with_record(), made.opened.registry
    version, tags = versions.promotion(made.opened.repository, registry, made.commit, made.facts)
    done = made.result("promoted", f"{registry.artifact} {version} is champion{made.note}", version)
    return run_branches.push_run(made.opened, replace(done, branch=made.branch), tags, last)


def _asked(made: _Run, before: ApprovalRequest) -> Recorded:
    """The outcome if approval was asked for before, perhaps by this run before it was killed."""
    own = before.run == made.name and before.state == "waiting"
    message = f"recorded already, in run {before.run}, which {approval.described(before)}"
    return made.result("waiting" if own else "unchanged", message)


def _ask(made: _Run) -> Recorded:
    """Record a run whose model waits for approval, on a separate branch."""
    config = made.config
    asked = approval.request(config, made.decision, made.facts, made.commit, made.branch)
    if run_records.read(run_records.record_file(config, made.name)) is None:
        run_records.start(config, made.name)
    made.add(recorded="waiting", approval=asked, comparison=made.facts["comparison"])
    last = made.with_record(approval.WAITS)
    if last == made.commit:
        raise ConfigError("gate.approval needs the record of the run in git: runs must lie in the project")
    message = f"passes the gate and waits for a person's approval until {asked['until'][:16]} UTC"
    return run_branches.push_run(made.opened, made.result("waiting", message), {}, last)


def _require_same_commit(config: Config, opened: OpenRegistry, run: str) -> None:
    """Check that HEAD has not moved during the run, since stages may have run the old code."""
    head, record = opened.repository.commit_of("HEAD"), run_records.read(run_records.record_file(config, run))
    started = head if record is None else record.get("revision")
    if head != started and not (head and opened.registry.at(head)):
        raise PerennialError(
            f"commit {started} was checked out when this run started, and {head} is now; nothing was recorded; "
            "start the run again"
        )


def _recorded_before(opened: OpenRegistry, tree: str, parent: str, asked: Sequence[str]) -> str | None:
    """Find a commit with this tree: the parent, the champion's, or another with the same parent."""
    git = opened.repository
    remote = [opened.tracking("run/**")] if opened.remote else []
    ends = git.run(
        "for-each-ref", "--format=%(objectname) %(parent)", run_branches.UNPUSHED, "refs/heads/run/**", *remote
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


def _facts(decision: results.Decision, run: str, by_hand: ByHand | None) -> dict[str, object]:
    """The facts in the tag of a version."""
    decided: dict[str, object] = {"promote": decision.promote, "reasons": decision.reasons, "forced": None}
    if by_hand:
        who = {"by": by_hand.by, "because": by_hand.because}
        decided |= {"forced" if by_hand.forced else "approved": who}
    return {
        **results.score_fact(decision.candidate),
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
    name, score = results.named_score(facts)
    scored = f"{name} {score:.4g}, " if isinstance(score, float) else ""
    passed = "passes the gate" if decision.promote else "rejected by the gate"
    started = f"\nReason of the run: {reason}\n" if reason else ""
    reasons = "\n".join(f"- {each}" for each in decision.reasons)
    return f"Run {run}: {scored}{passed}\n{started}\n{reasons}\n"
