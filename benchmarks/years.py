"""How often the rules of the gate promote a model that is no better, and find a better one, over years.

Each year, the same drawn candidates meet four rules: `significance` alone, after the gain on validation, and
the budget of `gate.false_share`, alone and after that gain. A model is right on an example as in `scores`;
validation has as many examples as the test split. Candidates are as good as the first champion (a promotion is
false); or better by a gain, for 30 nights; or, over a year, they rise by 3 points, with a deviation of 0.3
between seeds. YEARS (default 200) sets the number of simulated years of each row.
"""

import multiprocessing
import os
from dataclasses import dataclass
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import results

YEARS = int(os.environ.get("YEARS", "200"))
ACCURACY, EASINESS, MEAN = 0.9, 6.0, 8.029216  # as in `scores`
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(200)
NIGHTS, FEW = 365, 30
GAINS = (0.005, 0.01, 0.02, 0.03)
RISE, DEVIATION = 0.03, 0.003  # of candidates over a year, and between their seeds
SHARE = 0.1  # gate.false_share
RULES: dict[str, dict[str, Any]] = {
    "fixed": {}, "validation": {"validated": True}, "budget": {"false_share": SHARE},
    "both": {"false_share": SHARE, "validated": True},
}  # fmt: skip
Figures = dict[str, Any]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Split:
    """A test split."""

    examples: int  # on the first night
    joining: int = 0  # each night

    def at(self, night: int) -> int:
        """The examples on a night."""
        return self.examples + self.joining * night


SPLITS = {"360": Split(examples=360), "2,000": Split(examples=2000), "10,000": Split(examples=10_000),
          "2,000, and 20 more each night": Split(examples=2000, joining=20)}  # fmt: skip


def measure() -> None:
    """By test split and rule: false promotions of equal candidates, and better ones that are found."""
    found: dict[str, dict[str, Figures]] = {}
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        for name, split in SPLITS.items():
            rows = pool.map(partial(simulated, split), range(YEARS), chunksize=5)
            found[name] = {rule: summary([row[rule] for row in rows]) for rule in RULES}
            for rule, figures in found[name].items():
                print(name, rule, figures, flush=True)
    results.write("years", splits=found, number=YEARS)


def summary(rows: list[Figures]) -> Figures:
    """Means over the years of a rule."""
    false = np.array([row["equal"]["false"] for row in rows])
    rising = [row["rising"] for row in rows]
    shares = [each["false"] / max(each["promotions"], 1) for each in rising]
    return {
        "years_with_a_false_promotion": float((false > 0).mean()),
        "false_promotions": float(false.mean()),
        "found": {
            str(gain): float(np.mean([row[str(gain)]["promotions"] > 0 for row in rows])) for gain in GAINS
        },
        "rising_promotions": float(np.mean([each["promotions"] for each in rising])),
        "rising_false_share": float(np.mean(shares)),
    }


def simulated(split: Split, seed: int) -> Figures:
    """A year by each rule, of each kind of candidates."""
    random = np.random.default_rng(seed)
    kinds = {"equal": np.zeros(NIGHTS)} | {str(gain): np.full(FEW, skill(gain)) for gain in GAINS}
    rise = RISE * np.arange(NIGHTS) / NIGHTS + random.normal(0, DEVIATION, NIGHTS)
    kinds["rising"] = np.array([skill(gain) for gain in rise])
    found: Figures = {rule: {} for rule in RULES}
    for kind, skills in kinds.items():
        test, validation = (drawn(skills, split.at(len(skills)), random) for _ in range(2))
        for rule, options in RULES.items():
            found[rule][kind] = year(split, skills, test, validation, first=kind not in {"equal", "rising"},
                                     **options)  # fmt: skip
    return found


def drawn(skills: NDArray[np.float64], examples: int, random: np.random.Generator) -> Mask:
    """Whether the first champion and each night's candidate are right, [1 + nights, examples]."""
    easiness = random.normal(MEAN, EASINESS, examples).astype(np.float32)
    rows = np.empty((1 + len(skills), examples), np.bool_)
    for row, level in zip(rows, (0.0, *skills), strict=True):
        row[:] = random.random(examples, np.float32) < 1 / (1 + np.exp(-easiness - np.float32(level)))
    return rows


def year(
    split: Split, skills: NDArray[np.float64], test: Mask, validation: Mask, *, first: bool,
    false_share: float | None = None, validated: bool = False,
) -> Figures:  # fmt: skip
    """The promotions of a year; `first`: it ends with the first one."""
    decide, limits, state = *gate(false_share), None
    champion, level, promotions, false = 0, 0.0, 0, 0
    for night, now in enumerate(skills, 1):
        examples = split.at(night)
        ours, theirs = test[night, :examples], test[champion, :examples]
        scores = [float(validation[row, :examples].mean()) for row in (night, champion)]
        passed, state = decide(ours, theirs, scores if validated else None, state, limits)
        if passed:
            promotions += 1
            false += bool(now <= level)
            champion, level = night, now
            if first:
                break
    return {"promotions": promotions, "false": false}


@lru_cache
def skill(gain: float) -> float:
    """The skill that raises the true accuracy by a gain."""
    low, high = -10.0, 10.0
    for _ in range(40):
        middle = (low + high) / 2
        p = 1 / (1 + np.exp(-(MEAN + EASINESS * NODES + middle)))
        low, high = (middle, high) if (WEIGHTS * p).sum() / WEIGHTS.sum() < ACCURACY + gain else (low, middle)
    return low


@lru_cache
def gate(false_share: float | None) -> tuple[Any, Any]:
    """The rules of the gate on two models that are right or wrong on each example, and their limits."""
    from perennial.base.config.release import GateConfig  # noqa: PLC0415 - only this subject needs them
    from perennial.model.evaluation import comparison  # noqa: PLC0415
    from perennial.release.gate import champion_rules  # noqa: PLC0415
    from perennial.release.gate.compared import Budget  # noqa: PLC0415

    p_value = lru_cache(maxsize=None)(comparison.mcnemar)

    def decided(ours: Mask, theirs: Mask, scores: list[float] | None, state: Any, limits: GateConfig) -> Any:
        state, (mine, other) = state or Budget(), scores or (None, None)
        won, lost, count = int((ours & ~theirs).sum()), int((theirs & ~ours).sum()), len(ours)
        compared = comparison.Comparison(
            examples=count, left_out=0, won=won, lost=lost, negative_flips=lost / count, negative_flips_low=0.0,
            negative_flips_high=1.0, p_value=p_value(won, lost), gain=(won - lost) / count, gain_low=-1.0,
            gain_high=1.0, class_drop=0.0, dropped_class=None, drop_p_value=1.0, classes=(), slices=(),
            new_classes=(), missing_classes=(),
        )  # fmt: skip
        champion: Any = SimpleNamespace(
            model="old", version="v", problem=None, probabilities=None, validation=other, not_validated=None,
            **state._asdict(),
        )  # fmt: skip
        metrics = SimpleNamespace(model="new", score_name="accuracy")
        candidate: Any = SimpleNamespace(metrics=metrics, validation=mine)
        checks = [each.check for each in champion_rules.against_champion(candidate, champion, compared, limits)]
        passed = all(check.passed for check in checks)
        asked = any(check.name == "min_gain" for check in checks)
        return passed, state.after(limits, passed=passed) if asked else state

    return decided, GateConfig(min_accuracy=0.0, false_share=false_share)
