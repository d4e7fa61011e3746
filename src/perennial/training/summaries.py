"""Looks into a training for TensorBoard: histograms of its tensors, pictures of what the model is given.

They are made between updates, on a copy of the model, so that no update changes by them.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from perennial import files
from perennial.config import Config
from perennial.models.dropout import randomness
from perennial.preprocessing import Pixels
from perennial.training import events, layers
from perennial.training.input import Batch
from perennial.training.objective import Objective
from perennial.training.trainer import Trainer

EXAMPLES = 32  # that histograms are of: the activations of all layers are in memory together
PICTURES = 8


class Summaries:
    """Writes them when they are due; costs nothing where the config asks for none."""

    def __init__(
        self,
        config: Config,
        pixels: Pixels,
        batch_after: Callable[[int], Batch],
        copied: Callable[[], tuple[keras.Model, Objective]],
        logs: Path,
    ) -> None:
        """`batch_after` gives what the update after so many others gets, `copied` a model of equal layers."""
        self._config, self._pixels, self._batch_after, self._copied = config, pixels, batch_after, copied
        self._layers = _Series(logs / "layers", config.logging.histograms_every_steps)
        self._images = _Series(logs / "images", config.logging.images_every_steps)
        self._copy: _Copy | None = None

    def resume(self, step: int) -> None:
        """Forgets what was seen after `step` updates: it will be seen again."""
        self._layers.drop_after(step)
        self._images.drop_after(step)

    def due(self, step: int) -> bool:
        """Whether something is to be written after `step` updates and has not been."""
        return self._layers.due(step) or self._images.due(step)

    def stops(self, step: int) -> list[int]:
        """The steps ahead that a call of several updates must not go beyond."""
        return [*self._layers.stops(step), *self._images.stops(step)]

    def write(self, step: int, trainer: Trainer) -> None:
        """Writes what is due after `step` updates."""
        if self._images.due(step):
            images = _model_input(self._batch_after(step), self._pixels)[:PICTURES]
            self._images.write(step, [events.pictures("model_input", _within_0_and_1(images))])
        if self._layers.due(step):
            with tf.device(trainer.strategy.extended.worker_devices[0]):
                if self._copy is None:
                    batch = Batch(*(part[:EXAMPLES] for part in self._batch_after(0)))
                    self._copy = _Copy(*self._copied(), batch, self._pixels, self._config)
                self._layers.write(step, list(self._copy.look(trainer, step)))


class _Series:
    """An event file each so many updates, written whole, so that a resumed training has each once too."""

    def __init__(self, folder: Path, every_steps: int | None) -> None:
        self._folder, self._every_steps = folder, every_steps

    def due(self, step: int) -> bool:
        return self._every_steps is not None and step % self._every_steps == 0 and not self._file(step).exists()

    def stops(self, step: int) -> list[int]:
        return [] if self._every_steps is None else [step - step % self._every_steps + self._every_steps]

    def drop_after(self, step: int) -> None:
        for file in self._folder.glob(f"{events.PREFIX}*"):
            if int(file.suffix[1:]) > step:
                file.unlink()

    def write(self, step: int, values: list[events.Value]) -> None:
        files.write_bytes(self._file(step), events.START + events.record(step, values))

    def _file(self, step: int) -> Path:
        # TensorBoard reads the files of a folder in the order of their names.
        return self._folder / f"{events.PREFIX}{step:010d}"


class _Copy:
    """A model like the one in training, its objective, and always the same examples to try it on."""

    def __init__(
        self, model: keras.Model, objective: Objective, batch: Batch, pixels: Pixels, config: Config
    ) -> None:
        self._model, self._objective, self._batch, self._config = model, objective, batch, config.train
        self._images = _model_input(batch, pixels)
        inner = {
            layer.name: layer.output
            for layer in model.layers
            if isinstance(layer.output, keras.KerasTensor) and not isinstance(layer, keras.layers.InputLayer)
        }
        self._opened = keras.Model(model.inputs, {"layers": inner, "model": model.output})

    def look(self, trainer: Trainer, step: int) -> Iterator[events.Value]:
        """Histograms of all that there is in the model in training, after `step` updates."""
        phase = trainer.phase(step)
        layers.set_trainable(self._model, phase.trainable)
        for own, trained in zip(self._model.weights, trainer.model.weights, strict=True):
            own.assign(trained.value)
            yield events.histogram(f"weights/{own.path}", _numbers(own.value))
        scale = float(phase.optimizer.scale_loss(tf.constant(1.0)))  # float16 would lose small gradients
        seed = tf.constant([self._config.seed, 0], tf.uint32)
        with tf.GradientTape() as tape:
            with randomness(tf.bitcast(seed, tf.int32), self._batch.positions, self._config.batch_size):
                outputs = self._opened(self._images, training=True)
            summed = self._objective.summed_loss(outputs["model"], self._batch.labels)
            scaled = (summed / len(self._images) + self._objective.penalty()) * scale
        weights = self._model.trainable_variables
        for weight, gradient in zip(weights, tape.gradient(scaled, weights), strict=True):
            yield events.histogram(f"gradients/{weight.path}", _numbers(gradient) / scale)
        for name, activations in outputs["layers"].items():
            yield events.histogram(f"activations/{name}", _numbers(activations))
            yield events.scalar(f"sparsity/{name}", float(tf.math.zero_fraction(activations)))


def _numbers(values: tf.Tensor) -> NDArray[np.float32]:
    found: NDArray[np.float32] = tf.cast(values, tf.float32).numpy()
    return found


def _model_input(batch: Batch, pixels: Pixels) -> tf.Tensor:
    """What an update makes of a batch before the model gets it."""
    return pixels.training(batch.images, batch.keys) if pixels.same_size else batch.images


def _within_0_and_1(images: tf.Tensor) -> tf.Tensor:
    """Each image with its darkest value at 0 and its brightest at 1."""
    low = tf.reduce_min(images, axis=[1, 2, 3], keepdims=True)
    high = tf.reduce_max(images, axis=[1, 2, 3], keepdims=True)
    return tf.math.divide_no_nan(images - low, high - low)
