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
WORK = tuple(f"work/{name}" for name in BIRDS)


@pytest.mark.parametrize(
    ("names", "start", "root", "folder"),
    [
        ((*TOP, "own/a/b.png"), "own/a", "", ""),
        ((*TOP, *BIRDS, "pipelines/birds/own/b.png"), "pipelines/birds/own", "", "pipelines/birds"),
        (("flows/retrain.py", *BIRDS), "pipelines/birds", "", "pipelines/birds"),
        (("flows/retrain.py", *BIRDS), "pipelines", "", ""),
        ((*TOP, *WORK), "work/pipelines/birds", "work/pipelines/birds", "work/pipelines/birds"),
        ((*TOP, "elsewhere/params.yaml"), "elsewhere", "elsewhere", "elsewhere"),
        ((*TOP, "elsewhere/params.yaml", "elsewhere/inner/x"), "elsewhere/inner", "", ""),
        (("some/file",), "some", "some", "some"),
    ],
)
def test_a_folder_is_of_a_pipeline_of_a_project(make, names, start, root, folder):
    top = make(*names)
    assert Project.find(top / start) == Project(top / root, top / folder)


def test_another_pipeline_has_the_name_of_its_folder_and_shares_what_stands_in_the_top_folder(make):
    root = make(*TOP, *BIRDS)
    assert (Project.find(root).name, Project.find(root).shared("a")) == ("", Path("a"))
    birds = Project.find(root / "pipelines" / "birds")
    assert (birds.name, birds.shared("requirements")) == ("birds", Path("../../requirements"))


def test_all_pipelines_are_listed_that_of_the_top_folder_first(make):
    root = make(
        *TOP, *BIRDS, "pipelines/ants/params.yaml", "pipelines/ants/dvc.yaml", "pipelines/no/params.yaml"
    )
    birds = Project.find(root / "pipelines" / "birds")
    assert [each.name for each in birds.pipelines()] == ["", "ants", "birds"]
    (root / "dvc.yaml").unlink()
    assert [each.name for each in birds.pipelines()] == ["ants", "birds"]
