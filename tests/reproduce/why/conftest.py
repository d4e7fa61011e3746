"""A history that a test fills by hand."""

from pathlib import Path

import pytest
from support.histories import Hand


@pytest.fixture
def hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hand:
    """An empty history, which is the working directory."""
    folder = tmp_path / "a project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return Hand(folder)
