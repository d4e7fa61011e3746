"""Export formats besides the SavedModel: conversion, runtime and allowed differences of each."""

import importlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.framework.graph_pb2 import GraphDef

from perennial.base.config.fields import is_component
from perennial.base.errors import ConfigError
from perennial.base.project import own_components
from perennial.data.preprocessing import ImageSpec
from perennial.model import tasks
from perennial.model.export import graphs, loading, saved_model
from perennial.model.export.graphs import IMAGE
from perennial.model.export.loading import suppressed
from perennial.model.export.saved_model import Outputs, Predict, Representative
from perennial.model.export_layout import DESCRIPTION, DIGESTS, EXTRA
from perennial.model.models.model_folder import Description

Precision = Literal["float32", "float16", "int8"]  # of TensorFlow Lite's weights; int8 also of its activations
ANTIALIASED = frozenset({"ScaleAndTranslate"})  # resizing that neither TensorFlow Lite nor ONNX supports
STANDARDIZED = "per_image_standardization"  # tf.image's name scope
OWN_FILES = {DESCRIPTION.name, DIGESTS.name}  # of an export
OPSET = 18  # of ONNX 1.13 (2022), the newest in tf2onnx
DEPRECATED = "From %s: %s (from %s) is deprecated"  # TensorFlow functions that tf2onnx calls


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format of an export besides the SavedModel."""

    file: str  # in assets.extra of the export
    takes: str = "uint8 `image`, raw pixels"  # input
    convert: Callable[[Any, Representative], bytes]  # takes a frozen GraphDef
    load: Callable[[Path], Predict]
    difference: float  # largest allowed difference of a probability from the scored model's
    agreement: float  # smallest allowed fraction of examples with the scored model's class
    unsupported: frozenset[str] = frozenset()  # TensorFlow operations that it cannot express
    network: bool = False  # whether it is of the network alone, without preprocessing
    any_size: bool = True  # whether its preprocessing takes images of different sizes
    packages: tuple[str, ...] = ()  # of the extra with its name


def format_named(name: str) -> Format:
    """The format that a name means, which may be a component of the project."""
    if not is_component(name):
        return FORMATS[name]
    found: Format = own_components.load(name, "an object of Format", lambda each: isinstance(each, Format))
    if not isinstance(found.file, str) or Path(found.file).name != found.file or found.file in OWN_FILES:
        raise own_components.refused(name, f"has the file {found.file!r}, expected the name of a new file")
    return found


def write(export: Path, names: Sequence[str], representative: Representative) -> None:
    """Convert the SavedModel of an export to these formats, into its assets.extra."""
    if names:
        loaded = loading.load(export)
        graph = graphs.whole(loaded)
        for name in names:
            part = graphs.network(loaded, description(export).name) if format_named(name).network else graph
            content = format_named(name).convert(part, representative)
            if is_component(name) and not isinstance(content, bytes):
                wrong = f"converted to {own_components.described(content)}, expected bytes"
                raise own_components.refused(name, wrong)
            (export / EXTRA / format_named(name).file).write_bytes(content)


def require(names: Sequence[str], pixels: ImageSpec) -> None:
    """Check that these formats can express the preprocessing, and that their packages are installed."""
    operations = _operations(pixels) if names else set()
    for name in names:
        chosen = format_named(name)
        if missing := [package for package in chosen.packages if find_spec(package) is None]:
            install = "" if is_component(name) else f"`perennial add {name}` installs it, or "
            raise ConfigError(
                f"export.formats: {name} needs {' and '.join(missing)}; nothing was done; {install}leave it out"
            )
        if not chosen.any_size and None in pixels.raw_shape:
            raise ConfigError(
                f"export.formats: {name} needs images of one size, and those of the data set differ; "
                "nothing was done; leave it out, or train on images of one size"
            )
        if lacking := sorted(operations & chosen.unsupported):
            raise ConfigError(
                f"export.formats: {name} has no operation {', '.join(lacking)}, which the preprocessing "
                f"{pixels.preprocessing} uses to resize images; nothing was done; leave it out, or train with "
                "another preprocessing or on images that need no resizing"
            )


def _operations(pixels: ImageSpec) -> set[str]:
    """Names of the TensorFlow operations of a preprocessing."""
    raw = tf.TensorSpec((None, *pixels.raw_shape), tf.uint8)
    graph = tf.function(pixels.evaluation, autograph=False).get_concrete_function(raw).graph.as_graph_def()
    inner = (node for function in graph.library.function for node in function.node_def)
    return {node.op for node in (*graph.node, *inner)}


def _pruned(graph: GraphDef, image: str, results: Sequence[str]) -> Any:
    """Wrap a frozen graph as a function from one of its nodes to its results by name."""
    function = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(graph, name=""), [])
    taken, *outputs = (function.graph.get_tensor_by_name(f"{name}:0") for name in (image, *results))
    return function.prune(taken, dict(zip(results, outputs, strict=True)))


def _load_graph(file: Path) -> Predict:
    content, graph = file.read_bytes(), GraphDef()
    text_format.Parse(content, graph) if file.suffix == ".pbtxt" else graph.ParseFromString(content)
    pruned = _pruned(graph, IMAGE, graphs.results(graph))

    return lambda images: saved_model.by_name(pruned(tf.constant(images, pruned.inputs[0].dtype)))


def _load_slim_graph(file: Path) -> Predict:
    """Load the network alone, and preprocess the images outside of it."""
    found = description(file.parents[1])
    node = graphs.output_node(found.name)
    network = _pruned(GraphDef.FromString(file.read_bytes()), graphs.INPUT, [node])
    thresholds, logits = found.confidence.thresholds, found.name in graphs.LOGITS

    def predict(images: Any) -> Outputs:
        result = network(found.pixels.evaluation(tf.constant(images)))[node]
        probabilities = (tasks.activation(found.task)(result) if logits else result).numpy()
        if thresholds is None:
            return tf.argmax(result, axis=-1).numpy(), probabilities
        return (probabilities >= np.array(thresholds, np.float32)).astype(np.int64), probabilities

    return predict


def _to_tflite(precision: Precision, graph: Any, representative: Representative) -> bytes:
    pruned, module = _pruned(graph, IMAGE, graphs.results(graph)), tf.Module()
    spec = tf.TensorSpec(pruned.inputs[0].shape, pruned.inputs[0].dtype, name=IMAGE)
    module.answer = tf.function(lambda image: pruned(image), [spec], autograph=False)  # noqa: PLW0108 - pruned has no name
    converter = tf.lite.TFLiteConverter.from_concrete_functions([module.answer.get_concrete_function()], module)
    if precision != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if precision == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if precision == "int8":
        converter.representative_dataset = lambda: ({IMAGE: image[None]} for image in representative())
    standardized = any(STANDARDIZED in node.name for node in graph.node)
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # about measured ranges
        content: bytes = _to_int8(converter) if precision == "int8" and standardized else converter.convert()
    return content


def _to_int8(converter: tf.lite.TFLiteConverter) -> bytes:
    """An int8 model that standardizes in float32: TensorFlow Lite refuses to divide by an int8 stored as 0."""
    experimental = tf.lite.experimental
    quantizer = experimental.QuantizationDebugger(converter=converter)
    measured = tf.lite.Interpreter(model_content=quantizer.calibrated_model)
    names = [tensor["name"] for tensor in measured.get_tensor_details() if STANDARDIZED in tensor["name"]]
    quantizer.options = experimental.QuantizationDebugOptions(denylisted_nodes=names)
    content: bytes = quantizer.get_nondebug_quantized_model()
    return content


def _load_tflite(file: Path) -> Predict:
    """Load a TensorFlow Lite model, to run on one core as on a phone."""
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # that it moves to LiteRT
        interpreter = tf.lite.Interpreter(model_path=str(file), num_threads=1)
    signature = interpreter.get_signature_runner()

    return lambda images: saved_model.by_name(signature(image=images))


def _to_onnx(graph: Any, _: Representative) -> bytes:
    tf2onnx = importlib.import_module("tf2onnx.convert")
    tensors = {f"{name}:0": name for name in (IMAGE, *graphs.results(graph))}
    with np.errstate(all="ignore"), suppressed("tensorflow", DEPRECATED):
        model, _ = tf2onnx.from_graph_def(
            graph,
            input_names=list(tensors)[:1],
            output_names=list(tensors)[1:],
            tensors_to_rename=tensors,
            opset=OPSET,
            custom_op_handlers={"Erfc": (_erfc, [])},
        )
    _order(model.graph)
    return bytes(model.SerializeToString(deterministic=True))


def _erfc(graph: Any, node: Any, name: str, _: object) -> None:
    """Write an operation of GELU that ONNX does not have as 1 - erf(x)."""
    shape, kind = graph.get_shape(node.output[0]), graph.get_dtype(node.output[0])
    graph.remove_node(node.name)
    erf = graph.make_node("Erf", node.input, name=f"{name}/erf", shapes=[shape], dtypes=[kind])
    one = graph.make_const(f"{name}/one", np.ones((), np.float32))
    inputs = [one.output[0], erf.output[0]]
    graph.make_node("Sub", inputs, outputs=node.output, name=name, shapes=[shape], dtypes=[kind])


def _order(graph: Any) -> None:
    """Order the nodes of an ONNX graph from the outputs back, and name them and the constants by their place.

    tf2onnx orders and numbers them arbitrarily. Graphs with loops or branches use the names, and stay.
    """
    if any(attribute.HasField("g") for node in graph.node for attribute in node.attribute):
        return
    makers = {name: node for node in graph.node for name in node.output}
    ordered: dict[str, Any] = {}  # nodes by their first output
    waiting = [makers[output.name] for output in reversed(graph.output)]
    while waiting:
        node = waiting[-1]
        needed = [makers[name] for name in node.input if name in makers]
        if missing := [each for each in needed if each.output[0] not in ordered]:
            waiting += reversed(missing)
        else:
            ordered.setdefault(waiting.pop().output[0], node)
    kept = {each.name for each in (*graph.input, *graph.output)}
    constants = {each.name: each for each in graph.initializer}
    used = dict.fromkeys(name for node in ordered.values() for name in node.input if name in constants)
    names = {name: f"constant_{number}" for number, name in enumerate(used)}
    renamed = dict(names)
    for place, node in enumerate(ordered.values()):
        node.name = f"{node.op_type}_{place}"
        made = {name: f"{node.name}:{number}" for number, name in enumerate(node.output) if name not in kept}
        renamed |= made
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [made.get(name, name) for name in node.output]
    nodes = [type(node).FromString(node.SerializeToString()) for node in ordered.values()]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    for name, new in names.items():
        constants[name].name = new
        graph.initializer.append(constants[name])
    sizes = [dim for each in (*graph.input, *graph.output) for dim in each.type.tensor_type.shape.dim]
    unknown = list(dict.fromkeys(size.dim_param for size in sizes if size.dim_param))
    for size in sizes:
        if size.dim_param:
            size.dim_param = f"size_{unknown.index(size.dim_param)}"


def _load_onnx(file: Path) -> Predict:
    runtime = importlib.import_module("onnxruntime")
    session = runtime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return lambda images: tuple(session.run(None, {IMAGE: images}))


def _tflite(precision: Precision, *, difference: float, agreement: float) -> Format:
    return Format(
        file=f"model_{precision}.tflite", convert=partial(_to_tflite, precision), load=_load_tflite,
        difference=difference, agreement=agreement, unsupported=ANTIALIASED, any_size=False,
    )  # fmt: skip


def _graph(file: str, encode: Callable[[Any], bytes]) -> Format:
    return Format(
        file=file,
        takes="float32 `image`, raw pixels",
        convert=lambda graph, _: encode(graphs.checked(graph)),
        load=_load_graph,
        difference=1e-5,
        agreement=1.0,
    )


def _binary(graph: GraphDef) -> bytes:
    return bytes(graph.SerializeToString(deterministic=True))


def description(export: Path) -> Description:
    """The description of the model in an export."""
    return Description.model_validate_json((export / DESCRIPTION).read_bytes())


FORMATS: dict[str, Format] = {
    "tflite_float32": _tflite("float32", difference=1e-4, agreement=0.999),
    "tflite_float16": _tflite("float16", difference=0.02, agreement=0.99),
    "tflite_int8": _tflite("int8", difference=1.0, agreement=0.97),
    "onnx": Format(
        file="model.onnx",
        convert=_to_onnx,
        load=_load_onnx,
        difference=1e-4,
        agreement=0.999,
        unsupported=ANTIALIASED,
        packages=("tf2onnx", "onnxruntime"),
    ),
    "frozen_graph": _graph("frozen_graph.pb", _binary),
    # The GraphDef as protobuf text, three times as large.
    "text_graph": _graph("graph.pbtxt", lambda graph: text_format.MessageToString(graph).encode()),
    "slim_graph": Format(
        file="inference_graph.pb", takes="float32 `input`, preprocessed", network=True,
        convert=lambda graph, _: _binary(graph), load=_load_slim_graph, difference=1e-5, agreement=1.0,
    ),
}  # fmt: skip
