"""Commands on a pipeline in `pipelines/`."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from support import forks
from support.git import git

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path):
    """A project with a pipeline in its top folder, and another one."""
    for folder in (tmp_path, tmp_path / "pipelines" / "birds"):
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("params.yaml", "dvc.yaml"):
            shutil.copyfile(ROOT / name, folder / name)
    (tmp_path / "flows").mkdir()
    return tmp_path


def perennial(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return forks.run("-m", "perennial", *arguments, folder=folder)


def test_an_option_before_the_command_names_the_pipeline(project):
    done = perennial(project, "--pipeline", "birds", "config", "--set", "train.epochs=7")
    assert done.returncode == 0, done.stderr
    assert "epochs: 7" in (project / "pipelines" / "birds" / "params.yaml").read_text()
    assert (project / "params.yaml").read_bytes() == (ROOT / "params.yaml").read_bytes()


def test_the_working_directory_names_it_as_well(project):
    folder = project / "pipelines" / "birds"
    (folder / "own").mkdir()
    done = perennial(folder / "own", "config", "--set", "train.epochs=7")
    assert done.returncode == 0, done.stderr
    assert "epochs: 7" in (folder / "params.yaml").read_text()


def test_paths_stay_relative_to_where_the_command_was_typed(project):
    (project / "other.yaml").write_text(
        (project / "params.yaml").read_text().replace("epochs: 30", "epochs: 9")
    )
    done = perennial(project, "--pipeline", "birds", "config", "--params", "other.yaml", "--json")
    assert json.loads(done.stdout)["train"]["epochs"] == 9


def test_an_unknown_pipeline_is_an_error_that_names_those_there_are(project):
    done = perennial(project / "flows", "--pipeline", "bird", "config")
    assert done.returncode == 2
    assert "no pipeline 'bird'" in done.stderr
    assert done.stderr.strip().endswith("it has: birds")


def test_without_a_pipeline_in_the_top_folder_those_there_are_are_named(project):
    (project / "params.yaml").unlink()
    done = perennial(project, "train")
    assert done.returncode == 2
    assert "params.yaml does not exist; the project has pipelines: birds; `perennial --pipeline" in done.stderr


def test_each_pipeline_has_a_line_in_the_status(project):
    (project / "pipelines" / "ants").mkdir()
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copyfile(ROOT / name, project / "pipelines" / "ants" / name)
    (project / "pipelines" / "ants" / "params.yaml").write_text("train: 3\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "start"]):
        git(*words, folder=project)
    done = perennial(project / "flows", "status", "--all")
    assert done.returncode == 0, done.stderr
    top, ants, problem, *_, birds = done.stdout.splitlines()
    assert top == "classifier  no champion"
    assert ants.startswith("ants")
    assert "look at: " in problem
    assert birds.startswith("birds")
    listed = json.loads(perennial(project, "status", "--all", "--json").stdout)["pipelines"]
    assert [each["name"] for each in listed] == ["", "ants", "birds"]


def test_the_versions_of_packages_are_compared_in_the_top_folder(project):
    (project / "requirements").mkdir()
    (project / "requirements" / "data.yaml").write_text('packages:\n  numpy: "0.1"\n')
    done = perennial(project / "pipelines" / "birds", "download")
    assert done.returncode == 2
    assert "expected 0.1 in ../../requirements/data.yaml" in done.stderr
