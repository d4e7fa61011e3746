"""A model as a SavedModel that takes raw pixels or encoded images and needs nothing of ours to run."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import keras
import tensorflow as tf
from tensorflow.core.protobuf import fingerprint_pb2

from perennial import files, models
from perennial.models import saved
from perennial.models.saved import Description
from perennial.preprocessing import ImageSpec
from perennial.records import pipeline

CLASSIFY, CLASSIFY_BYTES = "classify", "classify_bytes"
FINGERPRINT = "fingerprint.pb"


class Servable(tf.Module):  # type: ignore[misc]  # TensorFlow ships no types
    """The functions of an export, with the model and the assets that they are saved with.

    Besides the signatures, who loads it gets `prepare`, which makes one encoded image (a string) ready for
    the model, and `infer`, which answers a batch of such: decoding then needs no turn of the model.
    """

    def __init__(self, model: keras.Model, pixels: ImageSpec, assets: tuple[Path, ...]) -> None:
        super().__init__()
        # Keras' own variables would be saved as second ones, and TensorFlow Serving would fill only those.
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
        """From raw pixels uint8 [N, height, width, channels], 0..255."""
        answer: dict[str, tf.Tensor] = self.infer(self._pixels.evaluation(image))
        return answer

    def _classify_bytes(self, image: tf.Tensor) -> dict[str, tf.Tensor]:
        """From encoded images, string [N]."""
        shape = tf.TensorSpec(self._pixels.model_shape, tf.float32)
        answer: dict[str, tf.Tensor] = self.infer(tf.map_fn(self.prepare, image, fn_output_signature=shape))
        return answer

    def _prepare(self, image: tf.Tensor) -> tf.Tensor:
        return self._pixels.evaluation_one(pipeline.decoded(image, self._pixels))

    def _outputs(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        # An auxiliary classifier is only good for training.
        logits = tf.cast(self._logits(images), tf.float32)
        return {
            "classes": tf.argmax(logits, axis=-1, output_type=tf.int64),
            "probabilities": tf.nn.softmax(logits),
        }


def save(folder: Path, model: keras.Model, description: Description, assets: tuple[Path, ...]) -> None:
    """Writes a SavedModel into an empty folder; equal models give equal bytes.

    Beside it lies the description, for `saved.load_export`.
    """
    servable = Servable(model, description.pixels, assets)
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(servable, str(folder), signatures=servable.signatures(), options=options)
    _fix_fingerprint(folder / FINGERPRINT, folder / saved.GRAPH)
    files.write_json(folder / saved.EXPORTED, description.model_dump(mode="json"))


def _fix_fingerprint(file: Path, graph: Path) -> None:
    """Puts a digest of the graph where TensorFlow wrote a random id."""
    fingerprint = fingerprint_pb2.FingerprintDef.FromString(file.read_bytes())
    fingerprint.uuid = str(int(hashlib.sha256(graph.read_bytes()).hexdigest()[:16], 16))
    file.write_bytes(fingerprint.SerializeToString(deterministic=True))
