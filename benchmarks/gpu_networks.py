"""Which networks train deterministically on a GPU: `python -m benchmarks.gpu_networks SECONDS`.

Each trains two steps on a few small images with TensorFlow's deterministic operations, twice from the same
seed. Some operations have none for a GPU, and raise an error. Prints a JSON object with what came of each.
"""

import json
import sys
import time

import keras
import numpy as np
import tensorflow as tf

from benchmarks.gpu_speed import configured, trainer
from perennial.model.training import distributed

# One of each family, with what its preprocessing and distortions do; image sides.
NETWORKS = {
    "mobilenet_v2": 64, "efficientnet_v2_b0": 64, "keras_resnet_v1_50": 64, "fast_cnn": 32, "cifarnet": 32,
    "mobilenet_v3_small": 64, "inception_v1": 64, "alexnet_v2": 96, "nasnet_cifar": 32, "inception_v3": 96,
}  # fmt: skip
DISTORTED = {
    "augmentation": {"alternating_flip": False, "erasing": 0.5, "mixup": 0.2, "cutmix": 1.0},
}
STEPS = 2


def main(seconds: str) -> None:
    """Trains each network until the time is used up."""
    end = time.monotonic() + float(seconds)
    tf.config.experimental.enable_op_determinism()
    plain = configured({"batch_size": 8, "devices": "auto", "deterministic": True})
    distorted = plain.model_copy(
        update={"augmentation": configured({**DISTORTED, "batch_size": 8}).augmentation}
    )
    strategy = distributed.strategy(plain, None)
    cases = {"fast_cnn, distorted": ("fast_cnn", 32, distorted)}
    cases |= {name: (name, side, plain) for name, side in NETWORKS.items()}
    found = {}
    for title, (name, side, train) in cases.items():
        if time.monotonic() > end:
            found[title] = "not tried: no time left"
            continue
        try:
            sums = []
            for _ in range(2):
                keras.utils.set_random_seed(0)
                made, iterator = trainer(name, train, strategy, side, side, 5)
                made.run(iterator, 0, STEPS)
                sums.append([np.asarray(weight).tobytes() for weight in made.model.weights])
            found[title] = "equal" if sums[0] == sums[1] else "not equal"
        except Exception as error:  # noqa: BLE001 - what TensorFlow raises is the result
            found[title] = f"{type(error).__name__}: {str(error)[-400:]}"
        print(f"{title}: {found[title]}", file=sys.stderr, flush=True)
        keras.backend.clear_session()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
