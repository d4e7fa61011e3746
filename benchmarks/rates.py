"""One rate a process: `python -m benchmarks.rates deliver mnist_cnn memory` in a project with records."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import keras
import tensorflow as tf

from benchmarks import projects
from benchmarks.input import CASES, SECONDS
from benchmarks.photographs import CASES as PHOTOGRAPHS
from benchmarks.photographs import SECONDS as SECONDS_EACH
from perennial.base import config
from perennial.base.config.data import ModelConfig
from perennial.data.preprocessing import ImageSpec, keys
from perennial.data.records import manifest, pipeline
from perennial.model import models
from perennial.model.models import MODELS
from perennial.model.training.input import Batch, Input


def deliver(model: str, *caches: str) -> None:
    """Prints how fast batches come out of the records of this folder's project, with images cached as named."""
    tf.config.experimental.enable_op_determinism()  # as by default in a training
    print(json.dumps({cache: _delivered(model, cache) for cache in caches}))


def _delivered(model: str, cache: str) -> dict[str, float]:
    case, records = CASES[model], projects.records(Path())
    train = config.load(Path("params.yaml")).train
    train = train.model_copy(update={"cache": cache, "batch_size": case.batch_size})
    started = time.monotonic()
    data = manifest.load(records)
    source = Input(records, data, _pixels(model), train, label_map=pipeline.LabelMap())
    batches = iter(source.batches(0, 0))

    @tf.function
    def several(steps: tf.Tensor) -> tf.Tensor:
        seen = tf.constant(0)
        for _ in tf.range(steps):
            seen += tf.shape(next(batches).labels)[0]
        return seen

    return _timed(lambda steps: int(several(tf.constant(steps))), started)


def consume(model: str) -> None:
    """Prints how fast a model is trained on one batch, without averages and penalties.

    Each step distorts the images again, as training does.
    """
    case, options, pixels = CASES[model], config.load(Path("params.yaml")).model, _pixels(model)
    started = time.monotonic()
    chosen = ModelConfig.model_validate({**options.model_dump(), "name": model})
    net = MODELS[model].build(pixels.model_shape, 10, chosen)
    optimizer = keras.optimizers.SGD()
    images = tf.random.stateless_uniform((case.batch_size, *pixels.trained_as.shape), (0, 0))
    images = tf.cast(images * 256, pixels.trained_as.dtype)
    numbers = tf.range(case.batch_size)
    labels, drawn = numbers % 10, keys(0, 0, numbers)

    @tf.function
    def several(steps: tf.Tensor) -> None:
        for step in tf.range(steps):
            inputs = pixels.training(images, drawn + step)
            with tf.GradientTape() as tape:
                logits = models.logits(net(inputs, training=True))
                loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            optimizer.apply(tape.gradient(loss, net.trainable_variables), net.trainable_variables)

    def updates(steps: int) -> int:
        several(tf.constant(steps))
        return steps * case.batch_size

    optimizer.build(net.trainable_variables)
    print(json.dumps({"model": _timed(updates, started)}))


def photographs(*cases: str) -> None:
    """Prints what an image of each case takes until it is delivered, and then before the network gets it."""
    tf.config.experimental.enable_op_determinism()
    records, train, found = projects.records(Path()), config.load(Path("params.yaml")).train, {}
    data = manifest.load(records)
    for name in cases:
        case = PHOTOGRAPHS[name]
        pixels = ImageSpec(
            preprocessing=case.preprocessing,
            height=None,
            width=None,
            channels=3,
            image_size=case.size,
            grayscale=False,
            fast=case.fast,
            resize="legacy",
        )
        if name == "evaluation":
            batches = pipeline.batches(
                records, data, "train", pixels, batch_size=32, label_map=pipeline.LabelMap()
            )
            batches = batches.repeat()
        else:
            chosen = train.model_copy(update={"batch_size": 32})
            batches = Input(records, data, pixels, chosen, label_map=pipeline.LabelMap()).batches(0, 0)
        images = iter(batches)
        for _ in range(6):
            batch = next(images)
        begun, used, count = time.monotonic(), time.process_time(), 0
        while time.monotonic() - begun < SECONDS_EACH:
            count += len(next(images)[1])
        rate, used = count / (time.monotonic() - begun), time.process_time() - used
        found[name] = {"rate": rate, "processor_seconds": used / count, "step_seconds": 0.0}
        del images, batches
        if name != "evaluation":
            found[name]["step_seconds"] = _in_step(pixels, batch)
    print(json.dumps(found))


def _in_step(pixels: ImageSpec, batch: Batch) -> float:
    """Processor seconds an image between delivery and network."""
    finish = tf.function(lambda images, keys: tf.reduce_sum(pixels.finished(images, keys)), autograph=False)
    finish(batch.images, batch.keys)
    used, times = time.process_time(), 5
    for _ in range(times):
        finish(batch.images, batch.keys).numpy()
    return (time.process_time() - used) / (times * len(batch.labels))


def _pixels(model: str) -> ImageSpec:
    case = CASES[model]
    side, channels = {"mnist": (28, 1), "cifar10": (32, 3)}[case.dataset]
    return ImageSpec(
        preprocessing=case.preprocessing,
        height=side,
        width=side,
        channels=channels,
        image_size=case.image_size,
        grayscale=False,
        fast=True,
    )


def _timed(several: Callable[[int], int], started: float) -> dict[str, float]:
    """Images a second and processor seconds an image of several steps at a time, as a training asks."""
    several(1)
    first_s = time.monotonic() - started
    several(4)  # what was ready before it was asked for
    begun, used, images = time.monotonic(), time.process_time(), 0
    while time.monotonic() - begun < SECONDS:
        images += several(5)
    rate = images / (time.monotonic() - begun)
    return {"rate": rate, "processor_seconds": (time.process_time() - used) / images, "first_s": first_s}


if __name__ == "__main__":
    programs: dict[str, Callable[..., None]] = {
        "deliver": deliver,
        "consume": consume,
        "photographs": photographs,
    }
    programs[sys.argv[1]](*sys.argv[2:])
