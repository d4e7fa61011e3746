"""`perennial new --pipeline`: a further pipeline of a project, whole or not at all."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from support import raw
from support.edits import edit
from support.git import git
from typer.testing import CliRunner

from perennial.base import config
from perennial.base.errors import ConfigError, DataError
from perennial.base.layout import Project
from perennial.cli import app
from perennial.project.new.new import add, new


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    new(folder / "shop")
    return folder / "shop"


@pytest.fixture
def project(made: Path, template_once: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(shutil.copytree(made, tmp_path / "shop"))
    return tmp_path / "shop"


def ignored(file: str) -> bool:
    return not subprocess.run(["git", "check-ignore", "--quiet", file], check=False).returncode


def test_a_new_pipeline_finds_what_all_share(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add("birds", data="mnist")
    assert [each.name for each in Project.find().pipelines()] == ["", "birds"]
    monkeypatch.chdir(project / "pipelines" / "birds")
    assert config.load(Path("params.yaml")).dataset.name == "mnist"
    stages = YAML(typ="safe").load(Path("dvc.yaml"))["stages"]
    named = {
        next(iter(each)) for stage in stages.values() for each in stage["params"] if isinstance(each, dict)
    }
    assert {"../../code.yaml", "../../requirements/train.yaml"} <= named
    assert all(Path(name).is_file() for name in named if name.startswith("../../"))
    assert {file.name for file in Path("pins").iterdir()} == {
        "baseline.json", "champion.json", "exclusions.json", "source.json", "weights.json",
    }  # fmt: skip
    assert all(map(ignored, (".work/x", "runs/x", "data/x", "own/photo.png")))
    assert not ignored("own/README.md")


def test_photographs_are_found_from_the_pipelines_folder(project: Path) -> None:
    raw.write_pictures(Path("photos"), each=6, side=60)
    done = CliRunner().invoke(app, ["new", "--pipeline", "cats", "--photos", "photos"])
    assert done.exit_code == 0, done.output
    folder = project / "pipelines" / "cats"
    text = YAML(typ="safe").load(folder / "params.yaml")
    assert (folder / text["dataset"]["path"]).resolve() == project / "photos"
    assert done.output.splitlines()[-1] == "next: cd pipelines/cats && git add . && git commit && perennial run"


@pytest.mark.parametrize("name", ["Birds", "../birds", "a_b", ""])
def test_a_name_that_makes_no_tag_is_refused(project: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"the name of a pipeline|exists"):
        add(name)


def test_nothing_is_left_of_one_that_could_not_be_made(project: Path) -> None:
    (project / "photos").mkdir()
    with pytest.raises(DataError):
        add("birds", photos=Path("photos"))
    assert list((project / "pipelines").iterdir()) == []


def test_changes_of_the_stages_are_taken_over_and_a_second_one_and_none_in_no_project_is_made(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(project / "dvc.yaml", "desc: The", "desc: Our")
    add("birds")
    assert "desc: Our" in (project / "pipelines" / "birds" / "dvc.yaml").read_text()
    with pytest.raises(ConfigError, match="birds exists; nothing was made"):
        add("birds")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="is no project"):
        add("birds")


def require_passes_test(monkeypatch: pytest.MonkeyPatch, *pipeline: str) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(config.__file__).parents[3]))
    command = [sys.executable, "-m", "perennial", *pipeline, "test"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, "all stages passed" in done.stdout) == (0, True), done.stderr


@pytest.mark.slow
def test_a_further_pipeline_is_tried_on_a_small_sample(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add("birds", data="digits")
    before = sorted(path for path in project.rglob("*") if ".git" not in path.parts)
    require_passes_test(monkeypatch, "--pipeline", "birds")
    assert sorted(path for path in project.rglob("*") if ".git" not in path.parts) == before


@pytest.mark.slow
def test_a_project_in_a_larger_repository_is_tried_on_a_small_sample(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    git("init", "-q", tmp_path / "monorepo")
    new(tmp_path / "monorepo" / "vision")
    monkeypatch.chdir(tmp_path / "monorepo" / "vision")
    git("add", ".")
    git("commit", "-qm", "Add the project")
    require_passes_test(monkeypatch)
