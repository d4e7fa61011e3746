"""Two records of a stage, compared; where a path changed in the history of git; facts of a processor."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.git import IDENTITY

from perennial.base.devices import processor
from perennial.base.dvc import dvc_digests
from perennial.base.dvc.dvc_lock import LockedStage
from perennial.base.project.git import Repository
from perennial.reproduce.rebuild import rebuild_inputs, stage_differences
from perennial.reproduce.rebuild.rebuild_inputs import PathHistory
from perennial.reproduce.rebuild.stage_differences import Made
from perennial.reproduce.rebuild.workspace import Workspace

TRAIN = LockedStage(
    command="train",
    deps={"data/records/labels.txt": "a1", "src/code": "b2.dir", "pins/weights.json": "c3"},
    params={
        ("params.yaml", "train.epochs"): 3,
        ("params.yaml", "train.seed"): 1,
        ("params.yaml", "model.weights"): None,
        ("requirements/train.yaml", "packages.numpy"): ["2.4", "2.5"],
        ("data/report.json", "ok"): True,
    },
    outs={"models/weights": "d4.dir"},
)
MAKERS = {"models/weights": "train", "data/records": "convert", "data/report.json": "convert"}


def dep(path: str) -> LockedStage:
    return replace(TRAIN, deps={**TRAIN.deps, path: "other"})


def value(file: str, key: str) -> LockedStage:
    return replace(TRAIN, params={**TRAIN.params, (file, key): "other"})


CHANGES: dict[str, tuple[LockedStage, list[tuple[str, str]]]] = {
    "nothing": (TRAIN, []),
    "code": (dep("src/code"), [("code", "src/code")]),
    "weights": (dep("pins/weights.json"), [("weights", "pins/weights.json")]),
    "code of a stage": (value("code.yaml", "stages.train"), [("code", "code of train")]),
    "code of a stage of one of several pipelines": (
        value("../../code.yaml", "stages.train"),
        [("code", "code of train")],
    ),
    "a command": (replace(TRAIN, command="other"), [("code", "cmd in dvc.yaml")]),
    "an output of another stage": (dep("data/records/labels.txt"), []),
    "a value of another stage": (value("data/report.json", "ok"), []),
    "a seed": (value("params.yaml", "train.seed"), [("seed", "train.seed")]),
    "a package": (
        value("requirements/train.yaml", "packages.numpy"),
        [("packages", "packages.numpy in requirements/train.yaml")],
    ),
}


@pytest.mark.parametrize(("now", "expected"), CHANGES.values(), ids=CHANGES)
def test_an_input_that_differs_has_its_kind(now: LockedStage, expected: list[tuple[str, str]]) -> None:
    found = [(each.kind, each.what) for each in stage_differences.differing_inputs("train", TRAIN, now, MAKERS)]
    assert found == expected


def test_history_names_the_files_that_changed_and_their_digests(tmp_path: Path) -> None:
    git = Repository(tmp_path)
    git.run("init", "-q")
    (tmp_path / "code").mkdir()
    for text in (b"one\n", b"one\ntwo\n"):
        (tmp_path / "code" / "a.py").write_bytes(text)
        (tmp_path / "code" / "b.py").write_bytes(b"\r\n\xff")
        git.run("add", ".")
        git.run(*IDENTITY, "commit", "-qm", "Change")
    head, first = git.run("log", "--format=%H").split()
    history = PathHistory(git)
    assert history.between(first, head, "code") == "code/a.py +1 -0"
    assert history.digest(head, "code/b.py") == dvc_digests.digest(tmp_path / "code" / "b.py")


@pytest.mark.parametrize("tracked", [True, False])
def test_own_files_are_brought_where_git_has_none_of_them(tmp_path: Path, tracked: bool) -> None:
    git, work = Repository(tmp_path / "project"), Workspace(tmp_path / "checkout", Path(), {})
    for folder in (git.folder, work.folder):
        (folder / "photos").mkdir(parents=True)
        (folder / "photos" / "README.md").write_text("put images here")
        (folder / "params.yaml").write_text("dataset: {path: photos}\n")
    git.run("init", "-q")
    if tracked:
        (git.folder / "photos" / "1.png").write_text("1")
    git.run("add", ".")
    git.run(*IDENTITY, "commit", "-qm", "First")
    (git.folder / "photos" / "2.png").write_text("added since")
    rebuild_inputs.bring(git, work, PathHistory(git), git.run("rev-parse", "HEAD"))
    assert (work.folder / "photos" / "2.png").exists() is not tracked


FACTS = processor.facts(variables={})
RUN = Made(machine=FACTS, packages={"NumPy": "2.4"}, python="3.1.2")
SETTINGS = Made(machine={**FACTS, "settings": {"XLA_FLAGS": "x"}})
NONE = "the machine of the run, which no record names: perhaps another kind of processor"
UNEXPLAINED: list[tuple[Made, dict[str, str], list[tuple[str, str]]]] = [
    (Made(), {}, [("hardware", NONE)]),
    (RUN, {"numpy": "2.5"}, [("packages", "numpy"), ("packages", "Python")]),
    (Made(machine={**FACTS, "cores": 0}), {}, [("hardware", "cores of the machine")]),
    (SETTINGS, {}, [("hardware", "XLA_FLAGS")]),
    (Made(machine=FACTS), {}, [("unknown", stage_differences.NOTHING)]),
]


@pytest.mark.parametrize(("run", "packages", "expected"), UNEXPLAINED)
def test_outputs_that_differ_with_equal_inputs_are_explained_by_the_record_of_the_run(
    run: Made, packages: dict[str, str], expected: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in processor.SETTINGS:  # other tests may have set some in this process
        monkeypatch.delenv(name, raising=False)
    found = [(each.kind, each.what) for each in stage_differences.explain("train", TRAIN, run, packages)]
    assert found == expected


def test_facts_of_a_processor(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("model name\t: Fast 1\nflags\t\t: fpu avx2 smep amx_tile\nmodel name\t: Fast 2\n")
    found = processor.facts(cpuinfo, {"ONEDNN_MAX_CPU_ISA": "AVX2", "HOME": "x"})
    assert (found["processor"], found["instruction_sets"]) == ("Fast 1", ["amx_tile", "avx2"])
    assert found["settings"] == {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    assert processor.facts(tmp_path / "none", {})["instruction_sets"] == []
