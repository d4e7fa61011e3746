"""Files that no stage made are never replaced or removed."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from support import forks

from perennial.base import files
from perennial.base.config import Config
from perennial.base.config.paths import Paths
from perennial.base.errors import ConfigError
from perennial.base.project.stage_table import STAGES
from perennial.base.stage_state import outputs

ROOT = Path(__file__).parents[3]
Load = Callable[..., Config]


def write(*names: str) -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("mine")


def perennial(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [forks.python(), "-m", "perennial", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def make_clean() -> str:
    """In a copy of the project's Makefile with the packages of this Python."""
    shutil.copy(ROOT / "Makefile", "Makefile")
    Path("src").symlink_to(ROOT / "src")
    Path(".venv").symlink_to(Path(sys.executable).parents[1])
    return subprocess.run(["make", "clean"], capture_output=True, text=True, check=True).stdout


def test_the_outputs_are_those_of_dvc_yaml() -> None:
    stages = YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"]
    kinds = ("outs", "metrics", "plots")
    listed = {name: [out for kind in kinds for out in stage.get(kind, ())] for name, stage in stages.items()}
    keys = {
        name: [out if isinstance(out, str) else next(iter(out)) for out in outs]
        for name, outs in listed.items()
    }
    assert keys == {
        name: [str(getattr(Paths, output)) for output in stage.outputs] for name, stage in STAGES.items()
    }
    apart = [out for outs in listed.values() for out in outs if not isinstance(out, str)]
    assert apart == [{str(getattr(Paths, name)): {"cache": False}} for name in outputs.IN_GIT]


def test_the_curves_are_those_that_dvc_plots() -> None:
    plots = YAML(typ="safe").load(ROOT / "dvc.yaml")["plots"]
    files = [file for plot in plots for shown in plot.values() for file in shown["y"]]
    assert {file.rpartition("/")[2] for file in files if file.startswith(str(Paths.curves))} == outputs.CURVES


def test_an_empty_and_a_marked_folder_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    for content in ("first", "second"):
        with outputs.new_folder(tmp_path / "records", "convert") as folder:
            (folder / content).touch()
    assert {path.name for path in (tmp_path / "records").iterdir()} == {files.MARK, "second"}


@pytest.mark.parametrize("foreign", ["photo.jpg", "deep/photo.jpg", ".hidden", ""], ids=repr)
def test_a_folder_that_no_stage_made_or_a_file_is_not_replaced(tmp_path: Path, foreign: str) -> None:
    write(str(tmp_path / "raw" / foreign))
    with pytest.raises(ConfigError, match=r"raw"), outputs.new_folder(tmp_path / "raw", "download"):
        pass
    assert (tmp_path / "raw" / foreign).read_text() == "mine"


@pytest.mark.parametrize(("size", "ours"), [(4, True), (5, False)])
def test_an_output_without_a_mark_is_known_by_dvc_lock(workspace: Path, size: int, ours: bool) -> None:
    write("data/raw/old")
    out = {"path": "data/raw", "size": size, "nfiles": 1}
    Path("dvc.lock").write_text(json.dumps({"stages": {"download": {"cmd": "download", "outs": [out]}}}))
    with nullcontext() if ours else pytest.raises(ConfigError):
        outputs.require_replaceable([Path("data/raw")])


@pytest.mark.parametrize(
    ("stage", "taken"),
    [
        ("download", "data/raw/cat.jpg"),
        ("convert", "data/records/cat.jpg"),
        ("train", "metrics/curves/mine.csv"),
        ("train", "metrics/training.json/mine.json"),  # a folder where a stage writes a file
    ],
)
@pytest.mark.usefixtures("workspace")
def test_flow_and_stage_refuse_paths_that_hold_other_files(stage: str, taken: str) -> None:
    write(taken)
    for command in ("config", stage):
        done = perennial(command)
        assert (done.returncode, taken.rpartition("/")[0] in done.stderr) == (2, True), done.stderr
    assert Path(taken).read_text() == "mine"


def test_a_file_that_git_tracks_is_not_replaced(load: Load, tmp_path_factory: pytest.TempPathFactory) -> None:
    write("metrics/training.json", "metrics/metrics.json")
    # git answers for no path at all where one is outside the repository
    (outside := tmp_path_factory.mktemp("outside") / "report.html").touch()
    Path("report.html").symlink_to(outside)
    config = load()
    for command in ("init -q", "add metrics/training.json"):
        subprocess.run(["git", *command.split()], check=True)
    done = perennial("config")
    said = "metrics/training.json is a file that git tracks" in done.stderr
    assert (done.returncode, said) == (2, True), done.stderr
    assert "metrics.json" not in done.stderr
    assert outputs.clean_outputs(config.paths) == [Path("metrics/training.json")]


def test_clean_removes_outputs_and_nothing_else(load: Load) -> None:
    config = load(**{"dataset.path": "data/photos", "dataset.name": "image_folder"})
    mine = (
        "data/photos/cat/1.jpg", "models/imagenet.keras", "metrics/notes.txt", ".work/downloads/train.tar",
        ".work/mine.tar", "runs/1/run.json",
    )  # fmt: skip
    write(*mine)
    for stage, name in (("download", "raw"), ("convert", "records"), ("export", "export")):
        with outputs.new_folder(getattr(config.paths, name), stage):
            pass
    made = ("data/validation.json", "metrics/curves/training.csv", ".work/train/a/step-1", ".work/stage.lock")
    write(*made, "report.html")
    make_clean()
    left = {str(path) for path in Path().rglob("*") if path.is_file() and "src" not in path.parts}
    assert left == {*mine, "Makefile", "params.yaml"}
    assert not Path("data/records").exists()


def test_clean_keeps_output_folders_that_no_stage_made(load: Load) -> None:
    mine = ("data/raw/1.jpg", "metrics/decision.json/notes.txt")
    write(*mine)
    assert set(outputs.clean_outputs(load().paths)) == {Path(file).parent for file in mine}
    assert [Path(file).read_text() for file in mine] == ["mine", "mine"]


def test_clean_removes_no_output_while_params_yaml_is_wrong(workspace: Path) -> None:
    write("data/raw/1.jpg")
    (workspace / "params.yaml").write_text("paths: {}\n")
    with pytest.raises(subprocess.CalledProcessError):
        make_clean()
    assert (Path("data/raw/1.jpg").exists(), Path(".venv").exists()) == (True, True)
