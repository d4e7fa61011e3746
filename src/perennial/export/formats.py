"""The formats of an export besides the SavedModel: converter, runtime and allowed differences of each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tensorflow as tf

from perennial.errors import ConfigError
from perennial.export import graphdef, onnx, saved_model, tflite
from perennial.export.layout import EXTRA
from perennial.export.saved_model import Predict, Representative
from perennial.preprocessing import ImageSpec

ANTIALIASED = frozenset({"ScaleAndTranslate"})  # resizing that neither TensorFlow Lite nor ONNX has


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format of an export besides the SavedModel."""

    file: str  # in assets.extra of the export
    convert: Callable[[Any, Representative], bytes]  # takes a frozen GraphDef
    load: Callable[[Path], Predict]
    difference: float  # largest allowed difference of a probability from the scored model's
    agreement: float  # smallest allowed fraction of examples with the scored model's class
    unsupported: frozenset[str] = frozenset()  # TensorFlow operations that it cannot express
    any_size: bool = True  # whether its preprocessing takes images of different sizes
    packages: tuple[str, ...] = ()  # of the extra with its name


def _tflite(precision: tflite.Precision, *, difference: float, agreement: float) -> Format:
    return Format(
        file=f"model_{precision}.tflite",
        convert=tflite.converter(precision),
        load=tflite.load,
        difference=difference,
        agreement=agreement,
        unsupported=ANTIALIASED,
        any_size=False,
    )


FORMATS: dict[str, Format] = {
    "tflite_float32": _tflite("float32", difference=1e-4, agreement=0.999),
    "tflite_float16": _tflite("float16", difference=0.02, agreement=0.99),
    "tflite_int8": _tflite("int8", difference=1.0, agreement=0.97),
    "onnx": Format(
        file="model.onnx",
        convert=onnx.convert,
        load=onnx.load,
        difference=1e-4,
        agreement=0.999,
        unsupported=ANTIALIASED,
        packages=("tf2onnx", "onnxruntime"),
    ),
    "frozen_graph": Format(
        file="frozen_graph.pb", convert=graphdef.binary, load=graphdef.load, difference=1e-5, agreement=1.0
    ),
    "text_graph": Format(
        file="graph.pbtxt", convert=graphdef.text, load=graphdef.load, difference=1e-5, agreement=1.0
    ),
}


def write(export: Path, names: Sequence[str], representative: Representative) -> None:
    """Convert the SavedModel of an export to these formats, into its assets.extra."""
    if names:
        graph = graphdef.frozen(saved_model.load(export))
        for name in names:
            content = FORMATS[name].convert(graph, representative)
            (export / EXTRA / FORMATS[name].file).write_bytes(content)


def require(names: Sequence[str], pixels: ImageSpec) -> None:
    """Check that these formats can express the preprocessing, and that their packages are installed.

    Raises:
        ConfigError: names the first format for which this is not so, and the reason.
    """
    operations = _operations(pixels) if names else set()
    for name in names:
        chosen = FORMATS[name]
        if missing := [package for package in chosen.packages if find_spec(package) is None]:
            raise ConfigError(
                f"export.formats: {name} needs {' and '.join(missing)} of the extra `{name}`; nothing was "
                f"done; pip install --require-hashes -r requirements/{name}.txt, or leave it out"
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
    graph = tf.function(pixels.evaluation).get_concrete_function(raw).graph.as_graph_def()
    inner = (node for function in graph.library.function for node in function.node_def)
    return {node.op for node in (*graph.node, *inner)}
