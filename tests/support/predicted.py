"""Predictions of a model that nobody has run."""

import numpy as np
from numpy.typing import ArrayLike

from perennial.model.evaluation.predictions import Predictions


def predictions(
    labels: ArrayLike, probabilities: ArrayLike, classes: tuple[str, ...] = ("cat", "dog"), **changes: object
) -> Predictions:
    """Predictions of these probabilities, [N, classes], on a test split."""
    values = {"split": "test", "data": "d", "split_digest": "s", "model": "m", **changes}
    return Predictions(
        labels=np.asarray(labels),
        probabilities=np.asarray(probabilities, np.float32),
        classes=classes,
        **values,
    )  # type: ignore[arg-type]
