"""Import TensorFlow with the settings that it reads at import, and without its start-up messages."""

import gc
import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import cast

from perennial.base import files

LOG = "tensorflow.log"
# Keras imports these if they are installed, for wrappers and plots that nothing here uses: a third of the time.
UNUSED_BY_KERAS = ("matplotlib", "pandas", "scipy", "sklearn")


def import_with_tensorflow(name: str, work: Path, *, needed: bool = True) -> ModuleType:
    """Import a module that may need TensorFlow; messages of native libraries go to `<work>/tensorflow.log`."""
    set_variables(work)
    with files.stderr_into(work / LOG):
        if needed:
            load()
        return _imported(name, work)


def set_variables(work: Path) -> None:
    """Set the variables that TensorFlow and Keras read when they are imported; makes the folder `work`."""
    # A process would take all memory of each GPU at its start, also `predict` beside a training.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    # NumPy's matrices are small here, so its threads would only take cores from other processes.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ["KERAS_BACKEND"] = "tensorflow"
    # Otherwise the user's ~/.keras/keras.json would change results.
    os.environ["KERAS_HOME"] = str(work.resolve() / "keras")
    os.environ["MPLCONFIGDIR"] = str(work.resolve() / "matplotlib")
    work.mkdir(parents=True, exist_ok=True)


def load() -> None:
    """Import TensorFlow and Keras without what only optional parts of Keras use, in a process of ours."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    hidden = [name for name in UNUSED_BY_KERAS if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = cast("ModuleType", None)  # an import of it fails
    collects = gc.isenabled()
    gc.disable()  # a sixth of the time, and what is imported stays
    try:
        importlib.import_module("tensorflow")
        importlib.import_module("keras")
    finally:
        for name in hidden:
            del sys.modules[name]
        if collects:
            gc.freeze()
            gc.enable()


def import_quietly(name: str, log: Path) -> ModuleType:
    """Import a module that may need TensorFlow, with the messages of its start-up in a file."""
    with files.stderr_into(log):
        return _imported(name)


def _imported(name: str, work: Path | None = None) -> ModuleType:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    module = importlib.import_module(name)
    if work is not None and (prepare := getattr(module, "before_devices", None)):
        prepare(work)
    if "tensorflow" in sys.modules:
        sys.modules["tensorflow"].config.list_physical_devices()
    return module
