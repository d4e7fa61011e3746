"""An export as a model of MLflow, which `mlflow models serve` loads with its TensorFlow flavor.

Format: https://mlflow.org/docs/latest/ml/model/#storage-format
"""

import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from perennial.base import documents, files
from perennial.model import export_layout

EXPORT = "export"  # folder of the SavedModel beside MLmodel
PACKAGES = ("mlflow-skinny", "numpy", "tensorflow")


def write(export: Path, folder: Path, *, run: str) -> None:
    """Write the files that MLflow wants beside the SavedModel."""
    pinned = {name: version(name) for name in PACKAGES}
    # The server needs all of MLflow, a training only its client.
    requirements = [f"{name.removesuffix('-skinny')}=={number}" for name, number in pinned.items()]
    model = {
        "artifact_path": "model",
        "flavors": {
            "python_function": {
                "env": {"virtualenv": "python_env.yaml"},
                "loader_module": "mlflow.tensorflow",
                "python_version": platform.python_version(),
            },
            "tensorflow": {
                "meta_graph_tags": ["serve"],
                "saved_model_dir": EXPORT,
                "signature_def_key": "serving_default",
            },
        },
        "mlflow_version": pinned["mlflow-skinny"],
        "run_id": run,
        "signature": _signature(documents.read_json(export / export_layout.DESCRIPTION)),
    }
    environment = {
        "python": platform.python_version(),
        "build_dependencies": ["pip"],
        "dependencies": ["-r requirements.txt"],
    }
    # JSON is YAML, too.
    files.write_json(folder / "MLmodel", model)
    files.write_json(folder / "python_env.yaml", environment)
    files.write_bytes(folder / "requirements.txt", "".join(f"{line}\n" for line in requirements).encode())


def _signature(description: dict[str, Any]) -> dict[str, str]:
    """What `serving_default` takes and gives, in the form of MLflow."""
    pixels = description["pixels"]
    sides = [pixels[side] or -1 for side in ("height", "width")]
    classes = len(description["classes"])
    return {
        "inputs": json.dumps([_tensor("image", "uint8", [-1, *sides, pixels["channels"]])]),
        "outputs": json.dumps(
            [_tensor("classes", "int64", [-1]), _tensor("probabilities", "float32", [-1, classes])]
        ),
    }


def _tensor(name: str, kind: str, shape: list[int]) -> dict[str, Any]:
    return {"name": name, "type": "tensor", "tensor-spec": {"dtype": kind, "shape": shape}}
