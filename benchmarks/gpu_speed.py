"""The speed of one model on a GPU, null without: `python -m benchmarks.gpu_speed keras_resnet_v1_50 256`.

The images are random, as many as a batch has, in the memory of the machine, and distorted on the GPU. An update
takes three times the arithmetic of its forward pass; a multiplication and an addition are two operations, and
only those of convolutions and matrices are counted. PEAK_TFLOPS in the environment says what the GPU's data
sheet promises for bfloat16, where it is not among PEAKS.
"""

import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping

import keras
import tensorflow as tf

from benchmarks.timing import ROOT, RUNS
from perennial.base import config
from perennial.base.config.networks import NETWORKS
from perennial.base.config.training import TrainConfig
from perennial.data.preprocessing import ImageSpec, keys
from perennial.model.models import MODELS
from perennial.model.training import distributed
from perennial.model.training.input import Batch
from perennial.model.training.train_step import Trainer
from perennial.model.training.triggers import Length

SIDES = {
    "mnist_cnn": (28, None),
    "cifar10_tutorial": (32, 24),
    "keras_resnet_v1_50": (256, 224),
}  # of images, of input
OPTIMIZERS = {"mnist_cnn": "adam", "cifar10_tutorial": "sgd", "keras_resnet_v1_50": "momentum"}
CLASSES = {"keras_resnet_v1_50": 1000}
# Bfloat16 without sparsity, from NVIDIA's data sheets; the longer names first.
PEAKS = {"H200": 989, "H100": 989, "A100": 312, "L40S": 362, "L4": 121}
CALL_STEPS = 50
MATRIX, PRODUCTS = 8192, 50  # what a GPU does in practice: products of such matrices, one after the other


def measure(model: str, batch_size: int) -> None:
    """Prints what was found, the medians of RUNS calls."""
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        print("null")
        return
    name = tf.config.experimental.get_device_details(gpus[0])["device_name"]
    made, iterator = _trainer(model, batch_size)
    made.run(iterator, 0, CALL_STEPS)  # compiles
    seconds = _median_seconds(lambda: made.run(iterator, CALL_STEPS, CALL_STEPS))
    flops = 3 * _forward_flops(made.model) * batch_size * CALL_STEPS / seconds
    product, peak = _matmul_flops(), _peak(name)
    found = {
        "device": name,
        "batch_size": batch_size,
        "examples_per_second": batch_size * CALL_STEPS / seconds,
        "tflops": flops / 1e12,
        "matmul_tflops": product / 1e12,
        "of_matmul": flops / product,
        "mfu": flops / peak if peak else None,
    }
    print(json.dumps(found))


def _trainer(model: str, batch_size: int) -> tuple[Trainer, tf.distribute.DistributedIterator]:
    """A trainer of this model, and its batches."""
    averages = {"decay": 0.9999 if model == "cifar10_tutorial" else None, "dynamic": True}
    values = {"optimizer": OPTIMIZERS[model], "averages": averages, "precision": "bfloat16", "xla": True}
    chosen = {**values, "batch_size": batch_size, "deterministic": False, "devices": "auto"}
    train = configured(chosen)
    return trainer(model, train, distributed.strategy(train, None), *SIDES[model], CLASSES.get(model, 10))


def configured(values: Mapping[str, object]) -> TrainConfig:
    """The section train of this project's parameters with other values."""
    train = config.load(ROOT / "params.yaml").train
    return TrainConfig.model_validate({**train.model_dump(by_alias=True), **values})


def trainer(
    model: str,
    train: TrainConfig,
    strategy: tf.distribute.Strategy,
    side: int,
    size: int | None,
    classes: int,
) -> tuple[Trainer, tf.distribute.DistributedIterator]:
    """A trainer of this model on images of `side` pixels, of which the network gets `size`; its batches."""
    architecture, options = MODELS[model], config.load(ROOT / "params.yaml").model
    options = options.model_copy(update={"name": model})
    pixels = ImageSpec(
        preprocessing=NETWORKS[model].preprocessing,
        height=side,
        width=side,
        channels=1 if model == "mnist_cnn" else 3,
        image_size=size,
        grayscale=False,
        fast=train.xla,
    )

    def build() -> keras.Model:
        keras.config.set_dtype_policy("mixed_bfloat16" if train.precision == "bfloat16" else "float32")
        return architecture.build(pixels.model_shape, classes, options)

    made = Trainer(
        architecture,
        build,
        pixels,
        train,
        strategy,
        length=Length(steps=10**6, steps_per_epoch=10**6, limit="steps"),
        examples=train.batch_size,
        class_weights=None,
    )
    batches = _batches(pixels, train.batch_size, classes)
    return made, iter(strategy.experimental_distribute_dataset(batches))


def _batches(pixels: ImageSpec, batch_size: int, classes: int) -> tf.data.Dataset:
    """One batch of random images, again and again."""
    with tf.device("CPU"):
        numbers = tf.range(batch_size)
        shape = (batch_size, *(length or 0 for length in pixels.raw_shape))
        images = tf.cast(tf.random.stateless_uniform(shape, (0, 0), 0, 256, tf.int32), tf.uint8)
        batch = Batch(images, tf.cast(numbers % classes, tf.int64), keys(0, 0, numbers), numbers)
    return tf.data.Dataset.from_tensors(batch).repeat().prefetch(2)


def _forward_flops(model: keras.Model) -> int:
    """Operations of an example's forward pass: every number of a kernel, at each place of the output."""
    return sum(
        2 * math.prod(layer.kernel.shape) * math.prod(layer.output.shape[1:-1])
        for layer in model.layers
        if hasattr(layer, "kernel")
    )


def _matmul_flops() -> float:
    """Operations a second in products of large bfloat16 matrices, and nothing besides the products.

    The matrix is scaled once, so that the products neither grow nor vanish: a GPU multiplies zeros faster.
    """
    matrix = tf.random.stateless_normal((MATRIX, MATRIX), (0, 0), stddev=MATRIX**-0.5, dtype=tf.bfloat16)

    @tf.function
    def products() -> tf.Tensor:
        product = matrix
        for _ in tf.range(PRODUCTS):
            product = tf.matmul(matrix, product)
        return tf.reduce_sum(product)

    products()
    return 2 * MATRIX**3 * PRODUCTS / _median_seconds(lambda: products().numpy())


def _median_seconds(call: Callable[[], object]) -> float:
    seconds = []
    for _ in range(RUNS):
        started = time.monotonic()
        call()
        seconds.append(time.monotonic() - started)
    return statistics.median(seconds)


def _peak(name: str) -> float | None:
    """What the data sheet promises, operations a second."""
    known = [peak for chip, peak in PEAKS.items() if chip in name]
    promised = os.environ.get("PEAK_TFLOPS", known[0] if known else None)
    return float(promised) * 1e12 if promised else None


if __name__ == "__main__":
    measure(sys.argv[1], int(sys.argv[2]))
