"""A flow as a command."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.parameters import change_params

from perennial.config import Config
from tasks.command import check_parameters
from tasks.dvc import StageFailed

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def unchecked() -> None:
    """A process that has not checked its parameters."""
    check_parameters.cache_clear()


def test_all_invalid_parameters_are_reported(workspace: Path) -> None:
    change_params(workspace / "params.yaml", {"train.epochs": -1, "train.stop_treshold": 0.9})
    with pytest.raises(StageFailed) as failed:
        check_parameters()
    assert failed.value.exit_code == 2
    assert [name in failed.value.message for name in ("epochs", "stop_treshold")] == [True, True]


def test_output_paths_with_other_files_are_refused(workspace: Path) -> None:
    (workspace / "photos").mkdir()
    (workspace / "photos" / "cat.jpg").touch()
    change_params(workspace / "params.yaml", {"paths.raw": "photos"})
    with pytest.raises(StageFailed) as failed:
        check_parameters()
    assert (failed.value.exit_code, "photos" in failed.value.message) == (2, True)


def test_parameters_are_checked_once_in_a_process(load: Callable[..., Config], workspace: Path) -> None:
    check_parameters()
    (workspace / "params.yaml").unlink()
    check_parameters()


@pytest.mark.parametrize(("option", "code"), [("--help", 0), ("--epochs=2", 2)])
def test_options_are_parsed_before_anything_runs(tmp_path: Path, option: str, code: int) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "flows.retrain", option]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "usage:" in done.stdout + done.stderr) == (code, True)


@pytest.mark.parametrize(
    "repository",
    [
        "https://gh_secret@host.example/project.git",
        "https://me:gh_secret@host.example/project.git",
        "https://host.example/project.git?token=gh_secret",
        "ssh://git:gh_secret@host.example/project.git",
    ],
)
def test_credentials_in_the_repository_s_address_are_not_deployed(tmp_path: Path, repository: str) -> None:
    nobody = {"PREFECT_API_URL": "http://127.0.0.1:1/api", "PERENNIAL_REPOSITORY": repository}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **nobody}
    command = [sys.executable, "-m", "tasks.deploy"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "gh_secret" in done.stdout + done.stderr) == (2, False)
