"""Exports and decisions made by hand: what publishing looks at, in files of a few bytes."""

from pathlib import Path

from perennial.base import files
from perennial.base.config import Config
from perennial.model import export_layout


def write_export(config: Config, model: str = "m", data: str = "d") -> Path:
    """An export of a model with that digest, trained on data with that one, and the decision to promote it."""
    export = config.paths.export
    with files.new_folder(export) as folder:
        (folder / "saved_model.pb").write_text(f"graph of {model}")
        (folder / "assets").mkdir()
        (folder / "assets" / "labels.txt").write_text("0:cat\n")
        (folder / "variables").mkdir()
        (folder / "variables" / "variables.index").write_text(f"weights of {model}")
        files.write_json(folder / export_layout.DESCRIPTION, {"weights_sha256": model, "data": data})
    list_files(export)
    decide(config, model=model, data=data)
    return export


def list_files(export: Path) -> None:
    """Writes the list of an export's files as they are, as the export stage does."""
    (export / export_layout.DIGESTS).unlink(missing_ok=True)
    files.write_json(export / export_layout.DIGESTS, files.digests(export))


def decide(config: Config, *, promote: bool = True, model: str = "m", data: str = "d") -> None:
    """Writes the decision on a model."""
    reasons = ["test accuracy 0.98 reaches 0.97" if promote else "test accuracy 0.5 is below 0.97"]
    candidate = {"accuracy": 0.98, "data": data, "examples": 9, "loss": 0.1, "model": model}
    decision = {"promote": promote, "reasons": reasons, "candidate": candidate, "champion": None}
    files.write_json(config.paths.decision, decision)


def content(folder: Path) -> dict[str, bytes]:
    """The files under a folder, without those that publishing adds."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in {"published.json", "provenance.json"}
    }
