"""TensorBoard: curves, histograms of all tensors, pictures of the model input, and the profiler.

Histograms and pictures are computed between steps on a copy of the model, so they do not affect the training.
"""

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from perennial.base import files
from perennial.base.config.training import TrainConfig
from perennial.data.preprocessing import ImageSpec
from perennial.model.models.layers import randomness
from perennial.model.training import warm_start
from perennial.model.training.input import Batch, model_input
from perennial.model.training.losses import Objective
from perennial.model.training.train_step import Trainer
from perennial.model.training.triggers import Triggers

PREFIX = "events.out.tfevents."  # TensorBoard reads only files with this prefix, in the order of their names
BUCKETS = 30  # per histogram, as in TensorBoard's own
EXAMPLES = 32  # per histogram: the activations of all layers are in memory at once
PICTURES = 8
Metadata = tf.compat.v1.SummaryMetadata
Event: TypeAlias = tf.compat.v1.Event
Value: TypeAlias = tf.compat.v1.Summary.Value
VERSION = Event(file_version="brain.Event:2")  # first in every file


class EventWriter:
    """Writes events of a training to a folder. TensorFlow's own writers take half a millisecond per value."""

    def __init__(self, folder: Path, *, purge_step: int) -> None:
        """Start a new event file; TensorBoard drops the points of older ones from `purge_step` on, if not 0."""
        files.make_folder(folder)
        older = list(folder.glob(f"{PREFIX}*"))
        number = 1 + max((int(file.suffix[1:]) for file in older), default=0)  # not by time: clocks can go back
        if purge_step == 0:
            for file in older:
                file.unlink()
        self._writer = tf.io.TFRecordWriter(str(folder / f"{PREFIX}{number:010d}"))
        start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
        self._write(VERSION, Event(wall_time=time.time(), step=purge_step, session_log=start))

    def add_scalars(self, step: int, group: str, scalars: Mapping[str, float]) -> None:
        """Write a point of the curve `group/name` for each scalar."""
        self.add(step, (Value(tag=f"{group}/{name}", simple_value=each) for name, each in scalars.items()))

    def add(self, step: int, values: Iterable[Value]) -> None:
        """Write the values of a step; when this returns they are in the file."""
        self._write(_event(step, values))

    def _write(self, *events: Event) -> None:
        for event in events:
            self._writer.write(event.SerializeToString())
        self._writer.flush()


def _event(step: int, values: Iterable[Value]) -> Event:
    return Event(wall_time=time.time(), step=step, summary=tf.compat.v1.Summary(value=values))


def histogram(name: str, values: tf.Tensor | NDArray[np.floating]) -> Value:
    """A histogram of the finite values."""
    found = tf.cast(values, tf.float32).numpy()
    finite = found[np.isfinite(found)].astype(np.float64)
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    margin = max(abs(low), 1.0) / 2 if low == high else 0.0
    counts, edges = np.histogram(finite, BUCKETS, range=(low - margin, high + margin))
    return _value(name, "histograms", np.stack([edges[:-1], edges[1:], counts], axis=1))


def pictures(name: str, images: tf.Tensor) -> Value:
    """The images float32 [N, height, width, 1 or 3], with values in 0..1."""
    _, height, width, _ = images.shape
    encoded = tf.image.encode_png(tf.image.convert_image_dtype(images, tf.uint8, saturate=True)).numpy()
    return _value(name, "images", np.array([str(width).encode(), str(height).encode(), *encoded], object))


def _value(name: str, plugin: str, values: NDArray[np.float64] | NDArray[np.object_]) -> Value:
    metadata = Metadata(plugin_data=Metadata.PluginData(plugin_name=plugin))
    return Value(tag=name, tensor=tf.make_tensor_proto(values), metadata=metadata)


