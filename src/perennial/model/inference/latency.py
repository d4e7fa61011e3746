"""Time an export on one image; a separate program, because its caller does not import TensorFlow."""

import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from perennial.base.devices import devices
from perennial.base.errors import DataError
from perennial.model.export import loading

WARM_UP, TIMED = 10, 100  # calls
SIDE = 256  # of an image for a model that takes any size


def main(job: dict[str, Any]) -> float:
    """The median time of the default signature on one image of random pixels, on the CPU, in milliseconds."""
    devices.configure("cpu", [0])
    loaded = loading.load(Path(job["export"]))
    try:
        signature = loaded.signatures[tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY]
        shape = [side or SIDE for side in signature.structured_input_signature[1]["image"].shape[1:]]
        random = np.random.default_rng(0)
        image = tf.constant(random.integers(0, 256, (1, *shape), np.uint8))
        seconds = []
        for _ in range(WARM_UP + TIMED):
            started = time.perf_counter()
            signature(image=image)["probabilities"].numpy()
            seconds.append(time.perf_counter() - started)
    except Exception as error:
        if loading.is_of_machine(error):
            raise
        raise DataError(f"the time of {job['export']} cannot be measured: {error}") from error
    return 1000 * statistics.median(seconds[WARM_UP:])
