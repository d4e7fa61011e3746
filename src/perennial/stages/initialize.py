"""Initialize stage: copy the weights that the training starts from, and its teacher."""

import logging

from perennial.base.config import Config
from perennial.base.config.paths import FIXED
from perennial.base.stage_state import outputs
from perennial.data.sources import published_weights, weights
from perennial.release.registry import revision

log = logging.getLogger(__name__)


def initialize(config: Config) -> None:
    """Copy the weights that pins/weights.json pins into a folder, and the export of the teacher.

    It stays empty if training starts from random weights, without a teacher. Published weights are fetched
    first, into the work folder.
    """
    with outputs.new_folder(config.paths.initial_weights, "initialize") as folder:
        fetched = published_weights.fetch(config) if weights.by_name(config) else None
        weights.copy(config, folder, fetched)
        if teacher := weights.pinned_teacher(config):
            revision.fetch_output(str(teacher.commit), FIXED["export"], folder / weights.TEACHER)
            log.info("train.teacher: copied the export of %s", teacher.version)
        elif config.train.teacher:
            log.info("train.teacher: no champion yet, so this training has no teacher")
    if config.model.weights is None and config.train.warm_start.path is None:
        log.info("the training starts from random weights")
