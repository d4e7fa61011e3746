"""What is held against a form of an export, and what is not its fault."""

from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf

from perennial.errors import QualityError
from perennial.formats import FORMATS

# Of memory, disk and devices, and of no form.
OF_THE_MACHINE = (
    MemoryError,
    OSError,
    tf.errors.AbortedError,
    tf.errors.InternalError,
    tf.errors.ResourceExhaustedError,
    tf.errors.UnavailableError,
    tf.errors.UnknownError,
)
NO_MEMORY = "Failed to allocate memory"  # as ONNX Runtime says it, of whose errors none stands for that


def against(form: str, told: str) -> QualityError:
    """What is wrong with a form, and that it can be left out where it was asked for."""
    way_out = f"; {form} can be left out of export.formats" if form in FORMATS else ""
    return QualityError(f"{form} {told}{way_out}")


@contextmanager
def judging(form: str, told: str) -> Iterator[None]:
    """Holds against a form whatever it raises in the block, with the first line of that.

    Raises:
        QualityError: it raised.
    """
    try:
        yield
    except OF_THE_MACHINE:
        raise
    except Exception as error:
        if NO_MEMORY in str(error):
            raise MemoryError(NO_MEMORY) from error
        cause, *_ = [*str(error).strip().splitlines(), type(error).__name__]
        raise against(form, f"{told}: {cause}") from error
