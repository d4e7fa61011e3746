"""How often answers break their stated error, and how many there are, on predictions of a real model.

    perennial evaluate --split validation --predictions validation.npz
    perennial evaluate --split test --predictions test.npz
    python -m benchmarks.abstention validation.npz test.npz

Both splits, scored without calibration, are put together. From each of 300 random draws of 500, 2,000 and 5,000
examples, a temperature and a threshold are fitted with the code of the stage evaluate; the other examples tell
the error of the answers. It counts as broken if it is above the stated one there, which adds the chance of
those examples to the promised 5 %.
"""

import sys
from pathlib import Path

import numpy as np
from scipy.special import softmax

from perennial.model.evaluation import confidence, predictions

DRAWS, SIZES, ERRORS = 300, (500, 2000, 5000), (0.01, 0.02, 0.05, 0.1)
TINY = 1e-38  # in place of a probability that float32 rounds to 0


def measure(files: list[Path]) -> None:
    """Print a row for each number of examples and stated error."""
    scored = [predictions.read(file) for file in files]
    labels = np.concatenate([each.labels for each in scored])
    logits = np.log(np.maximum(np.concatenate([each.probabilities for each in scored]), TINY))
    random = np.random.default_rng(0)
    sys.stdout.write("fitted on  max_error   broken  unknown only  answered\n")
    for size in SIZES:
        draws = [random.permutation(len(labels)) for _ in range(DRAWS)]
        fitted = [confidence.fit_temperature(logits[draw[:size]], labels[draw[:size]]) for draw in draws]
        for most in ERRORS:
            if size < confidence.needed(most):
                continue
            broken, none, coverage = 0, 0, list[float]()
            for draw, temperature in zip(draws, fitted, strict=True):
                probabilities = softmax(logits[draw] / temperature, axis=1)
                sure, correct = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels[draw]
                threshold = confidence.fit_threshold(sure[:size], correct[:size], most)
                rest = confidence.answered(sure[size:], correct[size:], threshold)
                none += threshold is None
                coverage.append(rest.coverage)
                broken += rest.error is not None and rest.error > most
            shares = f"{broken / DRAWS:8.1%} {none / DRAWS:13.1%} {np.mean(coverage):9.1%}"
            sys.stdout.write(f"{size:9}  {most:9g} {shares}\n")


if __name__ == "__main__":
    measure([Path(name) for name in sys.argv[1:]])
