"""The result of `perennial why` as one JSON document."""

from typing import Any

from perennial.why.bisect import left
from perennial.why.chain import Step
from perennial.why.differences import Found
from perennial.why.effect import SHOWN, Outcome
from perennial.why.revisions import Revision
from perennial.why.why import Effect, Search, Why


def document(done: Why) -> dict[str, Any]:
    """Everything that was found; a value of None was not."""
    return {
        "a": _side(done.a, done.outcomes[0]),
        "b": _side(done.b, done.outcomes[1]),
        "differences": [_difference(each) for each in done.differences],
        "effect": _effect(done.effect),
        "cause": _cause(done),
        "bisect": done.search and _search(done.search),
        "notes": done.notes,
        "lost": [str(each) for each in done.lost],
    }


def _side(revision: Revision, outcome: Outcome | None) -> dict[str, Any]:
    return {
        "name": revision.name,
        "version": revision.version and revision.version.name,
        "commit": revision.commit,
        "accuracy": outcome and outcome.accuracy,
        "examples": outcome and outcome.scores.examples,
    }


def _difference(each: Found) -> dict[str, Any]:
    return {
        "kind": each.kind,
        "what": each.what,
        "a": each.a,
        "b": each.b,
        "stages": list(each.stages),
        "decides": each.decides,
        "changes": each.changes,
    }


def _effect(effect: Effect) -> dict[str, Any]:
    examples, images = effect.examples, effect.images
    return {
        "examples": examples
        and {
            "compared": examples.compared,
            "only_a": examples.only_a,
            "only_b": examples.only_b,
            "p_value": examples.p_value,
            "changed": [
                {"record": each.record, "label": each.label, "a": each.a, "b": each.b}
                for each in examples.flips
            ],
        },
        "classes": [
            {"class": name, "a": a, "b": b} for name, (a, b) in (examples.classes if examples else {}).items()
        ],
        "images": images
        and {
            **{kind: images.count(kind) for kind in ("added", "removed", "relabelled", "moved")},
            "examples": {split: list(pair) for split, pair in images.examples.items()},
            "changed": [
                {
                    "sha256": each.sha256,
                    "change": each.kind,
                    **{
                        side: image and {"label": image.label, "split": image.split}
                        for side, image in (("a", each.a), ("b", each.b))
                    },
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
        return {**_difference(cause), "commit": None, "differences": [], "change": change, "share": 1.0}
    return {**_step(cause), **_share(search)}


def _share(search: Search | None) -> dict[str, Any]:
    if search is None or search.bisection is None:
        return {"change": None, "share": None}
    low, high = search.bisection.ends
    return {
        "change": high.accuracy - low.accuracy,
        "share": search.bisection.share,
        "effect": search.effect and _effect(search.effect),
    }


def _step(step: Step) -> dict[str, Any]:
    one = step.found[0] if len(step.found) == 1 else None
    return {
        "kind": step.kind,
        "what": step.what,
        "a": one.a if one else None,
        "b": one.b if one else None,
        "commit": step.commit.commit,
        "differences": [_difference(each) for each in step.found],
    }


def _search(search: Search) -> dict[str, Any]:
    noise, found = search.noise, search.bisection
    outcomes, problems = (found.outcomes, found.untestable) if found else ({}, {})
    return {
        "noise": noise
        and {
            "seed": noise.seed,
            "change": noise.change,
            "examples": noise.examples,
            "accuracy": noise.accuracy,
            "limit": noise.limit,
        },
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
        "left": [_step(step) for step in left(found, search.steps)] if found else [],
        "seconds": round(search.seconds, 1),
    }
