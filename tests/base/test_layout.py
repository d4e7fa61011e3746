"""What a project's pipelines share, and what each has of its own."""

from pathlib import Path

import pytest

from perennial.base import files
from perennial.base.layout import Project


@pytest.fixture
def make(tmp_path):
    def write(*names: str) -> Path:
        for name in names:
            files.write_bytes(tmp_path / name, b"")
        return tmp_path

    return write


TOP = ("params.yaml", "dvc.yaml", "flows/retrain.py")
BIRDS = ("pipelines/birds/params.yaml", "pipelines/birds/dvc.yaml")


def test_the_pipeline_of_the_top_folder_has_no_name(make):
    root = make(*TOP, "own/a/b.png")
    found = Project.find(root / "own" / "a")
    assert found == Project(root, root)
    assert found.name == ""
    assert found.shared("requirements") == Path("requirements")


def test_another_pipeline_shares_what_stands_in_the_top_folder(make):
    root = make(*TOP, *BIRDS, "pipelines/birds/own/b.png")
    found = Project.find(root / "pipelines" / "birds" / "own")
    assert found == Project(root, root / "pipelines" / "birds")
    assert found.name == "birds"
    assert found.shared("requirements") == Path("../../requirements")


def test_the_top_folder_needs_no_pipeline_of_its_own(make):
    root = make("flows/retrain.py", *BIRDS)
    assert Project.find(root / "pipelines" / "birds").root == root
    assert Project.find(root) == Project.find(root / "pipelines") == Project(root, root)
    assert [each.name for each in Project.find(root).pipelines()] == ["birds"]


def test_all_pipelines_are_listed_that_of_the_top_folder_first(make):
    root = make(
        *TOP, *BIRDS, "pipelines/ants/params.yaml", "pipelines/ants/dvc.yaml", "pipelines/no/params.yaml"
    )
    listed = Project.find(root / "pipelines" / "birds").pipelines()
    assert [each.name for each in listed] == ["", "ants", "birds"]


def test_a_folder_in_a_folder_called_pipelines_may_be_a_project_of_its_own(make):
    root = make(*TOP, *(f"work/{name}" for name in BIRDS))
    folder = root / "work" / "pipelines" / "birds"
    assert Project.find(folder) == Project(folder, folder)


def test_a_folder_with_parameters_alone_is_its_own_project(make):
    root = make(*TOP, "elsewhere/params.yaml", "elsewhere/inner/x")
    assert Project.find(root / "elsewhere").folder == root / "elsewhere"
    assert Project.find(root / "elsewhere" / "inner").folder == root


def test_a_folder_outside_of_a_project_is_the_project(make):
    root = make("some/file")
    assert Project.find(root / "some") == Project(root / "some", root / "some")
