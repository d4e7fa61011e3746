"""ONNX, by tf2onnx, and by ONNX Runtime."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from perennial.formats.form import Answer, Images
from perennial.formats.saved_model import unheard

OPSET = 18  # of ONNX 1.13 (2022), the newest that tf2onnx knows
DEPRECATED = "From %s: %s (from %s) is deprecated"  # TensorFlow's functions, which tf2onnx calls


def converted(graph: Any, _representative: Images) -> bytes:
    """A model of a frozen GraphDef."""
    convert = importlib.import_module("tf2onnx.convert")
    ends = [f"{name}:0" for name in ("image", "classes", "probabilities")]
    with np.errstate(all="ignore"), unheard("tensorflow", DEPRECATED):
        model, _ = convert.from_graph_def(graph, input_names=ends[:1], output_names=ends[1:], opset=OPSET)
    _rename(model.graph)
    return bytes(model.SerializeToString(deterministic=True))


def _rename(graph: Any) -> None:
    """Numbers the constants in the order in which they are used: of equal ones tf2onnx keeps any.

    Graphs with loops or branches stay as they are: those inside may use constants too.
    """
    if any(attribute.HasField("g") for node in graph.node for attribute in node.attribute):
        return
    constants = {each.name: each for each in graph.initializer}
    used = dict.fromkeys(name for node in graph.node for name in node.input if name in constants)
    names = {name: f"constant_{number}" for number, name in enumerate(used)}
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
    del graph.initializer[:]
    for name, new in names.items():
        constants[name].name = new
        graph.initializer.append(constants[name])


def runner(file: Path) -> Answer:
    """What ONNX Runtime answers on the CPU."""
    runtime = importlib.import_module("onnxruntime")
    session = runtime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    (image,) = session.get_inputs()
    names = ["classes:0", "probabilities:0"]
    return lambda images: tuple(session.run(names, {image.name: images}))
