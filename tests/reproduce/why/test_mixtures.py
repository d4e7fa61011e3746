"""Causes found by running mixtures: real git and DVC, and stages that take a moment."""

import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from support.parameters import change_params
from support.pipelines import ROOT, Project

pytestmark = pytest.mark.slow  # each state runs DVC and two stages
PIPELINE = """\
stages:
  download: {cmd: python fetch.py, deps: [photos, fetch.py], params: [dataset.path], outs: [data/raw]}
  train:
    cmd: python train.py
    deps: [data/raw, src/code, train.py]
    params: [train.learning_rate, train.batch_size, train.epochs, train.seed]
    outs: [metrics/metrics.json, metrics/predictions.npz]
"""
FETCH = "import shutil; shutil.copytree('photos', 'data/raw')\n"
# The score depends on the first word of the images, on the code, and on the parameters; the rest is noise.
TRAIN = """\
import json, pathlib, sys
import numpy as np
from ruamel.yaml import YAML
from perennial.model.evaluation.predictions import Predictions
train = YAML(typ="safe").load(pathlib.Path("params.yaml"))["train"]
if train["batch_size"] == 7:
    sys.exit("a batch size of 7 does not go together with the rest")
code = pathlib.Path("src/code").read_text()
wrong = int(pathlib.Path("data/raw/list").read_text().split()[0]) + 20 * (train["learning_rate"] > 1)
wrong += 20 * code.startswith("broken") + train["seed"] % 2
labels = np.arange(100) % 2
predicted = np.where(np.arange(100) < wrong, 1 - labels, labels)
pathlib.Path("metrics").mkdir(exist_ok=True)
Predictions(
    labels=labels, probabilities=np.eye(2, dtype=np.float32)[predicted], classes=("cat", "dog"), split="test",
    data="d", split_digest="s", model=str(wrong),
).write(pathlib.Path("metrics/predictions.npz"))
scores = {"accuracy": 1 - wrong / 100, "examples": 100}
pathlib.Path("metrics/metrics.json").write_text(json.dumps(scores))
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project whose first commit was run; the stages import perennial from the working tree."""
    project = Project(tmp_path / "a project", tmp_path / "home")
    project.start({
        "params.yaml": (ROOT / "params.yaml").read_text(), "dvc.yaml": PIPELINE, "fetch.py": FETCH,
        "train.py": TRAIN, "src/code": "1", "photos/list": "5 wrong",
        "requirements/base.txt": f"numpy=={version('numpy')}\n", ".dvcignore": "/src/perennial\n",
        ".gitignore": "/data/\n/metrics/\n/runs/\n/.work/\n__pycache__/\n",
    })  # fmt: skip
    (project.folder / "src" / "perennial").symlink_to(ROOT / "src" / "perennial")
    change_params(project.folder / "params.yaml", {"dataset.path": "photos"})
    commit(project, {}, run=True)
    return project


def commit(project: Project, files: Mapping[str, str], *, run: bool = False, **parameters: object) -> str:
    """Commit changes; `run`: after `dvc repro`."""
    for name, text in files.items():
        (project.folder / name).write_text(text)
    change_params(project.folder / "params.yaml", {f"train.{key}": parameters[key] for key in parameters})
    if run:
        project.must("dvc", "repro", "-q")
    project.git("add", "-A")
    project.git("commit", "-qm", "Change", "--allow-empty")
    return project.git("rev-parse", "HEAD")


def bisect(project: Project, a: str, b: str) -> dict[str, Any]:
    return project.perennial("why", a, b, "--bisect")


def test_the_commit_that_caused_the_change_is_found(project: Project) -> None:
    first = project.git("rev-parse", "HEAD")
    commit(project, {"src/code": "2"})
    culprit = commit(project, {"photos/list": "30 wrong"})
    commit(project, {"src/code": "3", "photos/list": "31 wrong"})
    commit(project, {}, batch_size=8)
    last = commit(project, {}, epochs=2, run=True)
    found = bisect(project, first, last)
    assert (found["cause"]["kind"], found["cause"]["commit"]) == ("data", culprit)
    assert found["cause"]["change"] == pytest.approx(-0.25)
    search = found["bisect"]
    assert (search["changes"], search["trainings"]) == (6, 4)
    assert search["trainings"] <= search["most_trainings"] == 4
    assert (search["noise"]["seed"], search["noise"]["examples"]) == (1, 1)
    # Everything comes from the run cache now, and nothing is left behind.
    again = bisect(project, first, last)
    assert (again["cause"], again["bisect"]["trainings"]) == (found["cause"], 0)
    assert project.git("status", "--porcelain") == ""
    assert not list((project.home / ".perennial" / "rebuilds").iterdir())


def test_a_change_within_the_noise_of_the_seed_has_no_cause(project: Project) -> None:
    commit(project, {"src/code": "2", "photos/list": "6 wrong"}, run=True)
    found = bisect(project, "HEAD~1", "HEAD")
    assert (found["cause"], found["bisect"]["within_noise"], found["bisect"]["trainings"]) == (None, True, 1)


def test_mixtures_that_cannot_be_trained_leave_several_causes(project: Project) -> None:
    first = project.git("rev-parse", "HEAD")
    commit(project, {"src/code": "broken"}, batch_size=7)
    last = commit(project, {}, batch_size=9, run=True)
    found = bisect(project, first, last)
    left = [each["what"] for each in found["bisect"]["left"]]
    problems = [each["problem"] for each in found["bisect"]["states"] if each["problem"]]
    assert (left, found["cause"]["what"] if found["cause"] else None) == (["src/code"], "src/code")
    assert len(problems) <= 2


def test_data_that_are_lost_are_said_and_the_rest_is_done(project: Project) -> None:
    commit(project, {}, learning_rate=3.0, run=True)
    for file in (project.cache / "files" / "md5").rglob("*"):
        if file.is_file() and b"predicted" in file.read_bytes():
            file.unlink()
    done = project.run("perennial", "why", "HEAD~1", "HEAD", "--json")
    assert (done.returncode, json.loads(done.stdout)["cause"]["what"]) == (3, "train.learning_rate")
    assert "is lost: its object" in done.stderr


def test_code_of_a_version_of_perennial_that_cannot_be_installed_is_said(project: Project) -> None:
    def code(digit: str) -> dict[str, str]:
        text = f'perennial: "0.0.{digit}"\nstages:\n  train: "{digit * 64}"\n'
        return {"code.yaml": text, "requirements/base.txt": f"no-such-package-{digit}==1\n"}

    (project.folder / "src" / "perennial").unlink()
    changed = PIPELINE.replace("train.seed]", "train.seed, code.yaml: [stages.train]]")
    first = commit(project, {"dvc.yaml": changed, **code("1")}, run=True)
    commit(project, code("2"))
    last = commit(project, {"photos/list": "30 wrong"}, run=True)
    found = project.perennial("why", first, last)
    assert [each["what"] for each in found["differences"]][:1] == ["code of train"]
    said = project.refused(1, "why", first, last, "--bisect")
    assert "cannot be installed" in said
    assert "the code of train is not that of perennial 0.0.2" in said
