"""GraphDefs with the weights as constants, like those of TF-Slim's freeze_graph: binary or text."""

from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from perennial.export.saved_model import Predict, Representative

IMAGE, OUTPUTS = "image", ("classes", "probabilities")


def frozen(loaded: Any) -> GraphDef:
    """Freeze a loaded SavedModel: from node `image`, raw pixels, to nodes `classes` and `probabilities`."""
    function = loaded.signatures["classify"]
    constant = convert_variables_to_constants_v2(function)
    nodes = dict(zip(sorted(function.structured_outputs), constant.outputs, strict=True))
    source = constant.inputs[0]
    with tf.Graph().as_default() as graph:
        image = tf.compat.v1.placeholder(source.dtype, source.shape, name=IMAGE)
        imported = tf.graph_util.import_graph_def(
            constant.graph.as_graph_def(),
            {source.op.name: image},
            [nodes[name].name for name in OUTPUTS],
            name="model",
        )
        for name, output in zip(OUTPUTS, imported, strict=True):
            tf.identity(output, name=name)
    return _ordered(graph.as_graph_def())


def _ordered(graph: GraphDef) -> GraphDef:
    """Sort the nodes topologically, then by name: TensorFlow's own order differs each time."""
    nodes = {node.name: node for node in sorted(graph.node, key=lambda node: node.name)}
    inputs = {
        name: [each.removeprefix("^").partition(":")[0] for each in node.input] for name, node in nodes.items()
    }
    ordered = GraphDef(versions=graph.versions, library=graph.library)
    for name in TopologicalSorter(inputs).static_order():
        nodes[name].attr.pop("_gradient_op_type", None)  # names a function of the process that made the graph
        ordered.node.append(nodes[name])
    return ordered


def binary(graph: GraphDef, _representative: Representative) -> bytes:
    """The graph as protobuf."""
    return bytes(graph.SerializeToString(deterministic=True))


def text(graph: GraphDef, _representative: Representative) -> bytes:
    """The graph as protobuf text, three times as long."""
    return text_format.MessageToString(graph).encode()


def load(file: Path) -> Predict:
    """Load a GraphDef into TensorFlow."""
    content, graph = file.read_bytes(), GraphDef()
    text_format.Parse(content, graph) if file.suffix == ".pbtxt" else graph.ParseFromString(content)
    function = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(graph, name=""), [])
    elements = [function.graph.get_tensor_by_name(f"{name}:0") for name in (IMAGE, *OUTPUTS)]
    pruned = function.prune(elements[0], elements[1:])
    return lambda images: tuple(output.numpy() for output in pruned(tf.constant(images)))
