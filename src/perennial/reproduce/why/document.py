"""The result of `perennial why` as one JSON document."""

from dataclasses import asdict
from typing import Any

from perennial.reproduce.why import chain
from perennial.reproduce.why.chain import Step
from perennial.reproduce.why.differences import Found
from perennial.reproduce.why.effect import SHOWN, Outcome
from perennial.reproduce.why.revisions import Revision
from perennial.reproduce.why.why import CauseSearch, Effect, Why


def document(done: Why) -> dict[str, Any]:
    """Convert all results to JSON values; None for results that were not found."""
    return {
        "a": _side(done.a, done.outcomes[0]),
        "b": _side(done.b, done.outcomes[1]),
        "differences": list(map(asdict, done.differences)),
        "effect": _effect(done.effect),
        "cause": _cause(done),
        "bisect": done.search and _search(done.search),
        "notes": done.notes,
        "lost": list(map(str, done.lost)),
    }


def _side(revision: Revision, outcome: Outcome | None) -> dict[str, Any]:
    return {
        "name": revision.name,
        "version": revision.version and revision.version.name,
        "commit": revision.commit,
        "accuracy": outcome and outcome.accuracy,
        "examples": outcome and outcome.scores.examples,
    }


def _effect(effect: Effect) -> dict[str, Any]:
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
            "changed": [
                {
                    "sha256": each.sha256,
                    "change": each.kind,
                    "a": each.a and {"label": each.a.label, "split": each.a.split},
                    "b": each.b and {"label": each.b.label, "split": each.b.split},
                }
                for each in images.changes[:SHOWN]
            ],
        },
    }


def _cause(done: Why) -> dict[str, Any] | None:
    cause, search = done.cause, done.search
    if cause is None:
        return None
    if isinstance(cause, Found):
        a, b = done.outcomes
        change = b.accuracy - a.accuracy if a and b else None
        return {**asdict(cause), "commit": None, "differences": [], "change": change, "share": 1.0}
    if search is None or search.bisection is None:
        return {**_step(cause), "change": None, "share": None}
    low, high = search.bisection.ends
    change, effect = high.accuracy - low.accuracy, search.effect and _effect(search.effect)
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


def _search(search: CauseSearch) -> dict[str, Any]:
    noise, found = search.noise, search.bisection
    outcomes, problems = (found.outcomes, found.untestable) if found else ({}, {})
    return {
        "noise": noise and {**asdict(noise), "limit": noise.limit},
        "within_noise": search.within_noise,
        "changes": len(search.steps),
        "trainings": search.trainings,
        "most_trainings": search.most_trainings,
        "states": [
            {
                "name": name,
                "accuracy": outcomes[number].accuracy if number in outcomes else None,
                "problem": problems.get(number),
            }
            for number, name in enumerate(search.names)
        ],
        "left": [_step(step) for step in chain.left(found, search.steps)] if found else [],
        "seconds": round(search.seconds, 1),
    }
