"""A project's folder to start in."""

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def project(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The workspace, with the presets; no network, and no cache of Keras."""
    shutil.copytree(ROOT / "params", "params")
    monkeypatch.setenv("KERAS_HOME", str(workspace / "keras"))
    return workspace
