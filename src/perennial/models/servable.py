"""A model as a SavedModel that takes raw pixels or encoded images and needs nothing of ours to run."""

import hashlib
from pathlib import Path

import keras
import tensorflow as tf
from tensorflow.core.protobuf import fingerprint_pb2

from perennial.preprocessing import Pixels
from perennial.records import read

CLASSIFY, CLASSIFY_BYTES = "classify", "classify_bytes"
FINGERPRINT = "fingerprint.pb"


class Servable(tf.Module):  # type: ignore[misc]  # TensorFlow ships no types
    """The functions behind the signatures, with the model and the assets that they are saved with."""

    def __init__(self, model: keras.Model, pixels: Pixels, assets: tuple[Path, ...]) -> None:
        super().__init__()
        self.model = model
        self.assets = [tf.saved_model.Asset(str(asset)) for asset in assets]
        self._pixels = pixels

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
        return self._outputs(self._pixels.resize(image))

    def _classify_bytes(self, image: tf.Tensor) -> dict[str, tf.Tensor]:
        """From encoded images, string [N]."""
        shape = tf.TensorSpec(self._pixels.model_shape, tf.uint8)
        images = tf.map_fn(lambda each: read.decoded(each, self._pixels), image, fn_output_signature=shape)
        return self._outputs(images)

    def _outputs(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        logits = tf.cast(self.model(self._pixels.preprocess(images), training=False), tf.float32)
        return {
            "classes": tf.argmax(logits, axis=-1, output_type=tf.int64),
            "probabilities": tf.nn.softmax(logits),
        }


def save(folder: Path, model: keras.Model, pixels: Pixels, assets: tuple[Path, ...]) -> None:
    """Writes a SavedModel into an empty folder; equal models give equal bytes."""
    servable = Servable(model, pixels, assets)
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(servable, str(folder), signatures=servable.signatures(), options=options)
    _fix_fingerprint(folder / FINGERPRINT, folder / "saved_model.pb")


def _fix_fingerprint(file: Path, graph: Path) -> None:
    """Puts a digest of the graph where TensorFlow wrote a random id."""
    fingerprint = fingerprint_pb2.FingerprintDef.FromString(file.read_bytes())
    fingerprint.uuid = str(int(hashlib.sha256(graph.read_bytes()).hexdigest()[:16], 16))
    file.write_bytes(fingerprint.SerializeToString(deterministic=True))
