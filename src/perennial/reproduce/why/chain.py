"""Split the changes between two revisions into single steps, and bisect them.

If one revision is an ancestor of the other, the steps are the commits between them that change what the
score depends on, in order; a commit that changes several things is several steps. Otherwise, the
steps are the differences. The code is one step, since half of a code change rarely runs; it comes first,
because it brings the parameters and stages that the rest needs. Fetched data form one step with their pin.
"""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from perennial.base.dvc import dvc_lock
from perennial.base.errors import PerennialError, listed
from perennial.base.layout import Project
from perennial.reproduce.rebuild.rebuild_inputs import FETCHED
from perennial.reproduce.rebuild.stage_differences import PACKAGES, WEIGHTS
from perennial.reproduce.why import differences, effect
from perennial.reproduce.why.differences import Found, Revision, Revisions
from perennial.reproduce.why.effect import Outcome

log = logging.getLogger(__name__)
GROUPS = ("code", "packages", "data", "weights")  # in their order; then each parameter is a step
SOURCE = "dataset."  # keys that `download` reads say where the data come from
LIMIT = 2  # multiple of the noise up to which a change counts as noise


@dataclass(frozen=True, kw_only=True)
class Step:
    """A change: a group of differences that cannot be separated, or a parameter."""

    kind: str
    commit: Revision  # that brings it
    before: Revision
    found: tuple[Found, ...]

    @property
    def what(self) -> str:
        """Describe the changes."""
        return listed((difference.what for difference in self.found), 3)


@dataclass(frozen=True, kw_only=True)
class State:
    """The inputs of a training: those of a commit, except for steps that are not applied yet.

    `unmade` are as in `before`, the revision that the steps start from.
    """

    commit: Revision
    before: Revision
    unmade: tuple[Step, ...] = ()
    seed: int | None = None  # of the training, instead of its own

    @property
    def name(self) -> str:
        """Describe the state."""
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
    """Build the steps from one revision to another, and the states between them (one more than steps)."""
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
    """The revisions between two revisions along first parents; only these two if neither is an ancestor."""
    older, newer = (a, b) if opened.repository.is_ancestor(a.commit, b.commit) else (b, a)
    listed = opened.repository.run("rev-list", "--first-parent", newer.commit, f"^{older.commit}^@").split()
    if older.commit not in listed:
        return [a, b]
    revisions = [older]
    for commit in reversed(listed[1 : listed.index(older.commit)]):
        if revision := opened.at(commit, revisions[-1]):
            revisions.append(revision)
    revisions.append(newer)
    return revisions if older is a else revisions[::-1]


def steps_between(opened: Revisions, before: Revision, commit: Revision) -> Iterator[Step]:
    """Group the differences that can change the score into steps that can be mixed."""
    groups: dict[str, list[Found]] = {name: [] for name in GROUPS}
    for difference in differences.between(before, commit, opened.history):
        if difference.decides:
            groups.setdefault(_group(difference, before, commit), []).append(difference)
    for name in (*GROUPS, *sorted(groups.keys() - set(GROUPS))):
        if found := groups[name]:
            kind = name if name in GROUPS else found[0].kind
            yield Step(kind=kind, commit=commit, before=before, found=tuple(found))


def parameters(step: Step) -> list[str]:
    """The keys of params.yaml that a step changes and that can be reset to their earlier value."""
    return [
        difference.what
        for difference in step.found
        if step.kind != "code" and _is_parameter(difference.what, step.commit)
    ]


def paths(step: Step) -> list[str]:
    """The tracked files and folders that can be reset to their content before a step."""
    if step.kind == "code":
        return []
    if step.kind == "packages":
        return [Project.find().shared(PACKAGES).as_posix()]
    return [difference.what for difference in step.found if not _is_parameter(difference.what, step.commit)]


def fetching(step: Step) -> Sequence[str]:
    """The stages whose recorded outputs belong to a step."""
    return [stage for stage, kind in FETCHED.items() if kind == step.kind]


