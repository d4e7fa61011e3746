"""A project's folder to start in."""

from pathlib import Path

import pytest


@pytest.fixture
def project(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The workspace; no network, and no cache of Keras."""
    monkeypatch.setenv("KERAS_HOME", str(workspace / "keras"))
    return workspace
