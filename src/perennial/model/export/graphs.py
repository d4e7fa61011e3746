# Origin: research/slim/export_inference_graph.py of github.com/tensorflow/models (Apache-2.0):
# names and form of the exported graph.
"""Frozen graphs for TensorFlow 1: the whole model, or the network alone as TF-Slim exported it."""

from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

IMAGE = "image"  # node of the whole model
CLASSES, LABELS, PROBABILITIES = "classes", "labels", "probabilities"  # its results, of which it has two
INPUT = "input"  # node of the network alone, as export_inference_graph names it
# The last node of slim's networks. Those of LOGITS end in logits, the others in probabilities.
LOGITS = ("alexnet_v2", "overfeat", "vgg_a", "vgg_16", "vgg_19")
NODES = {
    "lenet": "Predictions/Reshape_1",
    "cifarnet": "CifarNet/Predictions/Reshape_1",
    "inception_v1": "InceptionV1/Logits/Predictions/Reshape_1",
    "inception_v2": "InceptionV2/Predictions/Reshape_1",
    "inception_v3": "InceptionV3/Predictions/Reshape_1",
    "inception_v4": "InceptionV4/Logits/Predictions",
    "inception_resnet_v2": "InceptionResnetV2/Logits/Predictions",
    **{name: f"{name}/fc8/squeezed" for name in LOGITS},
}
# By the beginning of a network's name.
FAMILIES = {
    "mobilenet_v1": "MobilenetV1/Predictions/Reshape_1",
    "mobilenet_v2": "MobilenetV2/Predictions/Reshape_1",
    "mobilenet_v3": "MobilenetV3/Predictions/Reshape_1",
    "nasnet": "final_layer/predictions",
    "pnasnet": "final_layer/predictions",
    "resnet": "{name}/predictions/Reshape_1",
}


def output_node(network: str) -> str:
    """The name of the node with the network's result: slim's name for its networks."""
    family = next((name for name in FAMILIES if network.startswith(name)), None)
    return NODES.get(network) or FAMILIES.get(family or "", "{name}/predictions").format(name=network)


def whole(loaded: Any) -> GraphDef:
    """Freeze a loaded SavedModel as TF-Slim's freeze_graph did, its weights as constants.

    From node `image`, raw pixels, to nodes `classes` (or `labels` of several an image) and `probabilities`.
    """
    function = loaded.signatures["classify"]
    constant = convert_variables_to_constants_v2(function)
    nodes = [each.name for each in constant.outputs]
    return _renamed(constant, IMAGE, dict(zip(sorted(function.structured_outputs), nodes, strict=True)))


def results(graph: GraphDef) -> tuple[str, str]:
    """The nodes of a whole model that hold its decisions and its probabilities."""
    several = any(node.name == LABELS for node in graph.node)
    return LABELS if several else CLASSES, PROBABILITIES


def network(loaded: Any, name: str) -> GraphDef:
    """Freeze the network of a loaded SavedModel without its preprocessing.

    From node `input`, float32 [N, height, width, channels] as the network gets them, to `output_node`.
    """
    (function,) = loaded.infer.concrete_functions
    constant = convert_variables_to_constants_v2(function)
    activation = constant.outputs[-1].op  # of the probabilities
    while activation.type == "Identity":
        activation = activation.inputs[0].op
    result = activation.inputs[0] if name in LOGITS else activation.outputs[0]
    return _renamed(constant, INPUT, {output_node(name): result.name})


def raw_pixels(image: tf.Tensor) -> tf.Tensor:
    """Convert float32 raw pixels to uint8; the graph refuses other values, such as 0 to 1."""
    rounded = tf.round(image)
    in_range = tf.reduce_all((image >= 0) & (image <= 255))
    fractions = tf.reduce_any(tf.not_equal(image, rounded))  # `!=` would compare identities in old graphs
    scaled = tf.reduce_all(image <= 1) & fractions
    text = "image must hold raw pixels from 0 to 255; the preprocessing is in the graph; got values from"
    ends = [tf.constant(text), tf.reduce_min(image), tf.constant("to"), tf.reduce_max(image)]
    # tf.debugging.Assert would add functions whose names differ from call to call.
    refused = tf.raw_ops.Assert(condition=in_range & ~scaled, data=ends)
    with tf.control_dependencies([refused] if refused is not None else []):
        return tf.cast(rounded, tf.uint8)


def checked(graph: GraphDef) -> GraphDef:
    """A whole model whose `image` is float32, and which refuses values that are not raw pixels.

    A session of TensorFlow 1 converts what is fed to the type of the node without a word: values from 0 to 1
    would become 0 and 1, almost black, for a node of uint8.
    """
    with tf.Graph().as_default() as outer:
        given = next(node for node in graph.node if node.name == IMAGE)
        shape = [dim.size if dim.size >= 0 else None for dim in given.attr["shape"].shape.dim]
        image = tf.compat.v1.placeholder(tf.float32, shape, name=IMAGE)
        pixels = raw_pixels(image)
        names = results(graph)
        outputs = tf.graph_util.import_graph_def(
            graph, {f"{IMAGE}:0": pixels}, [f"{name}:0" for name in names], name="graph"
        )
        for name, output in zip(names, outputs, strict=True):
            tf.identity(output, name=name)
    return _ordered(outer.as_graph_def(), names)


def _renamed(constant: Any, image: str, outputs: Mapping[str, str]) -> GraphDef:
    """A graph of a function with these names for its input and outputs, given by the tensors' names."""
    source = constant.inputs[0]
    with tf.Graph().as_default() as graph:
        placeholder = tf.compat.v1.placeholder(source.dtype, source.shape, name=image)
        imported = tf.graph_util.import_graph_def(
            constant.graph.as_graph_def(), {source.op.name: placeholder}, list(outputs.values()), name="model"
        )
        for name, output in zip(outputs, imported, strict=True):
            tf.identity(output, name=name)
    return _ordered(graph.as_graph_def(), tuple(outputs))


def _ordered(unordered: GraphDef, outputs: Sequence[str]) -> GraphDef:
    """The nodes that outputs depend on, topologically and then by name, as TensorFlow's own order varies."""
    nodes = {node.name: node for node in sorted(unordered.node, key=lambda node: node.name)}
    inputs = {
        name: [each.removeprefix("^").partition(":")[0] for each in node.input] for name, node in nodes.items()
    }
    needed, queue = set(outputs), list(outputs)
    while queue:
        found = set(inputs[queue.pop()]) - needed
        needed |= found
        queue += found
    ordered = GraphDef(versions=unordered.versions, library=unordered.library)
    for name in filter(needed.__contains__, TopologicalSorter(inputs).static_order()):
        # The name of a function in the process that made the graph.
        nodes[name].attr.pop("_gradient_op_type", None)
        ordered.node.append(nodes[name])
    return ordered
