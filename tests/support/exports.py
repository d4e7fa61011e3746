"""Exports and decisions made by hand: what publishing looks at, in files of a few bytes."""

import itertools
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from perennial.base import files
from perennial.base.config import Config
from perennial.model import export_layout
from perennial.release.publishing import fetch_version
from perennial.release.publishing.publish import verified_digests
from perennial.release.publishing.version_layout import AllowedExport, Published

NUMBER = itertools.count()


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


@dataclass
class Place:
    """A folder or URL to publish to, and the module that does it."""

    config: Config
    url: str
    module: ModuleType

    def allowed(self, model: str, card: str = "") -> AllowedExport:
        export = write_export(self.config, model)
        export = export.rename(export.with_name(f"export-{next(NUMBER)}"))
        if card:
            (export / "README.md").write_text(card)
            list_files(export)
        digests = verified_digests(export)
        return AllowedExport(export=export, digests=digests, decision={"promote": True}, provenance=b"{}")

    def add(self, model: str, card: str = "") -> Published:
        return self.module.add(self.url, self.allowed(model, card))

    def roll_back(self, version: int | None = None) -> Published:
        return self.module.roll_back(self.url, version)

    def read(self) -> str:
        """The model that a reader gets."""
        version = fetch_version.find(self.url)
        graph, _ = version.store.get_bytes(f"{version.prefix}saved_model.pb")
        return graph.decode().removeprefix("graph of ")
