"""A run to report on."""

import contextlib
import shutil

import pytest
from support import finished

from perennial.base import config as configuration
from perennial.model.evaluation import plots

CLASSES = ("cat", "dog", "owl")


@pytest.fixture(scope="session")
def left(request, tmp_path_factory):
    """A folder with all files of a run."""
    folder = tmp_path_factory.mktemp("left")
    shutil.copy(request.config.rootpath / "params.yaml", folder)
    with contextlib.chdir(folder):
        finished.leave(configuration.load(folder / "params.yaml"), CLASSES)
    return folder


@pytest.fixture
def config(left, workspace):
    """Parameters of a run, in a copy of its folder."""
    shutil.copytree(left, workspace, dirs_exist_ok=True)
    return configuration.load(workspace / "params.yaml")


@pytest.fixture
def undrawn(monkeypatch):
    """The page has empty plots, which take time to draw."""
    monkeypatch.setattr(plots.Plot, "svg", lambda _: "<svg></svg>")
