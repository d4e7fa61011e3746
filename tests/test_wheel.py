"""The wheel, installed into an empty environment."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent


def run(*command: str | Path, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel; its dependencies are those of this Python."""
    folder = tmp_path_factory.mktemp("wheel")
    run(BIN / "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    install = ("install", "-q", "--no-deps", "--no-index", wheel)
    run(sys.executable, "-m", "pip", "--python", python, *install, cwd=folder)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    # A path in a .pth file comes last, and .pth files in it are ignored: the editable install stays unseen.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python.parent


def test_the_code_is_that_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    file = run(installed / "python", "-c", "import perennial; print(perennial.__file__)", cwd=tmp_path)
    assert Path(file).is_relative_to(installed.parent)


def test_help_lists_the_stages(installed: Path, tmp_path: Path) -> None:
    assert "download" in run(installed / "perennial", "--help", cwd=tmp_path)


@pytest.mark.slow
def test_the_models_are_listed(installed: Path, tmp_path: Path) -> None:
    models = json.loads(run(installed / "perennial", "models", "--json", cwd=tmp_path))
    assert "mnist_cnn" in {model["name"] for model in models}


def test_every_file_of_the_package_is_in_the_wheel(installed: Path) -> None:
    (package,) = (installed.parent / "lib").glob("python*/site-packages/perennial")
    names = [
        {file.relative_to(folder) for file in folder.rglob("*") if file.is_file() and file.suffix != ".pyc"}
        for folder in (ROOT / "src" / "perennial", package)
    ]
    assert names[0] == names[1]


def test_a_release_is_refused_until_all_is_committed_and_dated(tmp_path: Path) -> None:
    (tmp_path / "infra").mkdir()
    shutil.copy(ROOT / "infra" / "release.py", tmp_path / "infra")
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.1.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("## 0.1.0 (unreleased)\n")
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b")
    run(*git, "init", "-q", cwd=tmp_path)
    run(sys.executable, "-m", "dvc", "init", "-q", cwd=tmp_path)
    run(*git, "commit", "-qm", "start", cwd=tmp_path)
    run(*git, "tag", "-am", "before", "perennial-0.1.0", cwd=tmp_path)
    command = [sys.executable, tmp_path / "infra" / "release.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    reasons = [line.partition(":")[0] for line in done.stderr.splitlines()]
    assert reasons == [
        "release",
        "- files are not committed",
        "- the tag perennial-0.1.0 exists",
        "- CHANGELOG.md needs the heading `## 0.1.0 (YYYY-MM-DD)`, and has '## 0.1.0 (unreleased)'",
    ]
