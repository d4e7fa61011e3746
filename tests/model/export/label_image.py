"""A client of frozen graphs like the program label_image that came with TensorFlow 1."""

from pathlib import Path

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

Mean = float | NDArray[np.float64]  # of all channels, or of each


def probabilities(
    graph: Path, images: list[Path], *, nodes: tuple[str, str], size: int, mean: Mean, std: float
) -> NDArray[np.float32]:
    """The output of a graph for image files, one by one: read, resized, and normalized outside of the graph."""
    content = tf.compat.v1.GraphDef.FromString(graph.read_bytes())
    with tf.Graph().as_default() as loaded:
        tf.import_graph_def(content)
    entrance, result = (loaded.get_operation_by_name(f"import/{name}").outputs[0] for name in nodes)
    with tf.compat.v1.Session(graph=loaded) as session:
        channels = entrance.shape[-1]
        found = [session.run(result, {entrance: read(image, size, channels, mean, std)}) for image in images]
    return np.concatenate(found)


def read(image: Path, size: int, channels: int, mean: Mean, std: float) -> NDArray[np.float32]:
    """An image file as float32 [1, size, size, channels]."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        decoded = tf.image.decode_png(tf.io.read_file(str(image)), channels=channels)
        resized = tf.compat.v1.image.resize_bilinear(tf.cast(decoded, tf.float32)[None], [size, size])
        return session.run((resized - mean) / std)
