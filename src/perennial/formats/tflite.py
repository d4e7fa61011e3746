"""TensorFlow Lite: float32, weights in float16, or weights and activations in int8."""

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import tensorflow as tf

from perennial.formats.form import Answer, Images

Precision = Literal["float32", "float16", "int8"]
STANDARDIZED = "per_image_standardization"  # what tf.image calls it in graphs


def converter(precision: Precision) -> Callable[[Any, Images], bytes]:
    """A function from a frozen GraphDef and representative images to a TensorFlow Lite model."""
    return partial(_converted, precision)


def _converted(precision: Precision, graph: Any, representative: Images) -> bytes:
    chosen = _of(graph)
    if precision != "float32":
        chosen.optimizations = [tf.lite.Optimize.DEFAULT]
    if precision == "float16":
        chosen.target_spec.supported_types = [tf.float16]
    if precision == "int8":
        chosen.representative_dataset = lambda: ({"image": image[None]} for image in representative())
    standardized = any(STANDARDIZED in node.name for node in graph.node)
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # of ranges that it measures itself
        content: bytes = _int8(chosen) if precision == "int8" and standardized else chosen.convert()
    return content


def _int8(chosen: tf.lite.TFLiteConverter) -> bytes:
    """A model in int8 that standardizes images in float32.

    TensorFlow Lite does not divide by an int8 that is stored as 0, whatever number that stands for, and so
    would fail on images of some one contrast.
    """
    experimental = tf.lite.experimental
    quantizer = experimental.QuantizationDebugger(converter=chosen)
    measured = tf.lite.Interpreter(model_content=quantizer.calibrated_model)
    names = [tensor["name"] for tensor in measured.get_tensor_details() if STANDARDIZED in tensor["name"]]
    quantizer.options = experimental.QuantizationDebugOptions(denylisted_nodes=names)
    content: bytes = quantizer.get_nondebug_quantized_model()
    return content


def _of(graph: Any) -> tf.lite.TFLiteConverter:
    """A converter that keeps the names of input and outputs as a signature."""
    imported = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(graph, name=""), [])
    image, classes, probabilities = (
        imported.graph.get_tensor_by_name(f"{name}:0") for name in ("image", "classes", "probabilities")
    )
    pruned = imported.prune(image, {"classes": classes, "probabilities": probabilities})
    module = tf.Module()
    spec = tf.TensorSpec(image.shape, image.dtype, name="image")
    module.answer = tf.function(lambda image: pruned(image), input_signature=[spec])  # noqa: PLW0108 - pruned has no name
    return tf.lite.TFLiteConverter.from_concrete_functions([module.answer.get_concrete_function()], module)


def runner(file: Path) -> Answer:
    """What a model of TensorFlow Lite answers, on one core as on a telephone."""
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # that it moves to another package
        interpreter = tf.lite.Interpreter(model_path=str(file), num_threads=1)
    signature = interpreter.get_signature_runner()

    def answer(images: Any) -> Any:
        outputs = signature(image=images)
        return outputs["classes"], outputs["probabilities"]

    return answer
