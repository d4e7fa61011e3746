"""Years of nightly runs through the gate's own code, with predictions that are drawn instead of trained.

Every night brings a candidate that is as good as all others but for its seed. How often is one promoted, by how
much is the last champion's score on the examples that chose it too high, and how often does the interval of its
score on examples that played no part contain its true accuracy? And how often does the rule for slices find a
loss, or reject a model without one?

A model is right on an example with the probability sigmoid(easiness + skill). The easiness of examples varies
with a deviation of 6, so that two models differ on 5.6 % of them. Models are equally good; in the last row, the
skill depends on the seed, so that the true accuracy has a deviation of 0.3 points.

YEARS (default 200) sets the number of simulated years of each row.
"""

import multiprocessing
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import results

YEARS, NIGHTS = int(os.environ.get("YEARS", "200")), 365
ACCURACY, EASINESS, MEAN = 0.9, 6.0, 8.029216  # deviation, and the mean that gives the accuracy
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(200)  # over all images there are
CLASSES = 10
SLICE, LOSS, TRIES = 200, 0.1, 1000  # examples, share lost, comparisons
SLICES = 4  # of one column; with the classes, 14 groups are judged
DIFFERENCES = (0.0, 0.02, 0.04, 0.06)  # share of the examples that change sides by chance, besides the loss
Figures = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Year:
    """The test split of a year of nightly runs."""

    examples: int  # on the first night
    joining: int = 0  # each night
    audit: int = 0  # further examples that no decision reads
    skill: float = 0.0  # deviation between seeds


TABLE = {
    "359 fixed": Year(examples=359),
    "2,000 fixed": Year(examples=2000),
    "2,000 fixed, 500 for audit": Year(examples=2000, audit=500),
    "2,000, and 5 more each night": Year(examples=2000, joining=5),
    "2,000, and 20 more each night": Year(examples=2000, joining=20),
    "2,000, and 5 more each night; seeds matter": Year(examples=2000, joining=5, skill=0.1),
}


def measure() -> None:
    """Measures, prints a table and writes the results."""
    years = dict[str, Figures]()
    for name, year in TABLE.items():
        found = years[name] = summary(year)
        print(name, found, flush=True)
    slices = {str(share): sliced(share) for share in DIFFERENCES}
    for share, found in slices.items():
        print(f"{share} differ: {found}", flush=True)
    results.write("scores", years=years, slices=slices, number=YEARS, nights=NIGHTS)


def summary(year: Year) -> Figures:
    """Means over all years; `coverage` is of the intervals at the end of each 30 nights, where one is known."""
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        found = pool.map(partial(simulated, year), range(YEARS), chunksize=5)
    covered = [each for one in found for each in one["covered"]]
    by_year = [float(np.mean(one["covered"])) for one in found if one["covered"]]
    biases = [one["bias"] for one in found if one["bias"] is not None]
    return {
        **{
            name: float(np.mean([one[name] for one in found]))
            for name in ("promotions", "no_better", "inflation")
        },
        "bias": float(np.mean(biases)) if biases else None,
        "coverage": float(np.mean(covered)) if covered else None,
        "coverage_error": float(np.std(by_year) / np.sqrt(len(by_year))) if by_year else None,
        "intervals": len(covered),
    }


class Model:
    """A model, by whether it is right on each example."""

    def __init__(self, skill: float) -> None:
        self.skill, self.right = skill, np.zeros(0, np.bool_)

    def see(self, easiness: NDArray[np.float64], random: np.random.Generator) -> None:
        """Classify further examples."""
        p = 1 / (1 + np.exp(-easiness - self.skill))
        self.right = np.concatenate([self.right, random.random(len(p)) < p])

    @property
    def accuracy(self) -> float:
        """The true accuracy."""
        p = 1 / (1 + np.exp(-(MEAN + EASINESS * NODES + self.skill)))
        return float((WEIGHTS * p).sum() / WEIGHTS.sum())


