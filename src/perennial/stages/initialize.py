"""Initialize stage: copy the weights that the training starts from."""

import logging

from perennial.base.config import Config
from perennial.base.stage_state import outputs
from perennial.data.sources import published_weights, weights

log = logging.getLogger(__name__)


def initialize(config: Config) -> None:
    """Copy the weights that pins/weights.json pins into a folder.

    It stays empty if training starts from random weights.

    Published weights are fetched first, into the work folder.
    """
    with outputs.new_folder(config.paths.initial_weights, "initialize") as folder:
        fetched = published_weights.fetch(config) if weights.by_name(config) else None
        weights.copy(config, folder, fetched)
    if config.model.weights is None and config.train.warm_start.path is None:
        log.info("the training starts from random weights")
