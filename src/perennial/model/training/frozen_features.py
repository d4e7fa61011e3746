"""Features of each example, computed once while the layers that produce them are frozen.

Undistorted images give the same features at every step, so the steps take these from memory. The results equal
those of whole steps except for rounding, and those of a resumed training bit by bit.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from perennial.data.preprocessing import ImageSpec
from perennial.model import models
from perennial.model.evaluation import inference
from perennial.model.evaluation.inference import Logits
from perennial.model.models.layers import Dropout, Mirrored
from perennial.model.training.cache import Table
from perennial.model.training.input import Input

log = logging.getLogger(__name__)
BATCH = 8  # training examples per call of the frozen layers: more take more memory, and no less time
CALLS = 2  # at the same time: many operations of a single call use one core
FOLDED_MB = 256  # limit for weights as constants: TensorFlow copies them, and allows 2 GB in a graph
LEAST = 0.5  # minimum share of the frozen weights that must be before the cut
Features = tuple[tf.Tensor, ...]  # [N, ...] of each output tensor of the frozen layers
Examples = tuple[Features, NDArray[Any]]  # with labels


class FrozenFeatures:
    """A network cut in two, with the tensors that its frozen part passes to the rest."""

    def __init__(self, model: keras.Model, pixels: ImageSpec, cut: Sequence[keras.KerasTensor]) -> None:
        self._model, self._pixels, self._cut = model, pixels, list(cut)
        self._compute: Callable[[tf.Tensor], Features] | None = None
        self._rest: keras.Model | None = None
        self._predict = tf.function(self._logits, reduce_retracing=True, autograph=False)
        self._validation: list[Examples] = []

    @property
    def rest(self) -> keras.Model:
        """The layers after the cut, from features to the outputs of the network, with shared weights.

        Built on first use: afterwards Keras no longer knows the layers' inputs in the original network.
        """
        if self._rest is None:
            self._rest = keras.Model(self._cut, self._model.output, name=f"{self._model.name}_rest")
        return self._rest

    def table(self, source: Input) -> Table:
        """Compute the features of the training examples; returns them with their labels."""
        found, labels = zip(*self._computed(source.in_order(BATCH)), strict=True)
        with tf.device("CPU"):
            features = tuple(tf.concat(parts, axis=0) for parts in zip(*found, strict=True))
        return Table(features, np.concatenate(labels))

    def logits(self, validation: Iterable[tuple[tf.Tensor, tf.Tensor]]) -> Iterator[Logits]:
        """Compute logits and labels from batches of images and labels, which must be the same in each call."""
        if not self._validation:
            self._validation = self._computed(validation)
        for features, labels in self._validation:
            yield self._predict(features).numpy(), labels

    def _computed(self, batches: Iterable[tuple[tf.Tensor, tf.Tensor]]) -> list[Examples]:
        """The features of each batch, with its labels, in CPU memory."""
        if self._compute is None:
            self._compute = self._compiled()
        started, found = time.monotonic(), list[Examples]()
        waiting = deque[tuple[Future[Features], NDArray[Any]]]()

        def collect() -> None:
            features, labels = waiting.popleft()
            with tf.device("CPU"):
                found.append((tuple(tf.identity(each) for each in features.result()), labels))

        with ThreadPoolExecutor(CALLS) as threads:
            for images, labels in batches:
                if len(waiting) == CALLS:
                    collect()
                waiting.append((threads.submit(self._compute, images), np.asarray(labels)))
            while waiting:
                collect()
        count = sum(len(labels) for _, labels in found)
        log.info("computed the features of %s images in %.1f s", f"{count:,}", time.monotonic() - started)
        return found

    def _compiled(self) -> Callable[[tf.Tensor], Features]:
        """Compile the frozen layers, with their weights as constants: TensorFlow merges layers then."""
        frozen = keras.Model(self._model.input, self._cut, name=f"{self._model.name}_frozen")
        weights = [(weight, weight.numpy()) for weight in frozen.weights]
        if sum(values.nbytes for _, values in weights) > FOLDED_MB * 10**6:
            weights = []

        def compute(images: tf.Tensor) -> Features:
            with keras.StatelessScope([(weight, tf.constant(values)) for weight, values in weights]):
                return tuple(keras.tree.flatten(frozen(images, training=False)))

        return inference.compiled(compute, self._pixels)

    def _logits(self, features: Features) -> tf.Tensor:
        return models.logits_of(self.rest, list(features))


def choose(
    model: keras.Model, pixels: ImageSpec, *, augmented: bool, examples: int, memory_mb: int, workers: int
) -> FrozenFeatures | None:
    """Cut the network for the layers that are trainable now; None if whole steps are needed.

    The log gives the reason, unless no layer is frozen. `examples`: of training and validation together;
    `memory_mb`: limit for the features.
    """
    with_weights = [layer for layer in model.layers if layer.weights]
    frozen = [layer for layer in with_weights if not layer.trainable]
    trained = [layer for layer in with_weights if layer.trainable]
    if not frozen:
        return None
    cut, before, whole = _boundary(model)
    megabytes = examples * sum(math.prod(each.shape[1:]) * tf.as_dtype(each.dtype).size for each in cut) / 1e6
    share = sum(layer.count_params() for layer in before) / sum(layer.count_params() for layer in frozen)
    mirrors = any(isinstance(layer, Mirrored) for layer in model.layers)
    distorts = pixels.distortion is not None
    reasons = {
        f"preprocessing {pixels.preprocessing} distorts images differently in each epoch": distorts,
        "train.augmentation changes images differently in each epoch": augmented,
        "the network also takes mirror images, but not in training": mirrors,
        "several workers train": workers > 1,
        "one of the network's outputs does not change": not whole,
        "most of them come after a layer that trains or has dropout": share < LEAST,
        f"these would take {megabytes:,.0f} MB, more than train.memory_mb {memory_mb:,}": megabytes > memory_mb,
    }
    against = next((reason for reason, holds in reasons.items() if holds), None)
    names = ", ".join(layer.name for layer in trained)
    if against:
        log.info("training %s with the frozen layers in each step, no features are kept: %s", names, against)
        return None
    log.info(
        "training %s on features that the frozen layers compute once, %.1f MB for %s images",
        names, megabytes, f"{examples:,}",
    )  # fmt: skip
    return FrozenFeatures(model, pixels, cut)


def _boundary(model: keras.Model) -> tuple[list[keras.KerasTensor], list[keras.Layer], bool]:
    """The tensors to cut at, the layers with weights before them, and whether all outputs come after."""
    before, varying, cut = [], set[int](), dict[int, keras.KerasTensor]()
    for layer in model.operations:  # in topological order
        if isinstance(layer, keras.layers.InputLayer):
            continue
        taken = {id(each): each for each in keras.tree.flatten(layer.input)}
        if _varies(layer) or varying & taken.keys():
            cut |= {key: each for key, each in taken.items() if key not in varying}
            varying |= {id(each) for each in keras.tree.flatten(layer.output)}
        elif getattr(layer, "weights", None):
            before.append(layer)
    return list(cut.values()), before, all(id(each) in varying for each in model.outputs)


def _varies(layer: keras.Operation) -> bool:
    """Whether a layer may give different outputs for equal inputs in two steps."""
    if isinstance(layer, Dropout):
        return layer.rate > 0
    return bool(getattr(layer, "trainable_variables", None)) or hasattr(layer, "seed_generator")
