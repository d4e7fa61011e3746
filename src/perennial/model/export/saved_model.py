"""The SavedModel: takes raw pixels or encoded images, and runs without this project's code."""

import errno
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.core.protobuf import fingerprint_pb2

from perennial.base import files
from perennial.base.errors import without_operations
from perennial.data.preprocessing import photographs
from perennial.model import models
from perennial.model.export import encodings, features, graphs
from perennial.model.export.encodings import Takes
from perennial.model.export_layout import DESCRIPTION, GRAPH
from perennial.model.models.model_folder import Description

# Classes int64 [N], or labels [N, classes] of 0 and 1; probabilities [N, classes].
Outputs: TypeAlias = tuple[NDArray[np.int64], NDArray[np.float32]]
Predict: TypeAlias = Callable[[NDArray[Any]], Outputs]  # takes a batch of images
Representative: TypeAlias = Callable[[], Iterable[NDArray[Any]]]  # training images, one by one

PLAIN = Takes()
CLASSIFY, CLASSIFY_BYTES = "classify", "classify_bytes"
FINGERPRINT = "fingerprint.pb"


class Servable(tf.Module):  # type: ignore[misc]  # TensorFlow ships no types
    """The functions of an export, with the model and the assets to save.

    Besides the signatures, a loaded export has `prepare`, which decodes and preprocesses one encoded image (a
    string), and `infer`, which classifies a batch of prepared images: images can then be decoded in parallel.
    With a bandwidth it has `statistics`, by which drift is found: of encoded images, string [N], the random
    features, float32 [N, 256], and the mean brightness, float32 [N].
    Called itself, it classifies raw pixels as uint8 or float32 and refuses other types and values. A signature
    cannot: TensorFlow converts NumPy arrays to its type before it runs.
    """

    def __init__(
        self,
        model: keras.Model,
        description: Description,
        assets: tuple[Path, ...],
        bandwidth: float | None = None,
        takes: Takes = PLAIN,
    ) -> None:
        super().__init__()
        pixels = description.pixels
        # Keras' own variables would be saved twice, and TensorFlow Serving would load only one of the copies.
        self.weights = [weight.value for weight in model.weights]
        self._logits: Callable[[tf.Tensor], tf.Tensor] = lambda images: models.logits_of(
            model, images, mirror=description.mirror
        )
        self.assets = [tf.saved_model.Asset(str(asset)) for asset in assets]
        self._pixels, self._confidence, self._takes = pixels, description.confidence, takes
        encoded = tf.TensorSpec((), tf.string, name="image")
        ready = tf.TensorSpec((None, *pixels.model_shape), tf.float32, name="images")
        self.prepare = tf.function(self._prepare, [encoded], autograph=False)
        self.infer = tf.function(self._outputs, [ready], autograph=False)
        if bandwidth is not None:
            self.statistics = _statistics(model, description, bandwidth)
        self.__call__ = tf.function(self._raw, autograph=False)
        for kind in (tf.uint8, tf.float32):
            self.__call__.get_concrete_function(tf.TensorSpec((None, *pixels.raw_shape), kind, name="image"))

    def signatures(self) -> dict[str, tf.types.experimental.ConcreteFunction]:
        """`classify` (also the default) for pixels, `classify_bytes` for encoded images."""
        raw = tf.TensorSpec((None, *self._pixels.raw_shape), tf.uint8, name="image")
        encoded = tf.TensorSpec((None,), tf.string, name="image")
        classify = tf.function(self._classify, autograph=False).get_concrete_function(raw)
        return {
            CLASSIFY: classify,
            "serving_default": classify,
            CLASSIFY_BYTES: tf.function(self._classify_bytes, autograph=False).get_concrete_function(encoded),
        }

    def _raw(self, image: tf.Tensor) -> dict[str, tf.Tensor]:
        return self._classify(image if image.dtype == tf.uint8 else graphs.raw_pixels(image))

    def _classify(self, image: tf.Tensor) -> dict[str, tf.Tensor]:
        """Classify raw pixels uint8 [N, height, width, channels], 0..255."""
        return self.infer(self._pixels.evaluation(image))  # type: ignore[no-any-return]

    def _classify_bytes(self, image: tf.Tensor) -> dict[str, tf.Tensor]:
        """Classify encoded images, string [N]."""
        shape = tf.TensorSpec(self._pixels.model_shape, tf.float32)
        return self.infer(tf.map_fn(self.prepare, image, fn_output_signature=shape))  # type: ignore[no-any-return]

    def _prepare(self, image: tf.Tensor) -> tf.Tensor:
        taken = encodings.checked(image, self._pixels.channels, self._takes)
        return self._pixels.evaluation_one(photographs.decoded(taken, self._pixels))

    def _outputs(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        # The auxiliary classifier is only for training.
        logits = self._logits(images)
        if self._confidence.factor is not None:
            logits *= self._confidence.factor
        if (thresholds := self._confidence.thresholds) is None:
            classes = tf.argmax(logits, axis=-1, output_type=tf.int64)
            return {graphs.CLASSES: classes, graphs.PROBABILITIES: tf.nn.softmax(logits)}
        probabilities = tf.sigmoid(logits)
        labels = tf.cast(probabilities >= tf.constant(thresholds, tf.float32), tf.int64)
        return {graphs.LABELS: labels, graphs.PROBABILITIES: probabilities}


def _statistics(
    model: keras.Model, description: Description, bandwidth: float
) -> tf.types.experimental.PolymorphicFunction:
    """A function that refers to the model without being an attribute, so that its weights are saved once."""
    measured = features.Measured(model, description)

    def statistics(images: tf.Tensor) -> dict[str, tf.Tensor]:
        values = measured(images)
        found = features.random_features(values.penultimate, bandwidth)
        return {"features": found, "brightness": values.brightness}

    return tf.function(statistics, [tf.TensorSpec((None,), tf.string, name="images")], autograph=False)


def save(
    folder: Path,
    model: keras.Model,
    description: Description,
    assets: tuple[Path, ...],
    bandwidth: float | None = None,
    takes: Takes = PLAIN,
) -> None:
    """Write a SavedModel into an empty folder; equal models give equal bytes.

    The description is saved beside it, for `model_folder.load_export`. `bandwidth`: of the reference, if it has
    one; `takes`: which encoded images it takes.
    """
    servable = Servable(model, description, assets, bandwidth, takes)
    signatures = servable.signatures()
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    try:
        tf.saved_model.save(servable, str(folder), signatures=signatures, options=options)
    except tf.errors.OpError as error:
        raise OSError(errno.EIO, f"{folder} cannot be written: {without_operations(error)}") from error
    fingerprint = fingerprint_pb2.FingerprintDef.FromString((folder / FINGERPRINT).read_bytes())
    fingerprint.uuid = str(int(files.sha256(folder / GRAPH)[:16], 16))  # TensorFlow's is random
    (folder / FINGERPRINT).write_bytes(fingerprint.SerializeToString(deterministic=True))
    files.write_json(folder / DESCRIPTION, description.model_dump(mode="json"))


def signature(loaded: tf.Module, name: str) -> Predict:
    """Wrap a signature of a loaded SavedModel as a function of arrays."""
    return lambda images: by_name(loaded.signatures[name](image=tf.constant(images)))


def by_name(outputs: Mapping[str, Any]) -> Outputs:
    """What a model answers, as arrays: the classes, or the labels of one that gives several, come first."""
    decided, probabilities = (outputs[name] for name in sorted(outputs))
    return np.asarray(decided), np.asarray(probabilities)
