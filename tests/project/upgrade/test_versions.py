"""A project moves from one version of perennial to another and back, with packages that are built here."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support import wheel
from support.edits import edit
from support.git import git
from support.installed import Project
from support.parameters import change_params

from perennial.base.dvc.pipeline_file import with_prefix

pytestmark = pytest.mark.slow  # builds two wheels and trains
WHEEL = ".perennial/perennial_ml"
NEWER = {
    "pyproject.toml": ('version = "0.1.0"', 'version = "0.2.0"'),
    "src/perennial/base/config/training.py": (
        "epochs: Count | None = option(30,",
        "epochs: Count | None = option(40,",
    ),
    "src/perennial/base/config/release.py": (
        "    min_gain: float",
        '    patience: int = option(3, "how often a model may be worse", ge=0)\n    min_gain: float',
    ),
    "src/perennial/release/gate/own_limits.py": ("MB = 1e6\n", "MB = 1e6\nKB = 1e3\n"),
    "flows/retrain.py": ('"""Retrain the model. Stages', '"""Retrain the model, as 0.2.0 does. Stages'),
    "tasks/policy.py": ("GATE_TRIES = 5 ", "GATE_TRIES = 6 "),
    "infra/Caddyfile": ("{", "# of 0.2.0\n{"),
}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The packages of versions 0.1.0 and 0.2.0."""
    folder = tmp_path_factory.mktemp("versions")
    return wheel.build(folder / "a", {}), wheel.build(folder / "b", NEWER)


def upgrade(project: Project, *options: str, code: int = 0) -> dict[str, Any]:
    done = project.run("perennial", "upgrade", "--json", *options)
    assert done.returncode == code, done.stdout
    return json.loads(done.stdout[: done.stdout.rindex("}") + 1])


def stale(project: Project) -> set[str]:
    return set(json.loads(project.must("dvc", "status", "--json")))


def changed(project: Project) -> list[str]:
    return git("status", "--porcelain", folder=project.folder).split()[1::2]


def test_a_project_is_upgraded_with_its_edits_and_comes_back(packages, tmp_path) -> None:
    project = wheel.project(tmp_path / "shop", packages[0])
    assert upgrade(project, "--check")["changes"] == []
    folder = project.folder
    change_params(folder / "params.yaml", {"train.epochs": 2, "gate.min_accuracy": 0.5})
    project.must("dvc", "repro")
    edit(folder / "flows" / "retrain.py", 'UNPUBLISHED = ("waiting"', 'OWN = 1\nUNPUBLISHED = ("waiting"')
    edit(folder / "prefect.yaml", "name: perennial", "name: flowers")
    edit(folder / "dvc.yaml", "desc: The SavedModel", "desc: Our SavedModel")
    edit(folder / "tasks" / "stages.py", "6 * HOUR_S", "7 * HOUR_S")
    (folder / "infra" / "compose.yaml").unlink()
    wheel.commit(project)
    assert stale(project) == set()
    newer = Project(folder, packages[1])

    planned = upgrade(newer, "--check", code=4)
    assert changed(project) == []
    done = upgrade(newer)
    assert done == {**planned, "written": True}
    what = {each["path"]: each["what"] for each in done["changes"]}
    assert what == {
        "code.yaml": "updated", "requirements/perennial.txt": "updated", "params.yaml": "updated",
        "flows/retrain.py": "merged", "tasks/policy.py": "updated", "infra/Caddyfile": "updated",
        "infra/compose.yaml": "kept",
        f"{WHEEL}-0.1.0-py3-none-any.whl": "removed", f"{WHEEL}-0.2.0-py3-none-any.whl": "added",
    }  # fmt: skip
    assert done["run_again"] == {".": ["gate"]}
    assert done["notes"] == []  # the project has its own number of epochs
    assert "OWN = 1" in (folder / "flows" / "retrain.py").read_text()
    assert "as 0.2.0 does" in (folder / "flows" / "retrain.py").read_text()
    assert "patience: 3" in (folder / "params.yaml").read_text()
    newer.must("perennial", "config")
    assert stale(newer) == {"gate"}
    assert project.run("dvc", "repro").returncode != 0  # by the code of 0.1.0
    newer.must("dvc", "repro")
    wheel.commit(newer)
    assert {each["what"] for each in upgrade(newer, "--check")["changes"]} == {"kept"}

    back = upgrade(project)
    assert back["run_again"] == {".": ["gate"]}
    git("diff", "--quiet", "HEAD~1", "--", ".", ":!dvc.lock", ":!.perennial", folder=folder)
    project.must("dvc", "repro")
    git("add", "-A", folder=folder)  # the wheel of 0.1.0 is there again
    git("diff", "--quiet", "HEAD~1", folder=folder)


def test_all_pipelines_of_a_project_are_upgraded(packages: tuple[Path, Path], tmp_path: Path) -> None:
    project = wheel.project(tmp_path / "shop", packages[0])
    birds = project.folder / "pipelines" / "birds"
    birds.mkdir(parents=True)
    shutil.copy(project.folder / "params.yaml", birds)
    text = with_prefix((project.folder / "dvc.yaml").read_text(), "../../")
    (birds / "dvc.yaml").write_text(text.replace("desc: The", "desc: Its"))
    wheel.commit(project)
    newer = Project(project.folder, packages[1])
    done = upgrade(newer)
    assert done["run_again"] == {".": ["gate"], "birds": ["gate"]}
    assert done["notes"] == [
        f"{file}: the default of train.epochs is 40 now; yours stays 30"
        for file in ("params.yaml", "pipelines/birds/params.yaml")
    ]
    assert (birds / "params.yaml").read_text() == (project.folder / "params.yaml").read_text()
    assert (birds / "dvc.yaml").read_text() == text.replace("desc: The", "desc: Its")


def test_a_version_is_named_and_fetched_from_the_index(packages: tuple[Path, Path], tmp_path: Path) -> None:
    project = wheel.project(tmp_path / "shop", packages[0])
    index = {f"{tool}_{name}": str(packages[1].parent) for tool in ("UV", "PIP") for name in ("FIND_LINKS",)}
    index |= {"PIP_NO_INDEX": "1", "UV_NO_INDEX": "1"}
    public = project.run("perennial", "upgrade", "0.2.0")
    assert (public.returncode, "the public index is not asked" in public.stdout) == (2, True), public.stdout
    missing = project.run("perennial", "upgrade", "0.3.0", **index)
    assert (missing.returncode, "Traceback" in missing.stdout, changed(project)) == (1, False, [])
    assert "perennial-ml==0.3.0 cannot be installed" in missing.stdout
    wrong = project.run("perennial", "upgrade", "latest", **index)
    assert (wrong.returncode, "VERSION must be one" in wrong.stdout) == (2, True)
    done = project.run("perennial", "upgrade", "0.2.0", **index)
    assert (done.returncode, "perennial 0.1.0 -> 0.2.0" in done.stdout) == (0, True), done.stdout
    assert 'perennial: "0.2.0"' in (project.folder / "code.yaml").read_text()
    assert "perennial-ml==0.2.0" in (project.folder / "requirements" / "perennial.txt").read_text()
    assert [file.name.split("-")[1] for file in (project.folder / ".perennial").glob("*.whl")] == ["0.2.0"]
    git("checkout", "-q", ".", folder=project.folder)
    git("clean", "-fdq", folder=project.folder)
    (built,) = packages[1].parent.glob("*.whl")
    done = project.run("perennial", "upgrade", str(built))
    assert (done.returncode, "perennial 0.1.0 -> 0.2.0" in done.stdout) == (0, True), done.stdout
