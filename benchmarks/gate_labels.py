"""How often the gate calls equally good models of several labels an image different, and how often better ones.

Scores are drawn, not trained: two models share the difficulty of the examples, and differ in noise of their own
and in how sure they are. Three tests of the gain in macro average precision are compared: the permutation test
by ranks, which the gate uses, the exact sign test of the examples' Jaccard indices at thresholds, and that of
the jackknife. Last, how often an equally good model drops in a class, as far as chance goes.

NULLS (default 2000) sets the pairs of equally good models of each row; drops of a class of the larger size have
a fifth of it, and each gain a fiftieth. About an hour on two free cores.
"""

import os
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from benchmarks import results
from perennial.model.evaluation import average_precision, label_comparison
from perennial.model.evaluation.comparison import mcnemar

NULLS = int(os.environ.get("NULLS", "2000"))
SIZES = ((360, 5), (2000, 20))  # examples, classes
LEVELS = (0.05, 0.01, 0.002)
GAINS = (0.005, 0.01, 0.02, 0.03, 0.05)
MARGIN = 2.0  # of labels over others
SHARED, SURE = 0.8, 0.5  # share of the noise that is of the example; how sure model 2 is
KNOWN = 100_000  # examples that stand for all
SIZES_OF_TIMES = ((2_000, 20), (10_000, 80))
Array = NDArray[np.float64]


class Pair(NamedTuple):
    """Labels [N, classes], and the scores of two models."""

    labels: NDArray[np.int64]
    ours: Array
    theirs: Array


def measure() -> None:
    """Simulates, prints tables and writes the results."""
    times = {f"{examples} x {classes}": _seconds(examples, classes) for examples, classes in SIZES_OF_TIMES}
    for size, seconds in times.items():
        print(f"{label_comparison.SWAPS:,} swaps of {size}: {seconds:.1f} s")
    rows = {}
    for examples, classes in SIZES:
        for kind, other in (("alike", 0.0), ("unlike", 0.5)):
            name = f"{examples} x {classes}, {kind}"
            rows[name] = _nulls(examples, classes, other)
            for test, shares in rows[name].items():
                print(f"{name}: {test:<12}" + "".join(f"{100 * share:8.2f} %" for share in shares.values()))
    power = {f"{examples} x {classes}": _power(examples, classes) for examples, classes in SIZES}
    for size, row in power.items():
        for test, shares in row.items():
            print(f"{size}: {test:<12}" + "".join(f"{100 * share:8.1f} %" for share in shares.values()))
    results.write("gate_labels", nulls=rows, power=power, seconds=times, pairs=NULLS)


