"""Measure kept images with an export, on the CPU: a GPU may be in use by a training.

A separate program, because its caller does not import TensorFlow.
"""

from pathlib import Path
from typing import Any

import numpy as np

from perennial.base.devices import devices
from perennial.base.errors import DataError
from perennial.data.images import Refused
from perennial.release.publishing import load

BATCH = 16  # images


def main(job: dict[str, Any]) -> list[str]:
    """Measure the image files job["images"]; returns those that job["export"] does not take.

    The others' features [N, 256] and brightness [N] are written to job["to"], in order.
    """
    devices.configure("cpu", [0])
    classifier = load.load(job["export"])
    if classifier.reference is None:
        raise DataError(f"{job['export']} has no reference for drift")
    names, refused, found = list(job["images"]), list[str](), list[Any]()
    for start in range(0, len(names), BATCH):
        batch = names[start : start + BATCH]
        try:
            found.append(classifier.statistics([Path(name).read_bytes() for name in batch]))
        except Refused:  # one of them: the others are measured alone
            for name in batch:
                try:
                    found.append(classifier.statistics([Path(name).read_bytes()]))
                except Refused:
                    refused.append(name)
    features, brightness = (np.concatenate(part) for part in zip(*found, strict=True)) if found else ((), ())
    np.savez(job["to"], features=features, brightness=brightness)
    return refused
