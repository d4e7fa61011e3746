"""Import TensorFlow with the settings that it reads at import, and without its start-up messages."""

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

from perennial import files

LOG = "tensorflow.log"


def import_with_tensorflow(name: str, work: Path) -> ModuleType:
    """Import a module that may need TensorFlow.

    Native libraries' messages at start-up (no GPU, instructions in use) go to `<work>/tensorflow.log`: no
    setting silences them all, and they read like errors on a machine without a GPU.
    """
    # NumPy's matrices are small here, so its threads would only take cores from other processes.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ["KERAS_BACKEND"] = "tensorflow"
    # Otherwise the user's ~/.keras/keras.json would change results.
    os.environ["KERAS_HOME"] = str(work.resolve() / "keras")
    os.environ["MPLCONFIGDIR"] = str(work.resolve() / "matplotlib")
    work.mkdir(parents=True, exist_ok=True)
    return import_quietly(name, work / LOG)


def import_quietly(name: str, log: Path) -> ModuleType:
    """Import a module that may need TensorFlow, with the messages of its start-up in a file."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with files.stderr_into(log):
        module = importlib.import_module(name)
        if "tensorflow" in sys.modules:
            sys.modules["tensorflow"].config.list_physical_devices()
    return module
