"""Whether a model is right as often as it is sure: the reliability table and the one number of it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binned_statistic


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """Examples by the probability of their predicted class, in intervals of equal width: arrays [bins].

    An interval holds its lower end; the last one both. Where it has no examples the means are NaN.
    """

    examples: NDArray[np.int64]
    confidence: NDArray[np.float64]  # mean of that probability, 0..1
    accuracy: NDArray[np.float64]  # share that is right, 0..1

    @property
    def ece(self) -> float:
        """The expected calibration error: the mean distance of the two, weighted by examples, 0..1.

        Source: Guo et al., On Calibration of Modern Neural Networks, 2017.
        """
        distances = np.abs(self.accuracy - self.confidence)
        return float(np.nansum(distances * self.examples) / self.examples.sum())


def reliability(probabilities: NDArray[np.float32], labels: NDArray[np.int64], *, bins: int) -> Reliability:
    """The reliability of probabilities [N, classes], of which the highest is what the model says."""
    confidence = probabilities.max(axis=1).astype(np.float64)
    right = (probabilities.argmax(axis=1) == labels).astype(np.float64)
    # Rounding leaves some a little above 1.
    means, _, numbers = binned_statistic(
        np.minimum(confidence, 1), [confidence, right], statistic="mean", bins=bins, range=(0, 1)
    )
    examples = np.bincount(numbers - 1, minlength=bins)
    return Reliability(examples=examples, confidence=means[0], accuracy=means[1])