def _nulls(examples: int, classes: int, other: float) -> dict[str, dict[str, float]]:
    """The share of equally good pairs that each test rejects at each level, and those that lost a class."""
    ours, theirs = _margins(classes, other, 0.0)
    cuts = _thresholds(ours, first=True), _thresholds(theirs, first=False)
    found = _in_parallel(partial(_tested, examples, ours, theirs, cuts), range(NULLS))
    if not other:
        seeds = range(NULLS if examples == SIZES[0][0] else NULLS // 5)
        found |= _in_parallel(partial(_dropped, examples, ours, theirs), seeds)
    return {
        name: {f"{level:g}": float(np.mean(values <= level)) for level in LEVELS}
        for name, values in found.items()
    }


def _in_parallel(test: "partial[dict[str, float]]", seeds: Iterable[int]) -> dict[str, Array]:
    """The p-values of each test, one of each pair."""
    with ProcessPoolExecutor() as pool:
        pairs = list(pool.map(test, seeds))
    return {name: np.array([each[name] for each in pairs]) for name in pairs[0]}


def _tested(
    examples: int, ours: Array, theirs: Array, cuts: tuple[Array, Array], seed: int
) -> dict[str, float]:
    """The p-values of the gain of a pair of models."""
    return _p_values(_drawn(np.random.default_rng(seed), examples, ours, theirs), cuts, str(seed))


def _dropped(examples: int, ours: Array, theirs: Array, seed: int) -> dict[str, float]:
    """The p-value of a drop of any class, where no class is really worse."""
    pair = _drawn(np.random.default_rng(seed), examples, ours, theirs)
    classes = [
        label_comparison.p_value(
            pair.labels[:, [one]], pair.theirs[:, [one]], pair.ours[:, [one]], f"{seed} {one}"
        )
        for one in range(len(ours))
    ]
    return {"drop of a class": min(classes) * len(ours)}


def _power(examples: int, classes: int) -> dict[str, dict[str, float]]:
    """The share of better models that each test finds at 0.002, by gain."""
    found: dict[str, dict[str, float]] = {}
    for gain in GAINS:
        ours, theirs = _margins(classes, 0.0, gain)
        cuts = _thresholds(ours, first=True), _thresholds(theirs, first=False)
        test = partial(_tested, examples, ours, theirs, cuts)
        for name, values in _in_parallel(test, range(NULLS // 50)).items():
            found.setdefault(name, {})[f"{gain:g}"] = float(np.mean(values <= LEVELS[-1]))
    return found


def _p_values(pair: Pair, cuts: tuple[Array, Array], seed: str) -> dict[str, float]:
    labels, ours, theirs = pair
    one, other = (_jaccard(labels, each >= cut) for each, cut in zip((ours, theirs), cuts, strict=True))
    gain = _macro(labels, ours) - _macro(labels, theirs)
    spread = average_precision.influence(labels, ours) - average_precision.influence(labels, theirs)
    return {
        "permutation": label_comparison.p_value(labels, ours, theirs, seed),
        "sign": mcnemar(int((one > other).sum()), int((one < other).sum())),
        "jackknife": float(scipy.special.ndtr(-gain / np.sqrt((spread**2).sum()))),
    }


def _jaccard(labels: NDArray[np.int64], predicted: NDArray[np.bool_]) -> Array:
    either = (labels | predicted).sum(axis=1)
    return np.where(either > 0, (labels & predicted).sum(axis=1) / np.maximum(either, 1), 1.0)


def _macro(labels: NDArray[np.int64], scores: Array) -> float:
    return average_precision.macro(average_precision.per_class(labels, scores))


def _drawn(random: np.random.Generator, examples: int, ours: Array, theirs: Array) -> Pair:
    """Labels that occur together, the rarest on 1 % of the examples, and the scores of two models."""
    classes = len(ours)
    rates = np.geomspace(0.4, 0.01, classes)
    latent = np.sqrt(0.3) * random.standard_normal((examples, 1))
    latent = latent + np.sqrt(0.7) * random.standard_normal((examples, classes))
    labels = (latent < scipy.special.ndtri(rates)).astype(np.int64)
    labels[random.integers(examples, size=classes), np.arange(classes)] = 1
    difficulty = np.sqrt(SHARED) * random.standard_normal((examples, classes))
    own = np.sqrt(1 - SHARED) * random.standard_normal((2, examples, classes))
    return Pair(labels, ours * labels + difficulty + own[0], SURE * (theirs * labels + difficulty + own[1]) - 1)


def _margins(classes: int, other: float, gain: float) -> tuple[Array, Array]:
    """The margins of two models: `other` is what each has more in every second class, `gain` the real one."""
    signs = np.where(np.arange(classes) % 2, 1.0, -1.0)
    theirs = np.full(classes, MARGIN)

    def missing(more: float) -> float:
        pair = _drawn(np.random.default_rng(10**6), KNOWN, theirs + other * signs + more, theirs)
        return _macro(pair.labels, pair.ours) - _macro(pair.labels, pair.theirs) - gain

    more = scipy.optimize.brentq(missing, -1.0, 2.0, xtol=1e-3)
    return theirs + other * signs + more, theirs


def _thresholds(margins: Array, *, first: bool) -> Array:
    """The thresholds of a model with the best F1, from the examples that stand for all."""
    pair = _drawn(np.random.default_rng(10**6), KNOWN // 5, margins, margins)
    return np.array([_best(own != 0, each) for own, each in zip(pair.labels.T, pair[2 - first].T, strict=True)])


def _best(own: NDArray[np.bool_], scores: Array) -> float:
    order = np.argsort(-scores)
    hits = np.cumsum(own[order])
    return float(scores[order][np.argmax(2 * hits / (np.arange(1, len(own) + 1) + own.sum()))])


def _seconds(examples: int, classes: int) -> float:
    """The time of a test that no early stop shortens."""
    margins = np.full(classes, MARGIN)
    pair = _drawn(np.random.default_rng(0), examples, margins + 0.5, margins)
    started = time.perf_counter()
    label_comparison.p_value(pair.labels, pair.ours, pair.theirs, "time")
    return time.perf_counter() - started
