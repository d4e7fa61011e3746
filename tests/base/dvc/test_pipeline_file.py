"""The dvc.yaml of a project without source."""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from perennial.base import documents
from perennial.base.dvc.pipeline_file import of_project, with_prefix
from perennial.base.errors import PerennialError
from perennial.base.project.stage_table import STAGES

OURS = Path(__file__).parents[3] / "dvc.yaml"


@pytest.mark.parametrize("prefix", ["", "../../"])
def test_digests_stand_in_place_of_the_files_of_src_and_all_else_is_kept(prefix: str) -> None:
    text = OURS.read_text(encoding="utf-8")
    made = documents.yaml_object(with_prefix(of_project(text), prefix))
    stages, ours = made.pop("stages"), YAML(typ="safe").load(text)
    before = ours.pop("stages")
    assert made == ours
    for name in STAGES:
        stage, was = stages[name], before[name]
        kept = [each for each in was["deps"] if not each.startswith("src/")]
        shared = [f"{prefix}{each}" if each.startswith("components") else each for each in kept]
        assert stage.get("deps", []) == shared
        assert stage["params"][0] == {f"{prefix}code.yaml": [f"stages.{name}"]}
        shared = [
            each for each in stage["params"][1:] if isinstance(each, dict) and "requirements" in str(each)
        ]
        assert all(key.startswith(f"{prefix}requirements/") for each in shared for key in each)
        assert len(stage["params"]) == 1 + len(was.get("params", []))
        assert {key: stage[key] for key in was if key not in {"deps", "params"}} == {
            key: was[key] for key in was if key not in {"deps", "params"}
        }


def test_comments_of_parameters_are_kept_and_those_of_source_are_not() -> None:
    made = of_project(OURS.read_text(encoding="utf-8"))
    assert "# Only the keys that training reads" in made
    assert "src/" not in made
    assert "code.yaml has a digest" in made


def test_a_stage_of_source_alone_keeps_its_digest_and_shared_dependencies_their_folder() -> None:
    text = "# A.\n\nstages:\n  one:\n    cmd: python -m perennial one\n    deps: [src/a.py]\n    params: []\n"
    made = with_prefix(of_project(text), "../../")
    assert documents.yaml_object(made)["stages"]["one"] == {
        "cmd": "python -m perennial one",
        "params": [{"../../code.yaml": ["stages.one"]}],
    }
    own = with_prefix(of_project(text.replace("src/a.py", "components")), "../../")
    assert documents.yaml_object(own)["stages"]["one"]["deps"] == ["../../components"]


@pytest.mark.parametrize("text", ["a: 1\n", "# A.\n\nstages:\n  {}\n\nplots:\n  - src/x\n"])
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(PerennialError, match=r"dvc\.yaml"):
        of_project(text)
