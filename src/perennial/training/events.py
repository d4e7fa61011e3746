"""TensorBoard's event files; TensorFlow's own writers take half a millisecond a value."""

import time
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from perennial.tfrecord import framing

BUCKETS = 30  # of a histogram, as TensorBoard's own have
PREFIX = "events.out.tfevents."  # of a file's name: others are not read
Value: TypeAlias = tf.compat.v1.Summary.Value
_Metadata = tf.compat.v1.SummaryMetadata
START = framing.frame(tf.compat.v1.Event(file_version="brain.Event:2").SerializeToString())  # of every file


def record(step: int, values: Iterable[Value]) -> bytes:
    """What is known of a step, as it stands in a file after START."""
    summary = tf.compat.v1.Summary(value=values)
    return framing.frame(
        tf.compat.v1.Event(wall_time=time.time(), step=step, summary=summary).SerializeToString()
    )


def scalar(name: str, value: float) -> Value:
    """A point of a curve."""
    return Value(tag=name, simple_value=value)


def histogram(name: str, values: NDArray[np.floating]) -> Value:
    """How often which values come; those that are not finite are left out."""
    finite = values[np.isfinite(values)].astype(np.float64)
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    margin = max(abs(low), 1.0) / 2 if low == high else 0.0
    counts, edges = np.histogram(finite, BUCKETS, range=(low - margin, high + margin))
    return _value(name, "histograms", np.stack([edges[:-1], edges[1:], counts], axis=1))


def pictures(name: str, images: tf.Tensor) -> Value:
    """Images float32 [N, height, width, 1 or 3] with values in 0..1."""
    _, height, width, _ = images.shape
    encoded = tf.image.encode_png(tf.image.convert_image_dtype(images, tf.uint8, saturate=True)).numpy()
    return _value(name, "images", np.array([str(width).encode(), str(height).encode(), *encoded], object))


def _value(name: str, plugin: str, values: NDArray[np.float64] | NDArray[np.object_]) -> Value:
    metadata = _Metadata(plugin_data=_Metadata.PluginData(plugin_name=plugin))
    return Value(tag=name, tensor=tf.make_tensor_proto(values), metadata=metadata)
