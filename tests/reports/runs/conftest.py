"""Runs that ended, with the files that their stages left."""

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import finished

from perennial.base import config as configuration
from perennial.base.config import Config
from perennial.release.registry import run_records

CLASSES = ("cat", "dog", "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", '"&\u202e$x$')
Record = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def ended(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the run `night-1` ended."""
    folder = tmp_path_factory.mktemp("ended")
    shutil.copy(request.config.rootpath / "params.yaml", folder)
    with contextlib.chdir(folder):
        config = configuration.load(folder / "params.yaml")
        run_records.start(config, "night-1")
        finished.leave(config, CLASSES)
        run_records.end(config, "night-1", "Completed", None, {})
    return folder


@pytest.fixture
def config(ended: Path, workspace: Path) -> Config:
    """Parameters of a copy of the folder with the run `night-1`."""
    shutil.copytree(ended, workspace, dirs_exist_ok=True)
    return configuration.load(Path("params.yaml"))


@pytest.fixture
def record(config: Config) -> Record:
    """Write the record of another run: that of `night-1` with changes; None removes a fact."""
    first = json.loads(run_records.record_file(config, "night-1").read_text(encoding="utf-8"))

    def write(run: str, **changes: Any) -> dict[str, Any]:
        content = {key: value for key, value in {**first, "run": run, **changes}.items() if value is not None}
        file = run_records.record_file(config, run)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content), encoding="utf-8")
        return content

    return write