class Summaries:
    """Histograms of weights, gradients and activations, and pictures of the model input, when they are due."""

    def __init__(
        self,
        triggers: Triggers,
        config: TrainConfig,
        pixels: ImageSpec,
        batch_after: Callable[[int], Batch],
        copied: Callable[[], tuple[keras.Model, Objective]],
        logs: Path,
    ) -> None:
        """`batch_after(step)` returns the batch of the next step; `copied` returns a copy of the model."""
        self._triggers, self._config, self._pixels, self._logs = triggers, config, pixels, logs
        self._batch_after, self._copied = batch_after, copied
        self._written: int | None = None  # step
        self._copy: _Copy | None = None

    def resume(self, step: int) -> None:
        """Drop the summaries from `step` on; the summary of `step` is written again."""
        for file in self._logs.glob(f"*/{PREFIX}*"):
            if file.parent.name in {"layers", "images"} and int(file.suffix[1:]) >= step:
                file.unlink()

    def due(self, step: int) -> bool:
        """Whether summaries that are not yet written follow after `step` steps."""
        triggered = self._triggers.histograms(step) or self._triggers.images(step)
        return triggered and step != self._written

    def write(self, step: int, trainer: Trainer) -> None:
        """Write the summaries that are due after `step` steps."""
        if self._triggers.images(step):
            images = model_input(self._batch_after(step), self._pixels, self._config.augmentation)[:PICTURES]
            self._write("images", step, [pictures("model_input", _scaled_to_0_1(images))])
        if self._triggers.histograms(step):
            with tf.device(trainer.strategy.extended.worker_devices[0]):
                if self._copy is None:
                    batch = Batch(*(part[:EXAMPLES] for part in self._batch_after(0)))
                    self._copy = _Copy(*self._copied(), batch, self._pixels, self._config)
                self._write("layers", step, self._copy.summarize(trainer, step))
        self._written = step

    def _write(self, name: str, step: int, values: Iterable[Value]) -> None:
        """Write one file per step: when steps repeat, readers drop scalars, but not tensors."""
        files.make_folder(self._logs / name)
        with tf.io.TFRecordWriter(str(self._logs / name / f"{PREFIX}{step:010d}")) as writer:
            for event in (VERSION, _event(step, values)):
                writer.write(event.SerializeToString())


class _Copy:
    """A copy of the model in training, and a fixed batch."""

    def __init__(
        self, model: keras.Model, objective: Objective, batch: Batch, pixels: ImageSpec, config: TrainConfig
    ) -> None:
        self._model, self._objective, self._batch, self._config = model, objective, batch, config
        self._images = model_input(batch, pixels, config.augmentation)
        inner = {
            layer.name: layer.output
            for layer in model.layers
            if isinstance(layer.output, keras.KerasTensor) and not isinstance(layer, keras.layers.InputLayer)
        }
        self._with_layers = keras.Model(model.inputs, {"layers": inner, "model": model.output})

    def summarize(self, trainer: Trainer, step: int) -> Iterator[Value]:
        """Histograms of all tensors of the training model after `step` steps."""
        phase = trainer.phase(step)
        warm_start.set_trainable(self._model, phase.trainable)
        for own, trained in zip(self._model.weights, trainer.model.weights, strict=True):
            own.assign(trained.value)
            yield histogram(f"weights/{own.path}", own.value)
        scale = float(phase.optimizer.scale_loss(tf.constant(1.0)))  # else small float16 gradients are lost
        seed = tf.bitcast(tf.constant([self._config.seed, 0], tf.uint32), tf.int32)
        with tf.GradientTape() as tape:
            with randomness(seed, self._batch.positions, self._config.batch_size):
                outputs = self._with_layers(self._images, training=True)
            losses = self._objective.losses(
                outputs["model"], self._batch.labels, len(self._images), answers=self._batch.answers
            )
            scaled = losses.total * scale
        weights = self._model.trainable_variables
        for weight, gradient in zip(weights, tape.gradient(scaled, weights), strict=True):
            yield histogram(f"gradients/{weight.path}", tf.cast(gradient, tf.float32) / scale)
        for name, activations in outputs["layers"].items():
            yield histogram(f"activations/{name}", activations)
            yield Value(tag=f"sparsity/{name}", simple_value=float(tf.math.zero_fraction(activations)))


def _scaled_to_0_1(images: tf.Tensor) -> tf.Tensor:
    """Rescale each image so that its darkest value is 0 and its brightest 1."""
    low = tf.reduce_min(images, axis=[1, 2, 3], keepdims=True)
    high = tf.reduce_max(images, axis=[1, 2, 3], keepdims=True)
    return tf.math.divide_no_nan(images - low, high - low)


class Profile:
    """Profiles the configured steps with TensorFlow's profiler, one step per call.

    It needs a separate folder: the profiler writes an event file, and TensorBoard may then read no other one.
    """

    def __init__(self, profiled: range, logs: Path) -> None:
        self._profiled, self._logs, self._running = profiled, logs, False

    def resume(self, step: int) -> None:
        """Remove a profile of steps that come after `step`."""
        if step < self._profiled.stop:
            shutil.rmtree(self._logs, ignore_errors=True)

    @contextmanager
    def recording(self, step: int) -> Iterator[None]:
        """Record the step after `step` steps, if it is to be profiled."""
        if step not in self._profiled:
            yield
            return
        if not self._running:
            tf.profiler.experimental.start(str(self._logs))
            self._running = True
        with tf.profiler.experimental.Trace("step", step_num=step + 1, _r=1):  # `_r` marks a step
            yield
        if step + 1 == self._profiled.stop:
            self.stop()

    def stop(self) -> None:
        """Write the profile, if one is being recorded."""
        if self._running:
            self._running = False
            tf.profiler.experimental.stop()
