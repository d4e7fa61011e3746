"""The variables of what runs in a checkout."""

import os
import sys
from pathlib import Path

from perennial.base import layout
from perennial.base.dvc import repro
from perennial.base.project import source_code

HERE = str(source_code.PACKAGE.parent)


def path(python: str, checkout: Path) -> list[str]:
    return repro.environment(Path(python), checkout)["PYTHONPATH"].split(os.pathsep)


def test_source_in_a_checkout_is_what_runs_there(tmp_path: Path) -> None:
    (tmp_path / "src" / "perennial").mkdir(parents=True)
    (tmp_path / "src" / "perennial" / "__init__.py").touch()
    for python in (sys.executable, "/other/bin/python"):
        assert path(python, tmp_path) == [str(tmp_path), str(tmp_path / "src")]


def test_without_source_this_python_runs_this_code_and_another_one_its_own(tmp_path: Path) -> None:
    assert path(sys.executable, tmp_path) == [str(tmp_path), HERE]
    assert path("/other/bin/python", tmp_path) == [str(tmp_path)]


def test_a_pipeline_in_a_folder_of_its_own_runs_with_the_code_of_its_project(tmp_path: Path) -> None:
    folder = tmp_path / "pipelines" / "birds"
    folder.mkdir(parents=True)
    (tmp_path / "flows").mkdir()
    for name in ("params.yaml", "dvc.yaml"):
        (folder / name).touch()
    assert path("/other/bin/python", folder) == [str(tmp_path)]


def test_the_packages_of_this_python_are_not_put_before_its_own_modules(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(layout.sysconfig, "get_path", lambda name: HERE)
    monkeypatch.setenv("PYTHONPATH", "/given")
    assert layout.python_path() == "/given"
    assert path(sys.executable, tmp_path) == [str(tmp_path)]
