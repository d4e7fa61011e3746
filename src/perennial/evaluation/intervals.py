"""How far scores would move with other examples of the same kind."""

import numpy as np
from scipy.stats import bootstrap

from perennial.config.release import EvaluateConfig
from perennial.evaluation.scores import Scores

DRAWN = 4_000_000  # examples held in memory at once
Interval = dict[str, float]


def intervals(scores: Scores, config: EvaluateConfig) -> dict[str, Interval]:
    """For accuracy, loss and recall at 5 the ends of the bootstrap's percentile interval; equal each time.

    Empty where no resamples are asked for, or there is but one example, which tells nothing of others.
    """
    if not config.bootstrap_resamples or scores.examples < 2:
        return {}
    values = {
        "accuracy": scores.predicted == scores.labels,
        "loss": scores.losses,
        "recall_at_5": scores.within_top,
    }
    found = {}
    for name, each in values.items():
        low, high = bootstrap(
            (each.astype(np.float64),),
            np.mean,
            n_resamples=config.bootstrap_resamples,
            batch=max(1, DRAWN // scores.examples),
            confidence_level=config.confidence_level,
            method="percentile",  # others give no interval where all examples are right
            rng=np.random.default_rng(config.seed),
        ).confidence_interval
        found[name] = {"low": float(low), "high": float(high)}
    return found
