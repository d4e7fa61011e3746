"""How often the interval of a cross-validation contains the score of a model that is trained on such data.

Images are drawn, not taken: features of five normal classes, in known shares or in drawn ones, or of five
labels, and a linear model by least squares, so that thousands of cross-validations take minutes; the
first training of each is scored on other images. The mean of these scores is that of a model that is
trained on four fifths of so many new images, and each is that of another such model.

For one label an image, the interval comes from the pooled hits (Wilson; Clopper and Pearson) or from the
accuracies of the folds (t; t with the variance of C. Nadeau and Y. Bengio, Inference for the Generalization
Error, 2003). For several, it comes from the pooled probabilities (infinitesimal jackknife; wide: with the
factor of that variance) or from the folds.

REPEATS (default 2000) is the number of cross-validations of each row.
"""

import os
from collections.abc import Callable, Mapping

import numpy as np
import scipy
from numpy.typing import NDArray

from benchmarks import results
from perennial.model.evaluation import average_precision, intervals
from perennial.project.cross_validation import cross_validation

REPEATS = int(os.environ.get("REPEATS", "2000"))
SIZES, FOLDS, CLASSES, FEATURES = (60, 200, 1000), 5, 5, 16
APART = {"hard": 1.2, "usual": 2.2, "easy": 3.6}  # distance of the classes from the center, in deviations
KNOWN = 5000  # other images that a model is scored on
RIDGE = 1.0
Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int, float], tuple[Array, NDArray[np.int64]]]
Interval = tuple[float, float]


def measure() -> None:
    """Simulates, prints tables and writes the results."""
    rows = {
        f"{kind}, {name}, {examples} images": _row(draw, score, pooled, examples, apart)
        for kind, (draw, score, pooled) in KINDS.items()
        for name, apart in APART.items()
        for examples in SIZES
    }
    results.write("cross_validation", rows=rows, repeats=REPEATS, folds=FOLDS)


def _row(
    draw: Draw,
    score: Callable[[Array, NDArray[np.int64]], float],
    pooled: Callable[[Array, NDArray[np.int64]], Mapping[str, Interval]],
    examples: int,
    apart: float,
) -> dict[str, dict[str, float]]:
    """Coverage and mean width of each interval, and how far the estimate is off on average."""
    random = np.random.default_rng(examples)
    found: list[Mapping[str, Interval]] = []
    truths, estimates = [], []
    for _ in range(REPEATS):
        features, labels = draw(random, examples, apart)
        fold = _folds(random, labels)
        outputs, of_folds = np.zeros((examples, CLASSES)), []
        for number in range(FOLDS):
            held = fold == number
            weights = _fit(features[~held], labels[~held])
            outputs[held] = _predict(features[held], weights)
            of_folds.append(score(outputs[held], labels[held]))
            if not number:
                others, known = draw(random, KNOWN, apart)
                truths.append(score(_predict(others, weights), known))
        estimates.append(score(outputs, labels))
        found.append({**pooled(outputs, labels), **_of_folds(np.array(of_folds))})
    truth = float(np.mean(truths))
    another = np.roll(truths, 1)  # of a model that is trained on other images
    row = {}
    for name in found[0]:
        low, high = np.array([each[name] for each in found]).T
        row[name] = {
            "mean model": float(((low <= truth) & (truth <= high)).mean()),
            "another model": float(((low <= another) & (another <= high)).mean()),
            "width": float((high - low).mean()),
        }
    bias = float(np.mean(estimates)) - truth
    shown = (
        f"{name} {each['mean model']:.1%} {each['another model']:.1%} ({each['width']:.3f})"
        for name, each in row.items()
    )
    print(f"{examples:>5} images, true {truth:.3f}, bias {bias:+.4f}:", ", ".join(shown), flush=True)
    return {**row, "score": {"true": truth, "bias": bias}}


def _of_folds(scores: Array) -> dict[str, Interval]:
    """The intervals of the mean over folds."""
    mean, deviation = float(scores.mean()), float(scores.std(ddof=1))
    t = float(scipy.special.stdtrit(FOLDS - 1, (1 + intervals.LEVEL) / 2))
    halves = {"t": np.sqrt(1 / FOLDS), "Nadeau-Bengio": np.sqrt(1 / FOLDS + 1 / (FOLDS - 1))}
    return {name: (mean - t * deviation * by, mean + t * deviation * by) for name, by in halves.items()}


def _folds(random: np.random.Generator, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Folds that are stratified by the (first) label."""
    strata = labels if labels.ndim == 1 else labels.argmax(axis=1)
    order = np.lexsort((random.random(len(strata)), strata))
    fold = np.empty(len(strata), np.int64)
    fold[order] = np.arange(len(strata)) % FOLDS
    return fold


def _fit(features: Array, labels: NDArray[np.int64]) -> Array:
    """The weights [features + 1, classes] of a linear model by least squares with a small penalty."""
    inputs = np.c_[features, np.ones(len(features))]
    wanted = np.eye(CLASSES)[labels] if labels.ndim == 1 else labels.astype(np.float64)
    return np.linalg.solve(inputs.T @ inputs + RIDGE * np.eye(inputs.shape[1]), inputs.T @ wanted)


def _predict(features: Array, weights: Array) -> Array:
    return features @ weights[:-1] + weights[-1]


def _drawn(random: np.random.Generator, examples: int, apart: float) -> tuple[Array, NDArray[np.int64]]:
    return _features(random, random.integers(CLASSES, size=examples), apart)


def _even(random: np.random.Generator, examples: int, apart: float) -> tuple[Array, NDArray[np.int64]]:
    return _features(random, np.arange(examples) % CLASSES, apart)


def _features(
    random: np.random.Generator, labels: NDArray[np.int64], apart: float
) -> tuple[Array, NDArray[np.int64]]:
    examples = len(labels)
    features = random.normal(size=(examples, FEATURES))
    features[np.arange(examples), labels] += apart
    return features, labels


def _several(random: np.random.Generator, examples: int, apart: float) -> tuple[Array, NDArray[np.int64]]:
    shares = np.linspace(0.1, 0.4, CLASSES)
    labels = (random.random((examples, CLASSES)) < shares).astype(np.int64)
    features = random.normal(size=(examples, FEATURES))
    features[:, :CLASSES] += apart * labels
    return features, labels


def _accuracy(outputs: Array, labels: NDArray[np.int64]) -> float:
    return float((outputs.argmax(axis=1) == labels).mean())


def _precision(outputs: Array, labels: NDArray[np.int64]) -> float:
    return average_precision.macro(average_precision.per_class(labels, outputs))


def _of_hits(outputs: Array, labels: NDArray[np.int64]) -> dict[str, Interval]:
    hits, examples = int((outputs.argmax(axis=1) == labels).sum()), len(labels)
    return {"Wilson": intervals.wilson(hits, examples), "Clopper-Pearson": intervals.share(hits, examples)}


def _of_ranks(outputs: Array, labels: NDArray[np.int64]) -> dict[str, Interval]:
    return {
        name: average_precision.interval(labels, outputs, level)
        for name, level in (("jackknife", intervals.LEVEL), ("wide jackknife", cross_validation.widened(FOLDS)))
    }


KINDS = {
    "known shares": (_even, _accuracy, _of_hits),
    "drawn shares": (_drawn, _accuracy, _of_hits),
    "several labels": (_several, _precision, _of_ranks),
}
