"""How fast a GPU trains in bfloat16 with XLA, and what share of its arithmetic that is.

Each model is a process of its own, benchmarks/gpu_speed.py.
"""

import json
import sys
from typing import Any

from benchmarks import results
from benchmarks.timing import ROOT, run

BATCH_SIZES = {"mnist_cnn": 4096, "cifar10_tutorial": 4096, "keras_resnet_v1_50": 256}
COLUMNS = ("batch", "examples/s", "TFLOP/s", "MFU", "of matmul")


def measure() -> None:
    """Measures every model and writes the results; says so where there is no GPU."""
    found: dict[str, dict[str, Any] | None] = {}
    for model, batch_size in BATCH_SIZES.items():
        printed = run((sys.executable, "-m", "benchmarks.gpu_speed", model, str(batch_size)), ROOT)
        found[model] = json.loads(printed.splitlines()[-1])
        if found[model] is None:
            print("\ngpu: TensorFlow sees no GPU here; nothing is measured")
            return
    print("\nbfloat16, XLA\n" + " " * 20 + "".join(f"{column:>13}" for column in COLUMNS))
    for model, one in found.items():
        if one:
            mfu = "" if one["mfu"] is None else f"{one['mfu']:.1%}"
            speeds = f"{one['examples_per_second']:>13,.0f}{one['tflops']:>13.1f}"
            print(f"  {model:<18}{one['batch_size']:>13}{speeds}{mfu:>13}{one['of_matmul']:>13.1%}")
    results.write("gpu", models=found)
