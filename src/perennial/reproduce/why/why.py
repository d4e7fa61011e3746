"""Compare two revisions, and find what caused the change of the score."""

import hashlib
import logging
import math
import time
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from perennial.base.config import Config
from perennial.base.dvc import dvc_lock
from perennial.base.errors import DataError, PerennialError, listed
from perennial.model.evaluation.results import score_fact
from perennial.release.audit.sides import DvcObjects
from perennial.release.registry.access import with_history
from perennial.reproduce.rebuild.stage_differences import facts_of_run
from perennial.reproduce.why import chain, differences, effect
from perennial.reproduce.why.chain import Bisection, Noise, State, Step, Untestable
from perennial.reproduce.why.differences import Found, Revision, Revisions
from perennial.reproduce.why.effect import ExampleChanges, Outcome
from perennial.reproduce.why.image_changes import Images
from perennial.reproduce.why.mixtures import SEED, Mixtures, mixtures

log = logging.getLogger(__name__)
HALF = 0.5


@dataclass(frozen=True, kw_only=True)
class Effect:
    """The changes between two outcomes."""

    examples: ExampleChanges | None
    images: Images | None


@dataclass(frozen=True, kw_only=True)
class CauseSearch:
    """The search for the cause."""

    noise: Noise | None  # None: it could not be measured
    within_noise: bool
    steps: list[Step]
    names: list[str]  # names of the states, one more than steps
    bisection: Bisection | None  # None if the change is within noise, or there is none
    trainings: int
    most_trainings: int  # for the steps, the noise, and end states without a score
    effect: Effect | None  # of the cause
    seconds: float


