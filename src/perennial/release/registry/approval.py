"""A person's approval of a model that the gate promotes (`gate.approval`).

The run's commit waits on its branch `run/<run>`; the request, and later the answer, are in its record there.
An answer is one atomic push of that branch, including version and champion on approval: two answers cannot
both win, and answering needs nothing but git.
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from pydantic import TypeAdapter

from perennial.base import documents, files
from perennial.base.config import Config
from perennial.base.errors import ConfigError, PerennialError, printable
from perennial.base.project.git import Repository
from perennial.model.evaluation.results import CandidateRecord, ChampionRecord, Decision, score_fact
from perennial.release.registry import remote_tags, run_records, versions
from perennial.release.registry.access import OpenRegistry, open_for_change
from perennial.release.registry.push import push_references

log = logging.getLogger(__name__)
WAITS = ": waits for approval"  # after the subject of a record's commit
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
State = Literal["waiting", "approved", "rejected", "expired", "superseded"]
Answer = Literal["approve", "reject", "expire"]
VERBS: dict[Answer, State] = {"approve": "approved", "reject": "rejected", "expire": "expired"}


@dataclass(frozen=True, kw_only=True)
class ApprovalRequest:
    """A model that waits, or waited, for approval. Times are in UTC, in ISO 8601."""

    run: str
    state: State
    commit: str
    since: str
    until: str
    opponent: str | None  # the champion that it was compared with
    reasons: Sequence[str]  # of the gate
    candidate: Mapping[str, Any]  # scores
    champion: Mapping[str, Any] | None
    by: str | None = None  # who answered
    because: str | None = None
    version: str | None = None  # that it became
    message: str = ""  # the result of the request, as a sentence


class ShownScores(documents.JsonFile):
    """The scores of both models in a request."""

    accuracy: float | None = None
    map: float | None = None  # in place of accuracy, of several labels an image
    loss: float | None = None
    calibration_error: float | None = None
    model_bytes: int | None = None


REQUEST = TypeAdapter(ApprovalRequest)
SHOWN = ("accuracy", "loss", "calibration_error", "model_bytes")


def request(
    config: Config, decision: Decision, facts: Mapping[str, object], commit: str, branch: str | None
) -> dict[str, Any]:
    """Build the section `approval` for the record of a waiting run."""
    since = datetime.now(UTC)
    return {
        "artifact": config.record.artifact, "state": "waiting", "commit": commit, "branch": branch,
        "since": since.isoformat(timespec="seconds"),
        "until": (since + timedelta(hours=config.gate.approval_hours)).isoformat(timespec="seconds"),
        "facts": dict(facts),
        "candidate": _scores(decision.candidate),
        "champion": decision.champion and _scores(decision.champion),
    }  # fmt: skip


def _scores(model: CandidateRecord | ChampionRecord) -> dict[str, Any]:
    return {name: getattr(model, name, None) for name in SHOWN} | score_fact(model)


def listing(config: Config, opened: OpenRegistry) -> list[ApprovalRequest]:
    """List all requests for this model, newest first; a request without an answer in time is expired."""
    requests = [request for request, _, _ in _records(config, opened)]
    requests.sort(key=lambda request: request.since, reverse=True)
    waiting = [request for request in requests if request.state == "waiting"]
    now = [replace(request, state=_state(opened, request, waiting[:1])) for request in requests]
    return [replace(request, message=_message(config, request)) for request in now]


def of_commit(listed: Sequence[ApprovalRequest], commit: str) -> ApprovalRequest | None:
    """The newest request for a commit; None if it ended without an answer, since one may then ask again."""
    request = next((request for request in listed if request.commit == commit), None)
    return None if request and request.state in {"expired", "superseded"} else request


def described(request: ApprovalRequest) -> str:
    """Describe the state of a request; the text follows the name of its run."""
    if request.state == "waiting":
        return f"waits for approval until {request.until[:16]} UTC"
    if request.state in {"approved", "rejected"}:
        because = f": {printable(request.because)}" if request.because else ""
        return f"was {request.state} by {printable(request.by or '?')}{because}"
    if request.state == "expired":
        return f"was not approved until {request.until[:16]} UTC"
    return "is superseded: the champion has changed, or a newer run waits"


def _message(config: Config, request: ApprovalRequest) -> str:
    if request.state == "approved":
        approved = described(request).removeprefix("was ")
        return f"{config.record.artifact} {request.version} is champion, {approved}"
    return f"run {request.run} {described(request)}"


def find(config: Config, opened: OpenRegistry, run: str) -> ApprovalRequest:
    """Find the request of a run by its name or the start of it."""
    listed = listing(config, opened)
    named = [request for request in listed if request.run == run] or [
        request for request in listed if request.run.startswith(run)
    ]
    if len(named) != 1:
        waiting = ", ".join(request.run for request in listed if request.state == "waiting") or "none"
        raise ConfigError(f"{len(named)} runs that asked for approval are named {run}; waiting: {waiting}")
    return named[0]


def decide(config: Config, run: str, answer: Answer, by: str | None, because: str | None) -> ApprovalRequest:
    """Answer a waiting request and carry out the answer; an answered request does not change."""
    # A request that is too late to answer is recorded as expired or superseded, whatever the answer.
    opened = open_for_change(config)
    request = find(config, opened, run)
    _, tip, record = next(each for each in _records(config, opened) if each[0].run == request.run)
    if record["approval"]["state"] != "waiting":
        return request
    state = VERBS[answer] if request.state == "waiting" else request.state
    answered_by_a_person = state in {"approved", "rejected"}
    names = {"by": by, "because": because} if answered_by_a_person else {"by": None, "because": None}
    tags, branch = dict[str, str](), None
    ended = replace(request, state=state, **names)
    if state == "approved":
        facts = dict(record["approval"]["facts"])  # for the version's tag
        facts["decision"] = {**facts["decision"], "approved": names}
        version, tags = versions.promotion(opened.repository, opened.registry, request.commit, facts)
        branch = _free_branch(opened, record["approval"].get("branch"), request.commit)
        ended = replace(ended, version=version)
    answered = {"state": state, **names, "at": _now(), "version": ended.version}
    outcome = {"approved": "promoted"}.get(state, state)
    new = {**record, "recorded": outcome, "approval": {**record["approval"], **answered}}
    file = config.paths.runs / request.run / run_records.FILE
    tree = opened.repository.tree_with_text(tip, file, files.json_bytes(new).decode())
    last = opened.repository.commit(tree, tip, f"Record of run {request.run}: {state}")
    moved = _push(opened, {f"refs/heads/run/{request.run}": last, **tags}, branch, request.commit)
    if file.exists():  # the run was made here
        files.write_json(file, new)
    wanted = record["approval"].get("branch")
    note = f"; {wanted} was not moved" if state == "approved" and wanted and not moved else ""
    return replace(ended, message=_message(config, ended) + note)


def _records(config: Config, opened: OpenRegistry) -> Iterator[tuple[ApprovalRequest, str, dict[str, Any]]]:
    """Yield the request, branch tip and record of each run that asked for approval of this model."""
    git = opened.repository
    where = opened.tracking("run/**") if opened.remote else "refs/heads/run/**"
    listed = git.run("for-each-ref", "--format=%(refname) %(objectname) %(contents:subject)", where)
    for row in listed.splitlines():
        reference, tip, subject = row.split(" ", 2)
        run = reference.rpartition("/run/")[2]
        if not subject.startswith(f"Record of run {run}: "):
            continue
        file = config.paths.runs / run / run_records.FILE
        record = documents.json_object(git.blob(f"{tip}:./{file.as_posix()}", run_records.MOST_BYTES) or b"")
        try:
            if record["approval"]["artifact"] != config.record.artifact:
                continue
            request = _seen(git, run, record)
        except (LookupError, TypeError, ValueError):  # anyone with push access may have written it
            log.warning("the record of run %s holds no valid request for approval; it is left out", run)
            continue
        yield request, tip, record


def _seen(git: Repository, run: str, record: Mapping[str, Any]) -> ApprovalRequest:
    """The request in a record."""
    asked = record["approval"]
    if asked.get("branch") is not None and not isinstance(asked["branch"], str):
        raise TypeError(asked["branch"])
    if not COMMIT.fullmatch(asked["commit"]) or git.commit_of(asked["commit"]) is None:
        raise ValueError(asked["commit"])
    for time in (asked["since"], asked["until"]):
        if datetime.fromisoformat(time).tzinfo is None:
            raise ValueError(time)
    names = ("state", "commit", "since", "until", "candidate", "champion", "by", "because", "version")
    facts = asked["facts"]
    values = {name: asked.get(name) for name in names}
    for name in ("candidate", "champion"):
        if values[name] is not None:
            scores, wrong = documents.valid_fields(values[name], ShownScores)
            values[name] = {**dict.fromkeys(SHOWN), **scores, **dict.fromkeys(wrong)}
    return REQUEST.validate_python(
        {"run": run, "opponent": facts["opponent"], "reasons": facts["decision"]["reasons"], **values}
    )


def _state(opened: OpenRegistry, request: ApprovalRequest, newest: Sequence[ApprovalRequest]) -> State:
    """Determine the state of a request, which also depends on the time and on other runs."""
    champion = opened.registry.champion
    if request.state != "waiting":
        return request.state
    done_in_part = champion is not None and champion.commit == request.commit
    if not done_in_part and (request not in newest or (champion and champion.name) != request.opponent):
        return "superseded"
    return "expired" if _now() > request.until else "waiting"


def _free_branch(opened: OpenRegistry, branch: str | None, commit: str) -> str | None:
    """The branch that a promoted run moves, if it can be fast-forwarded to the commit."""
    git = opened.repository
    tip = branch and git.commit_of(opened.tracking(branch) if opened.remote else f"refs/heads/{branch}")
    if not tip or not git.is_ancestor(tip, commit) or (not opened.remote and branch == git.branch()):
        return None
    return branch


def _push(opened: OpenRegistry, references: Mapping[str, str], branch: str | None, commit: str) -> bool:
    """Publish references atomically, with the branch if it may move; returns whether it moved."""
    git = opened.repository
    moved = {f"refs/heads/{branch}": commit} if branch else {}
    if opened.remote:
        pushed = push_references(git, opened.remote, {**references, **moved})
        if moved.keys() & pushed.refused.keys() and not pushed.lost:  # protected, or checked out there
            moved = {}
            pushed = push_references(git, opened.remote, references)
        if pushed.lost:
            raise PerennialError(
                f"nothing was changed ({pushed}): another answer or another champion came first; "
                "`perennial approve` lists what waits"
            )
        if not pushed.done:
            what = "not everything was pushed" if pushed.updated else "nothing was changed"
            raise PerennialError(
                f"{what}: {pushed}; {pushed.remedy or 'look at the remote'}, then answer again",
                kind=pushed.kind,
            )
        tags = {name: value for name, value in references.items() if name.startswith(remote_tags.TAGS)}
        remote_tags.update(git, tags, pushed=True)
    else:
        remote_tags.update(git, {**references, **moved}, pushed=False)
    return bool(moved)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
