"""A parameter that changes while the training runs, where nothing compares it: dvc.lock is then wrong."""

from pathlib import Path

import pytest
from support.edits import edit
from support.parameters import change_params
from support.pipelines import Project, make

# What the training of this project writes about itself, and the edit: DVC reads the parameters again after it.
EDITED = """
inputs = {"params": {"params.yaml": {"train.seed": seed}}, "code": {}}
pathlib.Path("metrics/training.json").write_text(json.dumps({"inputs": inputs}))
text = pathlib.Path("params.yaml").read_text()
pathlib.Path("params.yaml").write_text(text.replace("seed: 5\\n", "seed: 6\\n"))
"""
OTHER_CHAMPION = """
decision["inputs"] = {"params": {"pins/champion.json": {"version": "v0.0.9"}}}
pathlib.Path("metrics/decision.json").write_text(json.dumps(decision))
"""


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose dvc.lock and params.yaml have another seed than its training used."""
    project = make(tmp_path_factory.mktemp("wrong") / "base")
    with (project.folder / "train.py").open("a") as stream:
        stream.write(EDITED)
    edit(project.folder / "dvc.yaml", "metrics/metrics.json]", "metrics/metrics.json, metrics/training.json]")
    change_params(project.folder / "params.yaml", {"train.seed": 5})
    project.git("commit", "-qam", "Seed")
    project.reproduce()
    assert "\n  seed: 6\n" in (project.folder / "params.yaml").read_text()
    assert project.must("dvc", "status", "-q") == ""
    return project


@pytest.mark.fast_rows("command0")
@pytest.mark.parametrize(
    "command", [("record", "night-1"), ("promote",), ("promote", "--force", "Ada", "--because", "it is good")]
)
def test_no_version_is_made_of_it(project: Project, command: tuple[str, ...]) -> None:
    before = project.git("for-each-ref")
    said = project.refused(4, *command)
    assert "recorded wrongly: train.seed is 6 in dvc.lock, and the training used 5" in said
    assert (project.git("for-each-ref"), project.git("ls-remote", "origin", "refs/tags/*")) == (before, "")


def test_no_version_is_made_of_a_decision_about_another_champion(tmp_path: Path) -> None:
    project = make(tmp_path / "base")
    with (project.folder / "gate.py").open("a") as stream:
        stream.write(OTHER_CHAMPION)
    project.git("commit", "-qam", "Gate")
    project.reproduce()
    said = project.refused(4, "record", "night-1")
    assert 'version in pins/champion.json is null in dvc.lock, and gate used "v0.0.9"' in said
    assert project.tags() == []