@dataclass(kw_only=True)
class Why:
    """The comparison of two revisions."""

    a: Revision
    b: Revision
    outcomes: tuple[Outcome | None, Outcome | None]
    differences: list[Found]
    effect: Effect
    cause: Step | Found | None = None
    search: CauseSearch | None = None
    lost: list[PerennialError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def change(self) -> float | None:
        """The change of the score; None if one of both is unknown."""
        a, b = self.outcomes
        return b.score - a.score if a and b else None


def why(config: Config, a: str, b: str, *, search: bool = False, keep: bool = False) -> Why:
    """Compare two versions, branches, tags or commits; `search`: train mixtures to find the cause.

    `keep` leaves the checkout of the mixtures.
    """
    opened = Revisions(config, with_history(config, a, b).repository)
    one, other = opened.open(a), opened.open(b)
    with DvcObjects() as objects:
        found = _compared(config, opened, one, other, objects)
        if search and found.differences:
            _search(opened, found, objects, keep=keep)
    return found


def _compared(config: Config, opened: Revisions, a: Revision, b: Revision, objects: DvcObjects) -> Why:
    runs = [
        facts_of_run(config, each.version, hashlib.sha256(each.lock_text.encode()).hexdigest())
        for each in (a, b)
    ]
    lost, notes = list[PerennialError](), list[str]()
    outcomes = list[Outcome | None]()
    for each in (a, b):
        if each.unrecorded:
            named = listed(dict.fromkeys(difference.what for difference in each.unrecorded), 3)
            notes.append(
                f"{each.name} was not reproduced: its dvc.lock is of other inputs ({named}), so it has no score"
            )
        wrong = effect.recorded_wrongly(each, objects)
        if wrong:
            notes.append(
                f"{each.name} is recorded wrongly: {listed(wrong, 3)}; so dvc.lock does not say what its score "
                "is of, and it counts as having none"
            )
        outcomes.append(None if each.unrecorded or wrong else effect.outcome(each, objects, lost))
    machines = differences.hardware(*runs)
    if machines:
        notes.append(
            f"{a.name} and {b.name} were trained on other machines; "
            "intermediate configurations are trained on this one"
        )
    found = [*differences.between(a, b, opened.history), *machines]
    changed = Effect(examples=None, images=None)
    if outcomes[0] and outcomes[1]:
        changed = _effect(outcomes[0], outcomes[1], objects, lost)
    done = Why(
        a=a, b=b, outcomes=(outcomes[0], outcomes[1]), differences=_with_labels(found, changed.images),
        effect=changed, lost=lost, notes=notes,
    )  # fmt: skip
    deciding = [each for each in done.differences if each.decides]
    if len(deciding) == 1 and done.change:
        done.cause = deciding[0]
    return done


def _effect(a: Outcome, b: Outcome, objects: DvcObjects, lost: list[PerennialError]) -> Effect:
    images, records, examples = None, None, None
    try:
        images, records = effect.compare_images(a, b, objects)
    except PerennialError as error:
        lost.append(error)
    try:
        examples = effect.compare_examples(a, b, records)
    except PerennialError as error:
        lost.append(error)
    return Effect(examples=examples, images=images)


def _with_labels(found: list[Found], images: Images | None) -> list[Found]:
    """Add the difference of the labels, which only the records show."""
    if images is None or not (count := images.count("relabelled")):
        return found
    if images.only_labels:
        return [replace(each, kind="labels") if each.kind == "data" else each for each in found]
    a, b = images.labels
    what = f"labels of {count} images"
    return [Found(kind="labels", what=what, a=a, b=b, stages=("convert",), decides=True), *found]


def _search(opened: Revisions, done: Why, objects: DvcObjects, *, keep: bool) -> None:
    """Search for the cause by training mixtures, and add the result."""
    started = time.monotonic()
    states, steps = chain.chain(opened, done.a, done.b)
    if not steps:
        done.notes.append("nothing differs that can change the score, so there is nothing to bisect")
        return
    missing = sum(each is None for each in done.outcomes)
    with mixtures(opened, done.b, keep=keep) as mixed:
        known = _known(states, done, mixed, objects)
        done.outcomes = known[0], known[len(steps)]
        measured = _noise(done, states[0], known[0], mixed)
        change = abs(known[len(steps)].score - known[0].score)
        within = not change or (measured is not None and change <= measured.limit)
        bisection = None if within else chain.bisect(states, known, mixed.outcome)
    if missing:
        done.effect = _effect(known[0], known[len(steps)], objects, done.lost)
    caused = None if bisection is None else _effect(*bisection.ends, objects, done.lost)
    done.cause = None
    if bisection is not None and caused is not None:
        if len(remaining := chain.left(bisection, steps)) == 1:
            labels = remaining[0].kind == "data" and caused.images is not None and caused.images.only_labels
            done.cause = replace(remaining[0], kind="labels") if labels else remaining[0]
        if bisection.share < HALF:
            done.notes.append("no change alone has half of the effect: several changed the score")
    most = math.ceil(math.log2(len(steps))) + 1 + missing
    done.search = CauseSearch(
        noise=measured, within_noise=within, steps=steps, names=[state.name for state in states],
        bisection=bisection, trainings=mixed.trainings, most_trainings=most,
        effect=caused, seconds=time.monotonic() - started,
    )  # fmt: skip


def _known(states: list[State], done: Why, mixed: Mixtures, objects: DvcObjects) -> dict[int, Outcome]:
    """Recorded scores by state number; missing scores of the first and last state are computed."""
    known = dict[int, Outcome]()
    for number, given in ((0, done.outcomes[0]), (len(states) - 1, done.outcomes[1])):
        try:
            known[number] = given or mixed.outcome(states[number])
        except Untestable as error:
            raise DataError(f"{error}; without it there is no change to explain") from error
    for number, state in enumerate(states):
        if (
            number not in known
            and (recorded := state.recorded)
            and not effect.recorded_wrongly(recorded, objects)
            and (found := effect.outcome(recorded, objects, []))
        ):
            known[number] = found
    return known


def _noise(done: Why, start: State, outcome: Outcome, mixed: Mixtures) -> Noise | None:
    seed = dvc_lock.value_at(done.a.values, SEED)
    try:
        if isinstance(seed, int):
            return chain.noise(start, outcome, seed, mixed.outcome)
        done.notes.append(f"params.yaml of {done.a.name} has no {SEED}, so the noise is unknown")
    except Untestable as error:
        done.notes.append(f"the noise is unknown: {error}")
    return None


def document(done: Why) -> dict[str, Any]:
    """Convert all results to JSON values; None for results that were not found."""
    return {
        "a": _side(done.a, done.outcomes[0]),
        "b": _side(done.b, done.outcomes[1]),
        "differences": list(map(asdict, done.differences)),
        "effect": _effect_values(done.effect),
        "cause": _cause(done),
        "bisect": done.search and _search_values(done.search),
        "notes": done.notes,
        "lost": list(map(str, done.lost)),
    }


def _side(revision: Revision, outcome: Outcome | None) -> dict[str, Any]:
    return {
        "name": revision.name,
        "version": revision.version and revision.version.name,
        "commit": revision.commit,
        **score_fact(outcome.scores if outcome else None),
        "examples": outcome and outcome.scores.examples,
    }


def _effect_values(effect: Effect) -> dict[str, Any]:
    examples, images = effect.examples, effect.images
    found = asdict(examples) if examples else {}
    flips, classes = found.pop("flips", []), found.pop("classes", {})
    return {
        "examples": examples and {**found, "changed": flips},
        "classes": [{"class": name, "a": a, "b": b} for name, (a, b) in classes.items()],
        "images": images
        and {
            **{kind: images.count(kind) for kind in ("added", "removed", "relabelled", "moved")},
            "examples": {split: list(pair) for split, pair in images.examples.items()},
        },
    }


def _cause(done: Why) -> dict[str, Any] | None:
    cause, search = done.cause, done.search
    if cause is None:
        return None
    if isinstance(cause, Found):
        return {**asdict(cause), "commit": None, "differences": [], "change": done.change, "share": 1.0}
    if search is None or search.bisection is None:
        return {**_step(cause), "change": None, "share": None}
    low, high = search.bisection.ends
    change, effect = high.score - low.score, search.effect and _effect_values(search.effect)
    return {**_step(cause), "change": change, "share": search.bisection.share, "effect": effect}


def _step(step: Step) -> dict[str, Any]:
    one = step.found[0] if len(step.found) == 1 else None
    return {
        "kind": step.kind,
        "what": step.what,
        "a": one and one.a,
        "b": one and one.b,
        "commit": step.commit.commit,
        "differences": list(map(asdict, step.found)),
    }


def _search_values(search: CauseSearch) -> dict[str, Any]:
    noise, found = search.noise, search.bisection
    outcomes, problems = (found.outcomes, found.untestable) if found else ({}, {})
    scores = {number: outcome.scores for number, outcome in outcomes.items()}
    return {
        "noise": noise and {**asdict(noise), "limit": noise.limit},
        "within_noise": search.within_noise,
        "changes": len(search.steps),
        "trainings": search.trainings,
        "most_trainings": search.most_trainings,
        "states": [
            {"name": name, **score_fact(scores.get(number)), "problem": problems.get(number)}
            for number, name in enumerate(search.names)
        ],
        "left": [_step(step) for step in chain.left(found, search.steps)] if found else [],
        "seconds": round(search.seconds, 1),
    }