def _group(difference: Found, before: Revision, commit: Revision) -> str:
    """The group of a difference; each training parameter is a group by itself."""
    if difference.kind in GROUPS:
        return difference.kind
    if not (_is_parameter(difference.what, before) and _is_parameter(difference.what, commit)):
        return "code"  # the other revision's code does not know the key
    if difference.what in WEIGHTS:
        return "weights"
    return "data" if difference.what.startswith(SOURCE) and "download" in difference.stages else difference.what


def _is_parameter(key: str, revision: Revision) -> bool:
    section, _, name = key.rpartition(".")
    values = dvc_lock.value_at(revision.values, section) if section else revision.values
    return isinstance(values, Mapping) and name in values


Measure = Callable[[State], Outcome]


class Untestable(PerennialError):
    """A mixture has no score: its parameters are incompatible, a stage failed, or its data are lost."""


@dataclass(frozen=True, kw_only=True)
class Noise:
    """How much the score changes if only the training seed changes.

    `examples` are those that only one of the two models classifies correctly. If each is as likely won as lost,
    the difference of the scores has a standard deviation of sqrt(examples) / N, a more reliable value than the
    single observed difference `change`. `deviation` is the larger of the two, and at least one example.
    """

    seed: int
    change: float
    examples: int | None
    deviation: float

    @property
    def limit(self) -> float:
        """Changes up to this are within noise."""
        return LIMIT * self.deviation


@dataclass(kw_only=True)
class Bisection:
    """The state of a bisection: scores by state number, and the remaining interval."""

    changes: int
    low: int = 0
    high: int = 0
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    untestable: dict[int, str] = field(default_factory=dict)

    @property
    def ends(self) -> tuple[Outcome, Outcome]:
        """The outcomes before and after the remaining changes."""
        return self.outcomes[self.low], self.outcomes[self.high]

    @property
    def share(self) -> float:
        """The share of the total score change that the remaining changes explain."""
        whole = self.outcomes[self.changes].score - self.outcomes[0].score
        low, high = self.ends
        return (high.score - low.score) / whole if whole else 0.0


def noise(start: State, outcome: Outcome, seed: int, measure: Measure) -> Noise:
    """Measure the noise by training the first state with another seed."""
    other = measure(State(commit=start.commit, before=start.before, seed=seed + 1))
    change = other.score - outcome.score
    examples, count = effect.discordant(outcome, other), outcome.scores.examples
    spread = math.sqrt(examples) / count if examples is not None else 0.0
    return Noise(seed=seed + 1, change=change, examples=examples, deviation=max(abs(change), spread, 1 / count))


def bisect(states: Sequence[State], known: dict[int, Outcome], measure: Measure) -> Bisection:
    """Bisect the changes until one is left: always keep the half in which the score changed more.

    `known` holds recorded scores by state number, including those of the first and the last state. A
    state without a score is skipped; if all states in between are skipped, more than one change is left.
    """
    search = Bisection(changes=len(states) - 1, high=len(states) - 1, outcomes=dict(known))
    whole = known[search.high].score - known[0].score
    while search.high - search.low > 1:
        middle = _middle(search)
        if middle is None:
            break
        if middle not in search.outcomes:
            try:
                search.outcomes[middle] = measure(states[middle])
            except Untestable as error:
                log.warning("%s", error)
                search.untestable[middle] = str(error)
                continue
        low, here, high = (search.outcomes[state].score for state in (search.low, middle, search.high))
        if math.copysign(1, whole) * ((here - low) - (high - here)) >= 0:
            search.high = middle
        else:
            search.low = middle
    return search


def _middle(search: Bisection) -> int | None:
    """The next state to test: one with a known score, else the middle one; None if none is left."""
    inside = [number for number in range(search.low + 1, search.high) if number not in search.untestable]
    recorded = [number for number in inside if number in search.outcomes]
    centre = (search.low + search.high) / 2
    return min(recorded or inside, key=lambda number: (abs(number - centre), number), default=None)


def left(search: Bisection, steps: Sequence[Step]) -> Sequence[Step]:
    """The changes that contain the cause; a single one unless mixtures between them have no score."""
    return steps[search.low : search.high]
