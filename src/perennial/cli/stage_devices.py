"""The GPUs that a stage reserves, and the import of TensorFlow for them."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from perennial.base.config import Config
from perennial.base.devices import gpus, lease
from perennial.base.devices.lease import Lease
from perennial.base.processes import process
from perennial.base.processes.tensorflow import LOG, import_with_tensorflow

log = logging.getLogger(__name__)


@contextmanager
def own_devices(checked: Config, stage: str, *, elsewhere: bool = False) -> Iterator[tuple[Config, Lease]]:
    """Reserve GPUs for a stage whose section of the parameters has `devices`.

    In the parameters of the block, device numbers count among the reserved GPUs. None are reserved for a
    stage that computes on other machines (`elsewhere`).
    """
    name = "evaluate" if stage == "watch" else stage
    one = name == "evaluate"
    section = getattr(checked, name, None)
    devices = getattr(section, "devices", None)
    if (
        elsewhere or section is None or devices is None or (stage == "watch" and devices == "auto")
    ):  # which is one CPU
        yield checked, Lease(devices="cpu:1")
        return
    with lease.leased(devices, checked.compute.gpus, key=f"{name}.devices", name=stage, one=one) as taken:
        own = section.model_copy(update={"devices": taken.devices})
        yield checked.model_copy(update={name: own}), taken


def import_with_devices(module: str, work: Path, taken: Lease, *, needed: bool = True) -> ModuleType:
    """Import a module that needs TensorFlow, or may need it; return GPUs that TensorFlow cannot use."""
    imported = import_with_tensorflow(module, work, needed=needed)
    # Importing TensorFlow was seen to swallow the exception of a signal.
    process.raise_if_signalled()
    tensorflow = sys.modules.get("tensorflow")
    if taken.gpus and tensorflow and not tensorflow.config.list_physical_devices("GPU"):
        log.warning("TensorFlow cannot use GPU %s; see %s", ", ".join(taken.gpus), work / LOG)
        if gpus.LISTED not in os.environ:  # else they are not real
            taken.release()
    return imported