def simulated(year: Year, seed: int) -> Figures:
    """A year that begins with a champion, which was chosen without a comparison."""
    (decide, unbiased, limits), random = _gate(), np.random.default_rng(seed)
    easiness = random.normal(MEAN, EASINESS, year.examples)
    champion, seen = Model(random.normal(0, year.skill)), year.examples
    champion.see(easiness, random)
    promotions, no_better, covered, errors = 0, 0, list[bool](), list[float]()
    for night in range(1, NIGHTS + 1):
        joined = random.normal(MEAN, EASINESS, year.joining)
        easiness = np.concatenate([easiness, joined])
        champion.see(joined, random)
        candidate = Model(random.normal(0, year.skill))
        candidate.see(easiness, random)
        decision = decide(candidate.right, champion.right, seen, limits)
        # Before the promotion: the number is of the champion that the night began with.
        fresh = decision.champion.unbiased
        audit = Model(champion.skill)  # other examples each time: no decision reads them
        audit.see(random.normal(MEAN, EASINESS, year.audit), random)
        score = unbiased.score(fresh.correct + int(audit.right.sum()), fresh.examples + year.audit)
        if night % 30 == 0 and score["accuracy"] is not None:
            covered.append(bool(score["low"] <= champion.accuracy <= score["high"]))
            errors.append(score["accuracy"] - champion.accuracy)
        if decision.promote:
            promotions += 1
            no_better += candidate.skill <= champion.skill
            champion, seen = candidate, len(easiness)
    return {
        "promotions": promotions,
        "no_better": no_better,
        "inflation": float(champion.right[:seen].mean()) - champion.accuracy,
        "bias": float(np.mean(errors)) if errors else None,
        "covered": covered,
    }


def sliced(share: float) -> Figures:
    """How often a slice of 200 examples that lost 10 points rejects a model, and a drop one without."""
    decide, _, limits = _gate()
    random, examples = np.random.default_rng(0), 2000
    of = np.minimum(np.arange(examples) // SLICE, SLICES - 1)
    flips = share / 2 / np.array([1 - ACCURACY, ACCURACY])  # of the examples that are wrong, and right
    found = dict.fromkeys(("found", "rejected without a loss"), 0)
    for _ in range(TRIES):
        theirs = random.random(examples) < ACCURACY
        ours = theirs ^ (random.random(examples) < flips[theirs.astype(int)])
        worse = ours & ~((of == 0) & (random.random(examples) < LOSS / ACCURACY))
        for name, right in (("found", worse), ("rejected without a loss", ours)):
            checks = decide(right, theirs, examples, limits, of).checks
            wanted = ("max_slice_drop",) if name == "found" else ("max_slice_drop", "max_class_drop")
            found[name] += any(check.name in wanted and not check.passed for check in checks)
    return {name: count / TRIES for name, count in found.items()}


@lru_cache
def _gate() -> tuple[Callable[..., Any], Any, Any]:
    """The gate's decision on predictions that are right or wrong; the module for unbiased scores; limits."""
    from perennial.base.config.release import GateConfig  # noqa: PLC0415 - only this subject needs them
    from perennial.model.evaluation import comparison, unbiased  # noqa: PLC0415
    from perennial.model.evaluation.comparison import Champion  # noqa: PLC0415
    from perennial.model.evaluation.predictions import Predictions, Slices  # noqa: PLC0415
    from perennial.model.evaluation.results import MainMetrics  # noqa: PLC0415
    from perennial.release.gate.own_limits import Candidate  # noqa: PLC0415
    from perennial.stages import gate  # noqa: PLC0415

    names = tuple(map(str, range(CLASSES)))

    def decided(
        ours: NDArray[np.bool_], theirs: NDArray[np.bool_], seen: int, limits: GateConfig,
        slices: NDArray[np.int64] | None = None,
    ) -> Any:  # fmt: skip
        labels = np.arange(len(ours)) % CLASSES
        p = np.full(len(ours), 0.9, np.float32)
        columns = (
            () if slices is None else (Slices(column="site", values=tuple(map(str, range(SLICES))), of=slices),)
        )
        shared: Mapping[str, Any] = {"classes": names, "split_digest": "t"}
        probabilities = np.full((len(ours), CLASSES), 0.1 / (CLASSES - 1), np.float32)
        probabilities[np.arange(len(ours)), np.where(ours, labels, (labels + 1) % CLASSES)] = 0.9
        top = Predictions(
            **shared, labels=labels, probabilities=probabilities, split="test", data="d", model="m",
            slices=columns,
        )  # fmt: skip
        champion = Champion(
            **shared, p=p, p_true=p, commit="c", version="v", model="old", model_bytes=None, rescored=False,
            predicted=np.where(theirs, labels, (labels + 1) % CLASSES),
            parts=np.where(np.arange(len(ours)) < seen, unbiased.CHOSE, unbiased.NO_PART).astype(np.int8),
        )  # fmt: skip
        metrics = MainMetrics(accuracy=float(ours.mean()), loss=0.0, examples=len(ours), data="d", model="m")
        candidate = Candidate(
            metrics=metrics, predictions=top, model_bytes=1, latency_ms=None,
            scores=comparison.scores(labels, ours, p, p, classes=CLASSES, bins=15),
        )  # fmt: skip
        return gate.decide(candidate, champion, limits, bins=15)

    return decided, unbiased, GateConfig(min_accuracy=0.0)


if __name__ == "__main__":
    measure()
