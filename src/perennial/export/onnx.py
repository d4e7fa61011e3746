"""ONNX: conversion with tf2onnx, inference with ONNX Runtime."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from perennial.export.saved_model import Predict, Representative, suppressed

OPSET = 18  # of ONNX 1.13 (2022), the newest in tf2onnx
DEPRECATED = "From %s: %s (from %s) is deprecated"  # TensorFlow functions that tf2onnx calls


def convert(graph: Any, _representative: Representative) -> bytes:
    """Convert a frozen GraphDef."""
    tf2onnx = importlib.import_module("tf2onnx.convert")
    names = [f"{name}:0" for name in ("image", "classes", "probabilities")]
    with np.errstate(all="ignore"), suppressed("tensorflow", DEPRECATED):
        model, _ = tf2onnx.from_graph_def(graph, input_names=names[:1], output_names=names[1:], opset=OPSET)
    _rename(model.graph)
    return bytes(model.SerializeToString(deterministic=True))


def _rename(graph: Any) -> None:
    """Number the constants in order of use, since tf2onnx keeps an arbitrary one of several equal ones.

    Graphs with loops or branches are left alone: their subgraphs may use constants too.
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


def load(file: Path) -> Predict:
    """Load a model into ONNX Runtime, on the CPU."""
    runtime = importlib.import_module("onnxruntime")
    session = runtime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    (image,) = session.get_inputs()
    names = ["classes:0", "probabilities:0"]
    return lambda images: tuple(session.run(names, {image.name: images}))
