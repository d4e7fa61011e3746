"""The files that MLflow wants beside an export."""

import json

from perennial.base import documents, files
from perennial.model import export_layout
from perennial.reports.sinks import mlflow_model


def test_mlflow_learns_the_shape_of_images_and_the_packages(tmp_path):
    description = {"pixels": {"height": None, "width": None, "channels": 3}, "classes": ["cat", "dog"]}
    files.write_json(tmp_path / "export" / export_layout.DESCRIPTION, description)
    mlflow_model.write(tmp_path / "export", tmp_path, run="7")
    model = documents.read_json(tmp_path / "MLmodel")
    (image,) = json.loads(model["signature"]["inputs"])
    assert image["tensor-spec"] == {"dtype": "uint8", "shape": [-1, -1, -1, 3]}
    assert model["flavors"]["tensorflow"]["saved_model_dir"] == mlflow_model.EXPORT
    names = [line.partition("==")[0] for line in (tmp_path / "requirements.txt").read_text().splitlines()]
    assert names == ["mlflow", "numpy", "tensorflow"]
