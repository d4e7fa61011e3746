"""Make confidence mean what it says, by a temperature fitted on the validation split.

Networks are surer than they are right, the more so the longer they train. Their logits are divided by one
number, the temperature, which leaves every prediction as it is and changes only how sure it is. It is fitted on
validation examples, which neither trained the weights nor are scored.

Source: C. Guo et al., On Calibration of Modern Neural Networks, 2017.
"""

import logging

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import softmax

log = logging.getLogger(__name__)
LOWEST, HIGHEST = 0.2, 10.0  # temperatures
DIGITS = 4  # significant ones of a temperature: the order of sums on several devices must not show
BLOCK = 1 << 20  # logits in double precision at once


def fit_temperature(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> float:
    """The temperature with the lowest mean cross-entropy: logits [N, classes], labels [N].

    The cross-entropy is convex in the inverse temperature, so there is one minimum. Without a mistake it lies
    at 0, at which the model would be sure of everything: then the result is 1, which changes nothing.
    """
    mistakes = int((logits.argmax(axis=1) != labels).sum())
    if not mistakes:
        log.warning(
            "the model makes no mistake on %d validation examples, so they do not tell how sure it may be: "
            "the temperature is 1, which changes nothing; hold out more (dataset.validation_fraction)",
            len(labels),
        )  # fmt: skip
        return 1.0
    low, high = 1 / HIGHEST, 1 / LOWEST
    if _slope(logits, labels, low) >= 0:
        inverse = low
    elif _slope(logits, labels, high) <= 0:
        inverse = high
    else:
        inverse = brentq(lambda each: _slope(logits, labels, each), low, high, xtol=1e-7)
    temperature = float(f"{1 / inverse:.{DIGITS}g}")
    at_limit = ", the limit" if temperature in {LOWEST, HIGHEST} else ""
    log.info(
        "temperature %g%s, from %d validation examples with %d mistakes",
        temperature, at_limit, len(labels), mistakes,
    )  # fmt: skip
    return temperature


def _slope(logits: NDArray[np.float32], labels: NDArray[np.int64], inverse: float) -> float:
    """The derivative of the summed cross-entropy by the inverse temperature."""
    total, rows = 0.0, max(1, BLOCK // logits.shape[1])
    for start in range(0, len(labels), rows):
        block = logits[start : start + rows].astype(np.float64)
        block -= block.max(axis=1, keepdims=True)
        expected = (softmax(inverse * block, axis=1) * block).sum(axis=1)
        total += float((expected - block[np.arange(len(block)), labels[start : start + rows]]).sum())
    return total
