"""Whether the forms that are asked for can be made of a model at all."""

from collections.abc import Sequence
from importlib.util import find_spec

import tensorflow as tf

from perennial.errors import ConfigError
from perennial.formats import FORMATS
from perennial.preprocessing import ImageSpec


def require(names: Sequence[str], pixels: ImageSpec) -> None:
    """Refuses forms that the preprocessing of a model cannot have, or whose programs are not installed.

    Raises:
        ConfigError: names the first of them and why.
    """
    operations = _operations(pixels) if names else set()
    for name in names:
        form = FORMATS[name]
        if missing := [package for package in form.needs if find_spec(package) is None]:
            raise ConfigError(
                f"export.formats: {name} needs {' and '.join(missing)} of the extra `{name}`; nothing was "
                f"done; pip install --require-hashes -r requirements/{name}.txt, or leave it out"
            )
        if not form.any_size and None in pixels.raw_shape:
            raise ConfigError(
                f"export.formats: {name} takes images of one size, and those of the data set differ; "
                "nothing was done; leave it out, or train on images of one size"
            )
        if lacking := sorted(operations & form.unknown):
            raise ConfigError(
                f"export.formats: {name} has no operation {', '.join(lacking)}, by which the preprocessing "
                f"{pixels.preprocessing} resizes images; nothing was done; leave it out, or train with "
                "another preprocessing or on images that need no resizing"
            )


def _operations(pixels: ImageSpec) -> set[str]:
    """The operations of TensorFlow that a preprocessing is made of."""
    raw = tf.TensorSpec((None, *pixels.raw_shape), tf.uint8)
    graph = tf.function(pixels.evaluation).get_concrete_function(raw).graph.as_graph_def()
    inner = (node for function in graph.library.function for node in function.node_def)
    return {node.op for node in (*graph.node, *inner)}
