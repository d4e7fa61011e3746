"""Average precision: how well probabilities rank the examples of a class before the others; no TensorFlow."""

import numpy as np
import scipy
from numpy.typing import NDArray


def average_precision(labels: NDArray[np.integer], probabilities: NDArray[np.floating]) -> float | None:
    """The average precision of a class, 0..1; both arrays are [N], labels are 0 or 1. None without a label.

    The mean over the labelled examples of the precision at their probability, at which equal ones are taken
    together: the area under the steps of precision over recall, as scikit-learn's `average_precision_score`.
    """
    own, precisions, _ = _precisions(labels, probabilities)
    return float(precisions.mean()) if own.size else None


def per_class(labels: NDArray[np.integer], probabilities: NDArray[np.floating]) -> list[float | None]:
    """The average precision of each class: both arrays are [N, classes]."""
    return [average_precision(*pair) for pair in zip(labels.T, probabilities.T, strict=True)]


def macro(values: list[float | None]) -> float:
    """The mean over the classes that have labels, 0..1; 0 if none has."""
    found = [value for value in values if value is not None]
    return sum(found) / len(found) if found else 0.0


def prior(labels: NDArray[np.integer]) -> float:
    """The macro average precision of equal probabilities for every example, 0..1: labels are [N, classes]."""
    shares = labels.mean(axis=0)
    return float(shares[shares > 0].mean()) if shares.any() else 0.0


def influence(labels: NDArray[np.integer], probabilities: NDArray[np.floating]) -> NDArray[np.float64]:
    """How the macro average precision changes with the weight of each example, [N]; the sum is 0.

    The derivative by the weights of the examples, all of them 1: with more weight, an example moves the
    precision at its own place and at all labelled examples that it precedes.
    """
    total, counted = np.zeros(len(labels)), 0
    for label, p in zip(labels.T, probabilities.T, strict=True):
        own, precisions, taken = _precisions(label, p)
        if not own.size:
            continue
        counted += 1
        # Of the labelled examples at most as probable: the sums of 1 / taken and of precision / taken.
        before = np.searchsorted(own, p, side="right")
        rise, fall = (np.append(0.0, np.cumsum(each))[before] for each in (1 / taken, precisions / taken))
        first = np.clip(np.searchsorted(own, p), 0, own.size - 1)
        change = label * (precisions[first] - precisions.mean() + rise) - fall
        total += change / own.size
    return total / max(counted, 1)


def interval(
    labels: NDArray[np.integer], probabilities: NDArray[np.floating], level: float
) -> tuple[float, float]:
    """The confidence interval of the macro average precision over the draw of the examples, 0..1.

    Its variance is that of the infinitesimal jackknife (L. Jaeckel, 1972; B. Efron, The Jackknife, the
    Bootstrap and Other Resampling Plans, 1982), which the bootstrap approaches with the number of its samples.
    On the scale of the logit, so that it stays within 0..1. After a perfect order, which shows no variance, the
    lower end is that with one more example, which has every label and comes last.
    """
    value, examples = macro(per_class(labels, probabilities)), len(labels)
    variance = float((influence(labels, probabilities) ** 2).sum()) * examples / max(examples - 1, 1)
    if value == 1 and (labels.max(axis=0) > labels.min(axis=0)).any():
        labels = np.concatenate([labels, labels.max(axis=0, keepdims=True)])
        last = np.full((1, labels.shape[1]), -1.0)
        return interval(labels, np.concatenate([probabilities, last]), level)[0], value
    if not variance:
        return value, value
    half = float(scipy.special.ndtri((1 + level) / 2)) * np.sqrt(variance) / (value * (1 - value))
    center = float(scipy.special.logit(value))
    return float(scipy.special.expit(center - half)), float(scipy.special.expit(center + half))


def _precisions(
    labels: NDArray[np.integer], probabilities: NDArray[np.floating]
) -> tuple[NDArray[np.floating], NDArray[np.float64], NDArray[np.int64]]:
    """The probabilities of the labelled examples, ascending; at each, precision and examples from it on."""
    is_own = labels != 0
    own, others = np.sort(probabilities[is_own]), np.sort(probabilities[~is_own])
    hits = own.size - np.searchsorted(own, own)
    taken = hits + others.size - np.searchsorted(others, own)
    return own, hits / taken, taken
