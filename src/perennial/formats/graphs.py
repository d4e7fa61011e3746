"""GraphDefs with the weights as constants, as TF-Slim's freeze_graph leaves them: binary, or as text."""

from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from perennial.formats.form import Answer, Images

IMAGE, OUTPUTS = "image", ("classes", "probabilities")


def frozen(loaded: Any) -> GraphDef:
    """A loaded SavedModel from the node `image`, raw pixels, to the nodes `classes` and `probabilities`."""
    function = loaded.signatures["classify"]
    constant = convert_variables_to_constants_v2(function)
    nodes = dict(zip(sorted(function.structured_outputs), constant.outputs, strict=True))
    given = constant.inputs[0]
    with tf.Graph().as_default() as graph:
        image = tf.compat.v1.placeholder(given.dtype, given.shape, name=IMAGE)
        found = tf.graph_util.import_graph_def(
            constant.graph.as_graph_def(),
            {given.op.name: image},
            [nodes[name].name for name in OUTPUTS],
            name="model",
        )
        for name, output in zip(OUTPUTS, found, strict=True):
            tf.identity(output, name=name)
    return _ordered(graph.as_graph_def())


def _ordered(graph: GraphDef) -> GraphDef:
    """The graph with each node after those that it reads, in the order of names where there is a choice.

    TensorFlow's own order is another one each time.
    """
    nodes = {node.name: node for node in sorted(graph.node, key=lambda node: node.name)}
    read = {
        name: [each.removeprefix("^").partition(":")[0] for each in node.input] for name, node in nodes.items()
    }
    ordered = GraphDef(versions=graph.versions, library=graph.library)
    for name in TopologicalSorter(read).static_order():
        nodes[name].attr.pop("_gradient_op_type", None)  # names a function of the process that made the graph
        ordered.node.append(nodes[name])
    return ordered


def binary(graph: GraphDef, _representative: Images) -> bytes:
    """The graph as it is."""
    return bytes(graph.SerializeToString(deterministic=True))


def text(graph: GraphDef, _representative: Images) -> bytes:
    """The graph as text, which is three times as long."""
    return text_format.MessageToString(graph).encode()


def runner(file: Path) -> Answer:
    """What a GraphDef answers, in TensorFlow's own graphs."""
    content, graph = file.read_bytes(), GraphDef()
    text_format.Parse(content, graph) if file.suffix == ".pbtxt" else graph.ParseFromString(content)
    function = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(graph, name=""), [])
    elements = [function.graph.get_tensor_by_name(f"{name}:0") for name in (IMAGE, *OUTPUTS)]
    pruned = function.prune(elements[0], elements[1:])
    return lambda images: tuple(output.numpy() for output in pruned(tf.constant(images)))
