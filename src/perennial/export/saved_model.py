"""The SavedModel: takes raw pixels or encoded images, and runs without this project's code."""

import errno
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.core.protobuf import fingerprint_pb2

from perennial import files, models
from perennial.errors import DataError, without_operations
from perennial.export.layout import DESCRIPTION, GRAPH
from perennial.models.model_folder import Description
from perennial.preprocessing import ImageSpec
from perennial.records import pipeline

Outputs: TypeAlias = tuple[NDArray[np.int64], NDArray[np.float32]]  # classes [N], probabilities [N, classes]
Predict: TypeAlias = Callable[[NDArray[Any]], Outputs]  # takes a batch of images
Representative: TypeAlias = Callable[[], Iterable[NDArray[Any]]]  # training images, one by one

CLASSIFY, CLASSIFY_BYTES = "classify", "classify_bytes"
FINGERPRINT = "fingerprint.pb"
MACHINE_ERRORS = (
    MemoryError,
    tf.errors.AbortedError,
    tf.errors.InternalError,
    tf.errors.ResourceExhaustedError,
    tf.errors.UnavailableError,
    tf.errors.UnknownError,
)
NOT_THERE = (None, errno.ENOENT, errno.ENOTDIR, errno.EISDIR)  # None: TensorFlow's own, for a missing file
NO_GRADIENTS = "Importing a function (%s) with ops with unsaved custom gradients."  # exports are not trained


class Servable(tf.Module):  # type: ignore[misc]  # TensorFlow ships no types
    """The functions of an export, with the model and the assets to save.

    Besides the signatures, a loaded export has `prepare`, which decodes and preprocesses one encoded image (a
    string), and `infer`, which classifies a batch of prepared images: images can then be decoded in parallel.
    """

    def __init__(self, model: keras.Model, pixels: ImageSpec, assets: tuple[Path, ...]) -> None:
        super().__init__()
        # Keras' own variables would be saved twice, and TensorFlow Serving would load only one of the copies.
        self.weights = [weight.value for weight in model.weights]
        self._logits: Callable[[tf.Tensor], tf.Tensor] = lambda images: models.logits(
            model(images, training=False)
        )
        self.assets = [tf.saved_model.Asset(str(asset)) for asset in assets]
        self._pixels = pixels
        encoded = tf.TensorSpec((), tf.string, name="image")
        ready = tf.TensorSpec((None, *pixels.model_shape), tf.float32, name="images")
        self.prepare = tf.function(self._prepare, input_signature=[encoded])
        self.infer = tf.function(self._outputs, input_signature=[ready])

    def signatures(self) -> dict[str, tf.types.experimental.ConcreteFunction]:
        """`classify` (also the default) for pixels, `classify_bytes` for encoded images."""
        raw = tf.TensorSpec((None, *self._pixels.raw_shape), tf.uint8, name="image")
        encoded = tf.TensorSpec((None,), tf.string, name="image")
        classify = tf.function(self._classify).get_concrete_function(raw)
        return {
            CLASSIFY: classify,
            "serving_default": classify,
            CLASSIFY_BYTES: tf.function(self._classify_bytes).get_concrete_function(encoded),
        }

    def _classify(self, image: tf.Tensor) -> dict[str, tf.Tensor]:
        """Classify raw pixels uint8 [N, height, width, channels], 0..255."""
        return self.infer(self._pixels.evaluation(image))  # type: ignore[no-any-return]

    def _classify_bytes(self, image: tf.Tensor) -> dict[str, tf.Tensor]:
        """Classify encoded images, string [N]."""
        shape = tf.TensorSpec(self._pixels.model_shape, tf.float32)
        return self.infer(tf.map_fn(self.prepare, image, fn_output_signature=shape))  # type: ignore[no-any-return]

    def _prepare(self, image: tf.Tensor) -> tf.Tensor:
        return self._pixels.evaluation_one(pipeline.decoded(image, self._pixels))

    def _outputs(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        # The auxiliary classifier is only for training.
        logits = tf.cast(self._logits(images), tf.float32)
        return {
            "classes": tf.argmax(logits, axis=-1, output_type=tf.int64),
            "probabilities": tf.nn.softmax(logits),
        }


def save(folder: Path, model: keras.Model, description: Description, assets: tuple[Path, ...]) -> None:
    """Write a SavedModel into an empty folder; equal models give equal bytes.

    The description is saved beside it, for `model_folder.load_export`.

    Raises:
        OSError: the disk is full, broken or read-only.
    """
    servable = Servable(model, description.pixels, assets)
    signatures = servable.signatures()
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    try:
        tf.saved_model.save(servable, str(folder), signatures=signatures, options=options)
    except tf.errors.OpError as error:
        raise OSError(f"{folder} cannot be written: {without_operations(error)}") from error
    fingerprint = fingerprint_pb2.FingerprintDef.FromString((folder / FINGERPRINT).read_bytes())
    fingerprint.uuid = str(int(files.sha256(folder / GRAPH)[:16], 16))  # TensorFlow's is random
    (folder / FINGERPRINT).write_bytes(fingerprint.SerializeToString(deterministic=True))
    files.write_json(folder / DESCRIPTION, description.model_dump(mode="json"))


def load(folder: Path) -> Any:
    """Load the SavedModel of a folder with any name. Errors of the machine pass through.

    Raises:
        DataError: the folder holds no model that this TensorFlow loads.
    """
    try:
        with files.plainly_named(folder) as plain, suppressed("absl", NO_GRADIENTS):
            return tf.saved_model.load(str(plain))
    except Exception as error:
        if is_of_machine(error):
            raise
        raise DataError(f"{folder} holds no model that TensorFlow {tf.__version__} loads: {error}") from error


def is_of_machine(error: Exception) -> bool:
    """Whether an error is of memory, disk or devices and not of a model, which may load the next time."""
    if isinstance(error, OSError):
        return error.errno not in NOT_THERE
    return isinstance(error, MACHINE_ERRORS)


def signature(loaded: tf.Module, name: str) -> Predict:
    """Wrap a signature of a loaded SavedModel as a function of arrays."""

    def predict(images: NDArray[Any]) -> Outputs:
        outputs = loaded.signatures[name](image=tf.constant(images))
        return outputs["classes"].numpy(), outputs["probabilities"].numpy()

    return predict


@contextmanager
def suppressed(logger: str, prefix: str) -> Iterator[None]:
    """Drop a library's log messages whose template starts with `prefix`."""

    def other(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(prefix)

    logging.getLogger(logger).addFilter(other)
    try:
        yield
    finally:
        logging.getLogger(logger).removeFilter(other)
