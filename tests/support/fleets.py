"""Further pipelines beside the one in a project's top folder."""

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]


def add_pipeline(project: Path, name: str) -> Path:
    """Make `pipelines/NAME` with the project's parameters; returns its folder."""
    folder = project / "pipelines" / name
    shutil.copytree(project / "pins", folder / "pins")
    shutil.copy(project / "params.yaml", folder)
    (folder / "own").mkdir()
    shutil.copy(project / "own" / "README.md", folder / "own")
    shared = re.compile(r"^(\s+- )(src/|environment/|components)", re.MULTILINE)
    text = (project / "dvc.yaml").read_text(encoding="utf-8")
    (folder / "dvc.yaml").write_text(shared.sub(r"\1../../\2", text), encoding="utf-8")
    return folder
