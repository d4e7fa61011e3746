"""How far the score in office is from the true accuracy of the versions in office, over years.

Each night, examples join the test split, and the champion of that night classifies them before its comparison
reads them. Candidates are as good as the first champion, or rise by 3 points over the year, as in `years`.
Beside it, the score of the last champion on the test split that chose it. YEARS (default 200) sets the number
of simulated years of each row.
"""

import multiprocessing
import os
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import results, scores, years
from benchmarks.years import DEVIATION, NIGHTS, RISE, YEARS, Figures, Mask, Split

SPLITS = {
    "2,000, and 5 more each night": Split(examples=2000, joining=5),
    "2,000, and 20 more each night": Split(examples=2000, joining=20),
}
KINDS = ("equal", "rising")
RULES = {name: years.RULES[name] for name in ("fixed", "both")}


def measure() -> None:
    """By test split, candidates and rule: errors of both scores, and coverage of the interval."""
    found: dict[str, Any] = {}
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        for name, split in SPLITS.items():
            rows = pool.map(partial(simulated, split), range(YEARS), chunksize=5)
            found[name] = {
                kind: {rule: summary([row[kind][rule] for row in rows]) for rule in RULES} for kind in KINDS
            }
            print(name, found[name], flush=True)
    results.write("in_office", splits=found, number=YEARS)


def summary(rows: list[Figures]) -> Figures:
    """Means over the years of a rule, and the standard error of the bias."""
    means = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    return {**means, "bias_error": float(np.std([row["bias"] for row in rows]) / np.sqrt(len(rows)))}


def simulated(split: Split, seed: int) -> Figures:
    """A year of each kind of candidates by each rule."""
    random = np.random.default_rng(seed)
    rise = RISE * np.arange(NIGHTS) / NIGHTS + random.normal(0, DEVIATION, NIGHTS)
    rising = np.array([years.skill(gain) for gain in rise])
    found: Figures = {}
    for kind, skills in zip(KINDS, (np.zeros(NIGHTS), rising), strict=True):
        test, validation = (years.drawn(skills, split.at(NIGHTS), random) for _ in range(2))
        found[kind] = {
            rule: year(split, skills, test, validation, **options) for rule, options in RULES.items()
        }
    return found


def year(
    split: Split, skills: NDArray[np.float64], test: Mask, validation: Mask, *,
    false_share: float | None = None, validated: bool = False,
) -> Figures:  # fmt: skip
    """The errors of both scores at the end of a year, and whether the interval holds the true accuracy."""
    from perennial.model.evaluation import unbiased  # noqa: PLC0415 - only this subject needs it

    decide, limits, state = *years.gate(false_share), None
    champion, level, promotions, hits, expected = 0, 0.0, 0, 0, 0.0
    for night, now in enumerate(skills, 1):
        examples = split.at(night)
        joined = test[champion, split.at(night - 1) : examples]
        hits, expected = hits + int(joined.sum()), expected + len(joined) * accuracy(level)
        both = [float(validation[row, :examples].mean()) for row in (night, champion)]
        passed, state = decide(
            test[night, :examples], test[champion, :examples], both if validated else None, state, limits
        )
        if passed:
            promotions, champion, level = promotions + 1, night, now
    count = split.joining * len(skills)
    score, truth = unbiased.score(hits, count), expected / count
    return {
        "bias": score["accuracy"] - truth,
        "coverage": bool(score["low"] <= truth <= score["high"]),
        "today": float(test[champion, : split.at(len(skills))].mean()) - accuracy(level),
        "promotions": promotions,
    }


@cache
def accuracy(level: float) -> float:
    """The true accuracy of a model of a skill."""
    return scores.Model(level).accuracy


if __name__ == "__main__":
    measure()
