"""Initialize stage: a copy of the weights that the training starts from."""

import logging

from perennial import outputs
from perennial.config import Config
from perennial.sources import weights

log = logging.getLogger(__name__)


def initialize(config: Config) -> None:
    """Copy the weights that weights.json pins into a folder; none for a training that starts from random ones.

    Raises:
        ConfigError: `model.imagenet_weights` or `train.warm_start.path` is not what is pinned.
        DataError: one of them does not exist any more.
        PerennialError: one of them was replaced since it was pinned (a retry may succeed).
    """
    with outputs.new_folder(config.paths.initial_weights, "initialize") as folder:
        weights.copy(config, folder)
    if config.model.imagenet_weights is None and config.train.warm_start.path is None:
        log.info("the training starts from random weights")
