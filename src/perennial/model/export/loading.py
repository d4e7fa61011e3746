"""Load a SavedModel, and tell its faults from those of the machine."""

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf

from perennial.base import files
from perennial.base.errors import DataError

MACHINE_ERRORS = (
    MemoryError,
    tf.errors.AbortedError,
    tf.errors.InternalError,
    tf.errors.ResourceExhaustedError,
    tf.errors.UnavailableError,
    tf.errors.UnknownError,
)
NOT_THERE = (None, errno.ENOENT, errno.ENOTDIR, errno.EISDIR)  # None: TensorFlow's own, for a missing file
NO_GRADIENTS = "Importing a function (%s) with ops with unsaved custom gradients."  # exports are not trained


def load(folder: Path) -> Any:
    """Load the SavedModel of a folder with any name. Errors of the machine pass through."""
    try:
        with files.plainly_named(folder) as plain, suppressed("absl", NO_GRADIENTS):
            return tf.saved_model.load(str(plain))
    except Exception as error:
        if is_of_machine(error):
            raise
        raise DataError(f"{folder} holds no model that TensorFlow {tf.__version__} loads: {error}") from error


def is_of_machine(error: Exception) -> bool:
    """Whether an error is of memory, disk or devices and not of a model, which may load the next time."""
    if isinstance(error, OSError):
        return error.errno not in NOT_THERE
    return isinstance(error, MACHINE_ERRORS)


@contextmanager
def suppressed(logger: str, prefix: str) -> Iterator[None]:
    """Drop a library's log messages whose template starts with `prefix`."""

    def other(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(prefix)

    logging.getLogger(logger).addFilter(other)
    try:
        yield
    finally:
        logging.getLogger(logger).removeFilter(other)
