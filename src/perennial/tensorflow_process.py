"""How a process gets TensorFlow: with the settings it reads at import, without its start-up messages."""

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

LOG = "tensorflow.log"


def import_module(name: str, work: Path) -> ModuleType:
    """A module of a stage, which imports TensorFlow where it needs it.

    What native libraries say at start-up (no GPU here, instructions in use) goes to `<work>/tensorflow.log`:
    no setting of theirs silences it, and it reads like an error on a machine without a GPU.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # NumPy's matrices are small here: threads of its own would only take the cores from other processes.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ["KERAS_BACKEND"] = "tensorflow"
    # Otherwise a person's ~/.keras/keras.json would change what a run computes.
    os.environ["KERAS_HOME"] = str(work.resolve() / "keras")
    os.environ["MPLCONFIGDIR"] = str(work.resolve() / "matplotlib")
    work.mkdir(parents=True, exist_ok=True)
    with _stderr_into(work / LOG):
        module = importlib.import_module(name)
        if "tensorflow" in sys.modules:
            sys.modules["tensorflow"].config.list_physical_devices()
    return module


@contextmanager
def _stderr_into(file: Path) -> Iterator[None]:
    """Sends file descriptor 2, which native code writes to, into a file while the block runs."""
    sys.stderr.flush()
    kept = os.dup(2)
    with file.open("wb") as stream:
        os.dup2(stream.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
