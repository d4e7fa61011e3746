"""TensorFlow Lite: float32, weights in float16, or weights and activations in int8."""

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import tensorflow as tf

from perennial.export.saved_model import Outputs, Predict, Representative

Precision = Literal["float32", "float16", "int8"]
STANDARDIZED = "per_image_standardization"  # tf.image's name scope


def converter(precision: Precision) -> Callable[[Any, Representative], bytes]:
    """A function from a frozen GraphDef and representative images to a TensorFlow Lite model."""
    return partial(_converted, precision)


def _converted(precision: Precision, graph: Any, representative: Representative) -> bytes:
    chosen = _converter(graph)
    if precision != "float32":
        chosen.optimizations = [tf.lite.Optimize.DEFAULT]
    if precision == "float16":
        chosen.target_spec.supported_types = [tf.float16]
    if precision == "int8":
        chosen.representative_dataset = lambda: ({"image": image[None]} for image in representative())
    standardized = any(STANDARDIZED in node.name for node in graph.node)
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # about ranges that it measures
        content: bytes = _int8(chosen) if precision == "int8" and standardized else chosen.convert()
    return content


def _int8(chosen: tf.lite.TFLiteConverter) -> bytes:
    """An int8 model that standardizes images in float32.

    TensorFlow Lite refuses to divide by an int8 stored as 0, whatever number that represents, and so would
    fail on images of a certain contrast.
    """
    experimental = tf.lite.experimental
    quantizer = experimental.QuantizationDebugger(converter=chosen)
    measured = tf.lite.Interpreter(model_content=quantizer.calibrated_model)
    names = [tensor["name"] for tensor in measured.get_tensor_details() if STANDARDIZED in tensor["name"]]
    quantizer.options = experimental.QuantizationDebugOptions(denylisted_nodes=names)
    content: bytes = quantizer.get_nondebug_quantized_model()
    return content


def _converter(graph: Any) -> tf.lite.TFLiteConverter:
    """A converter with the names of input and outputs as its signature."""
    imported = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(graph, name=""), [])
    image, classes, probabilities = (
        imported.graph.get_tensor_by_name(f"{name}:0") for name in ("image", "classes", "probabilities")
    )
    pruned = imported.prune(image, {"classes": classes, "probabilities": probabilities})
    module = tf.Module()
    spec = tf.TensorSpec(image.shape, image.dtype, name="image")
    module.answer = tf.function(lambda image: pruned(image), input_signature=[spec])  # noqa: PLW0108 - pruned has no name
    return tf.lite.TFLiteConverter.from_concrete_functions([module.answer.get_concrete_function()], module)


def load(file: Path) -> Predict:
    """Load a TensorFlow Lite model, to run on one core as on a phone."""
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # that it moves to LiteRT
        interpreter = tf.lite.Interpreter(model_path=str(file), num_threads=1)
    signature = interpreter.get_signature_runner()

    def predict(images: Any) -> Outputs:
        outputs = signature(image=images)
        return outputs["classes"], outputs["probabilities"]

    return predict
