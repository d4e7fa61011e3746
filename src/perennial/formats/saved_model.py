"""SavedModels of exports as programs load them, and what TensorFlow warns of that is meant to be so."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf

from perennial import files

NO_GRADIENTS = "Importing a function (%s) with ops with unsaved custom gradients."  # exports are not trained


def loaded(folder: Path) -> Any:
    """The SavedModel in a folder of any name; raises what TensorFlow does."""
    with files.plainly_named(folder) as plain, unheard("absl", NO_GRADIENTS):
        return tf.saved_model.load(str(plain))


@contextmanager
def unheard(logger: str, beginning: str) -> Iterator[None]:
    """Keeps the messages with this beginning, before values are put in, out of a library's log."""

    def other(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(beginning)

    logging.getLogger(logger).addFilter(other)
    try:
        yield
    finally:
        logging.getLogger(logger).removeFilter(other)
