"""The way from one revision to another in steps of one change each, which a bisection halves.

Where one revision is an ancestor of the other, the steps are the commits between them that change what the
score depends on, in their order; one that changes several things is several steps. Between other revisions, the
steps are their differences. The code is one step, since half of a change of code seldom runs; it comes first,
because it brings the parameters and stages that the rest needs. What stages fetched is one step with its pin.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from perennial import dvc_lock
from perennial.rebuild.differences import ENVIRONMENT, WEIGHTS
from perennial.rebuild.inputs import FETCHING
from perennial.why import differences
from perennial.why.differences import Found
from perennial.why.revisions import Revision, Revisions

GROUPS = ("code", "packages", "data", "weights")  # in their order; then each parameter is a step
SOURCE = "dataset."  # keys that `download` reads say where the data come from


@dataclass(frozen=True, kw_only=True)
class Step:
    """A change: a group of differences that cannot be separated, or a parameter."""

    kind: str
    commit: Revision  # that brings it
    before: Revision
    found: tuple[Found, ...]

    @property
    def what(self) -> str:
        """The changes, in words."""
        names = [each.what for each in self.found]
        return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


@dataclass(frozen=True, kw_only=True)
class State:
    """Inputs of a training: those of a commit, where some steps are not made yet.

    `unmade` are as in `before`, the revision that the steps start from.
    """

    commit: Revision
    before: Revision
    unmade: tuple[Step, ...] = ()
    seed: int | None = None  # of the training, instead of its own

    @property
    def name(self) -> str:
        """The state in words."""
        shown = self.commit.name
        if self.unmade:
            shown += f" with {', '.join(step.what for step in self.unmade)} as in {self.before.name}"
        return f"{shown}, train.seed {self.seed}" if self.seed is not None else shown

    @property
    def recorded(self) -> Revision | None:
        """The revision whose dvc.lock has the scores of this state."""
        is_commit = not self.unmade and self.seed is None
        return self.commit if is_commit and not self.commit.unrecorded else None


def chain(opened: Revisions, a: Revision, b: Revision) -> tuple[list[State], list[Step]]:
    """The states from one revision to another, one more than steps."""
    states, steps = [State(commit=a, before=a)], list[Step]()
    for before, commit in pairwise(commits(opened, a, b)):
        made = list(steps_between(opened, before, commit))
        for number, step in enumerate(made, 1):
            steps.append(step)
            states.append(State(commit=commit, before=before, unmade=tuple(made[number:])))
    if len(states) > 1:
        states[-1] = State(commit=b, before=states[-1].before)
    return states, steps


def commits(opened: Revisions, a: Revision, b: Revision) -> list[Revision]:
    """The revisions from one to the other by first parents; the two alone if neither leads to the other."""
    older, newer = (a, b) if opened.repository.is_ancestor(a.commit, b.commit) else (b, a)
    listed = opened.repository.run("rev-list", "--first-parent", newer.commit, f"^{older.commit}^@").split()
    if older.commit not in listed:
        return [a, b]
    between = [*reversed(listed[: listed.index(older.commit)])][:-1]
    found, last = [older], older
    for commit in between:
        each = opened.at(commit, last)
        if each is not None:
            found.append(each)
            last = each
    found.append(newer)
    return found if older is a else found[::-1]


def steps_between(opened: Revisions, before: Revision, commit: Revision) -> Iterator[Step]:
    """The differences that decide the score, in groups that can be mixed."""
    found = [each for each in differences.between(before, commit, opened.history) if each.decides]
    groups: dict[str, list[Found]] = {}
    for each in found:
        groups.setdefault(_group(each, before, commit), []).append(each)
    order = [name for name in GROUPS if name in groups]
    for name in (*order, *sorted(groups.keys() - set(order))):
        kinds = {each.kind for each in groups[name]}
        kind = name if name in GROUPS else kinds.pop()
        yield Step(kind=kind, commit=commit, before=before, found=tuple(groups[name]))


def parameters(step: Step) -> list[str]:
    """The keys of params.yaml that a step changes, and that can have their value from before it."""
    return [each.what for each in step.found if step.kind != "code" and _is_parameter(each.what, step.commit)]


def paths(step: Step) -> list[str]:
    """The tracked files and folders that can have their content from before a step."""
    if step.kind == "code":
        return []
    if step.kind == "packages":
        return [ENVIRONMENT.rstrip("/"), "requirements"]
    return [each.what for each in step.found if not _is_parameter(each.what, step.commit)]


def fetching(step: Step) -> Sequence[str]:
    """The stages whose recorded outputs belong to a step."""
    return [stage for stage in FETCHING if differences.FETCHED[stage] == step.kind]


def _group(each: Found, before: Revision, commit: Revision) -> str:
    """The group of a difference; a parameter of the training is one of its own."""
    if each.kind in GROUPS:
        return each.kind
    if not (_is_parameter(each.what, before) and _is_parameter(each.what, commit)):
        return "code"  # a key that the code of the other revision does not know
    if each.what in WEIGHTS:
        return "weights"
    return "data" if each.what.startswith(SOURCE) and "download" in each.stages else each.what


def _is_parameter(key: str, revision: Revision) -> bool:
    section, _, name = key.rpartition(".")
    values = dvc_lock.value_at(revision.values, section) if section else revision.values
    return isinstance(values, Mapping) and name in values
