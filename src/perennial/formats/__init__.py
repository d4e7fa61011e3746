"""The forms of an export besides the SavedModel: how each is made, asked, and how far it may be off."""

from collections.abc import Sequence
from pathlib import Path

from perennial.formats import graphs, onnx, saved_model, tflite
from perennial.formats.form import Answer, Form, Images

__all__ = ["EXTRA", "FORMATS", "Answer", "Form", "Images", "write"]
EXTRA = "assets.extra"  # TensorFlow Serving leaves that folder of an export alone
ANTIALIASED = frozenset({"ScaleAndTranslate"})  # resizing that neither TensorFlow Lite nor ONNX has


def _tflite(precision: tflite.Precision, *, difference: float, agreement: float) -> Form:
    return Form(
        file=f"model_{precision}.tflite",
        convert=tflite.converter(precision),
        runner=tflite.runner,
        difference=difference,
        agreement=agreement,
        unknown=ANTIALIASED,
        any_size=False,
    )


FORMATS: dict[str, Form] = {
    "tflite_float32": _tflite("float32", difference=1e-4, agreement=0.999),
    "tflite_float16": _tflite("float16", difference=0.02, agreement=0.99),
    "tflite_int8": _tflite("int8", difference=1.0, agreement=0.97),
    "onnx": Form(
        file="model.onnx",
        convert=onnx.converted,
        runner=onnx.runner,
        difference=1e-4,
        agreement=0.999,
        unknown=ANTIALIASED,
        needs=("tf2onnx", "onnxruntime"),
    ),
    "frozen_graph": Form(
        file="frozen_graph.pb", convert=graphs.binary, runner=graphs.runner, difference=1e-5, agreement=1.0
    ),
    "text_graph": Form(
        file="graph.pbtxt", convert=graphs.text, runner=graphs.runner, difference=1e-5, agreement=1.0
    ),
}


def write(export: Path, names: Sequence[str], representative: Images) -> None:
    """Makes these forms of the SavedModel in a folder, beside it; `representative` are training images."""
    if names:
        graph = graphs.frozen(saved_model.loaded(export))
        for name in names:
            form = FORMATS[name]
            (export / EXTRA / form.file).write_bytes(form.convert(graph, representative))
