"""The one change that caused another score, found by halving the way from one revision to the other."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from perennial.why import effect
from perennial.why.chain import State, Step
from perennial.why.effect import Outcome
from perennial.why.mixtures import Untestable

log = logging.getLogger(__name__)
LIMIT = 2  # times the noise, below which a change is taken for noise
Measure = Callable[[State], Outcome]


@dataclass(frozen=True, kw_only=True)
class Noise:
    """How much the score changes with the seed of the training alone.

    `examples` are those that only one of the two models classifies correctly. If each is as likely won as lost,
    the difference of the scores has a standard deviation of sqrt(examples) / N: less chancy than the one
    difference that was seen, `change`. `accuracy` is the larger of the two, and at least one example.
    """

    seed: int
    change: float
    examples: int | None
    accuracy: float

    @property
    def limit(self) -> float:
        """Changes up to this are within noise."""
        return LIMIT * self.accuracy


@dataclass(kw_only=True)
class Bisection:
    """The findings of a bisection so far: scores by the number of a state, and the interval that is left."""

    changes: int
    low: int = 0
    high: int = 0
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    untestable: dict[int, str] = field(default_factory=dict)

    @property
    def ends(self) -> tuple[Outcome, Outcome]:
        """The outcomes before and after the changes that are left."""
        return self.outcomes[self.low], self.outcomes[self.high]

    @property
    def share(self) -> float:
        """The share of the whole change of the score that the changes left have."""
        whole = self.outcomes[self.changes].accuracy - self.outcomes[0].accuracy
        low, high = self.ends
        return (high.accuracy - low.accuracy) / whole if whole else 0.0


def noise(start: State, outcome: Outcome, seed: int, measure: Measure) -> Noise:
    """Train the first state once more, with another seed.

    Raises:
        Untestable: it cannot be trained.
    """
    other = measure(State(commit=start.commit, before=start.before, seed=seed + 1))
    change = other.accuracy - outcome.accuracy
    examples, count = effect.discordant(outcome, other), outcome.scores.examples
    spread = math.sqrt(examples) / count if examples is not None else 0.0
    return Noise(seed=seed + 1, change=change, examples=examples, accuracy=max(abs(change), spread, 1 / count))


def bisect(states: Sequence[State], known: dict[int, Outcome], measure: Measure) -> Bisection:
    """Halve the changes until one is left: each time keep the half in which the score changed more.

    `known` are the scores that were recorded, by the numbers of states, among them the first and the last. A
    state that has no score is passed over; if all of those between are, more than one change is left.
    """
    found = Bisection(changes=len(states) - 1, high=len(states) - 1, outcomes=dict(known))
    whole = known[found.high].accuracy - known[0].accuracy
    while found.high - found.low > 1:
        middle = _middle(found)
        if middle is None:
            break
        if middle not in found.outcomes:
            try:
                found.outcomes[middle] = measure(states[middle])
            except Untestable as error:
                log.warning("%s", error)
                found.untestable[middle] = str(error)
                continue
        low, here, high = (found.outcomes[each].accuracy for each in (found.low, middle, found.high))
        if math.copysign(1, whole) * ((here - low) - (high - here)) >= 0:
            found.high = middle
        else:
            found.low = middle
    return found


def _middle(found: Bisection) -> int | None:
    """The state to look at: one whose score is known, else the one in the middle; None where none is left."""
    inside = [each for each in range(found.low + 1, found.high) if each not in found.untestable]
    recorded = [each for each in inside if each in found.outcomes]
    centre = (found.low + found.high) / 2
    return min(recorded or inside, key=lambda each: (abs(each - centre), each), default=None)


def left(found: Bisection, steps: Sequence[Step]) -> Sequence[Step]:
    """The changes among which the cause is; one, unless mixtures between them have no score."""
    return steps[found.low : found.high]
