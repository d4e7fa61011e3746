"""A project moves to the perennial that runs, from one that only pristine copies in it show."""

import os
import shutil
from pathlib import Path

import pytest
from support.edits import edit
from support.git import IDENTITY

from perennial.base.errors import ConfigError, PerennialError
from perennial.base.project import code_digests
from perennial.base.project.git import Repository
from perennial.project.new.template import BASE, write_all, write_base
from perennial.project.upgrade import upgrade as module
from perennial.project.upgrade.upgrade import Upgraded, upgrade


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, project_files: dict[str, bytes]) -> Path:
    folder = tmp_path_factory.mktemp("project")
    write_all(folder, project_files)
    write_base(folder, project_files)
    Repository(folder).run("init", "-q", "-b", "main")
    commit(folder)
    return folder


@pytest.fixture
def root(made: Path, template_once: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a project of this version, committed."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def commit(root: Path) -> None:
    Repository(root).run("add", "-A")
    Repository(root).run(*IDENTITY, "commit", "-qm", "Change", "--allow-empty")


def older(root: Path, name: str, old: str, new: str) -> None:
    """Make a file that of another version: with a text in place of the one of this version."""
    for file in (root / name, root / BASE / name):
        if file.exists():
            edit(file, old, new)


def what(done: Upgraded) -> dict[str, str]:
    return {each.path: each.what for each in done.changes}


def test_a_project_of_this_version_stays_as_it_is_once_git_has_its_changes(root: Path) -> None:
    edit(root / "tasks/policy.py", "GATE_TRIES = 5", "GATE_TRIES = 9")
    with pytest.raises(ConfigError, match=r"policy\.py changed since the last commit; nothing was upgraded"):
        upgrade(root)
    upgrade(root, check=True)
    commit(root)
    done = upgrade(root)
    assert (done.needed, done.changes, done.run_again) == (False, [], {})
    assert Repository(root).run("status", "--porcelain") == ""


def test_files_of_a_version_are_changed_and_edits_are_kept(root: Path) -> None:
    older(root, "flows/retrain.py", '"""Retrain the model.', '"""Retrain.')
    older(root, "tasks/policy.py", "GATE_TRIES = 5", "GATE_TRIES = 4")
    (root / "infra/old.yaml").write_text("a: 1\n")
    shutil.copy(root / "infra/old.yaml", root / BASE / "infra/old.yaml")
    edit(root / "flows/retrain.py", 'UNPUBLISHED = ("waiting"', 'OWN = 1\nUNPUBLISHED = ("waiting"')
    (root / "infra/compose.yaml").unlink()
    commit(root)
    done = upgrade(root)
    assert what(done) == {
        "flows/retrain.py": "merged", "tasks/policy.py": "updated", "infra/old.yaml": "removed",
        "infra/compose.yaml": "kept",
    }  # fmt: skip
    assert done.run_again == {}
    text = (root / "flows/retrain.py").read_text()
    assert ("OWN = 1" in text, '"""Retrain the model.' in text) == (True, True)
    assert not (root / "infra/old.yaml").exists()
    assert not (root / BASE / "infra/old.yaml").exists()
    commit(root)
    assert not upgrade(root).needed


def test_keys_are_added_and_removed_and_values_stay(root: Path) -> None:
    older(root, "params.yaml", "  min_gain:", "  least_gain:")
    older(root, "params.yaml", "  epochs: 30", "  epochs: 20")
    edit(root / "params.yaml", "least_gain: 0.005", "least_gain: 0.25")
    edit(root / "params.yaml", "min_accuracy: 0.97", "min_accuracy: 0.5")
    edit(root / "dvc.yaml", "desc: The", "desc: Our")
    commit(root)
    done = upgrade(root)
    (changed,) = done.changes
    assert (changed.path, changed.why) == ("params.yaml", "removed gate.least_gain, added gate.min_gain")
    assert done.notes == [
        "params.yaml: gate.least_gain is gone; yours was 0.25",
        "params.yaml: the default of train.epochs is 30 now; yours stays 20",
    ]
    text = (root / "params.yaml").read_text()
    assert "least_gain" not in text
    assert ("min_gain: 0.005" in text, "epochs: 20" in text, "min_accuracy: 0.5" in text) == (True, True, True)
    assert done.run_again == {"": ["gate"]}


def test_stages_whose_code_or_packages_differ_run_again_with_those_after_them(root: Path) -> None:
    digest = code_digests.read(root / "code.yaml")["stages"]["evaluate"]
    edit(root / "code.yaml", digest, digest[::-1])
    commit(root)
    assert upgrade(root, check=True).run_again == {"": ["evaluate", "export", "gate"]}
    older(root, "requirements/train.yaml", "keras: ", "keras: # other\n    ")
    older(root, "requirements/data.yaml", "pillow: ", 'pillow: "1" # ')
    commit(root)
    done = upgrade(root, check=True)
    assert done.run_again[""][:1] == ["download"]
    assert "code.yaml" in what(done)
    assert Repository(root).run("status", "--porcelain") == ""


def test_a_conflict_writes_nothing_unless_asked(root: Path) -> None:
    older(root, "tasks/policy.py", "GATE_TRIES = 5", "GATE_TRIES = 4")
    older(root, "prefect.yaml", "name: perennial", "name: another")
    edit(root / "tasks/policy.py", "GATE_TRIES = 4", "GATE_TRIES = 9")
    commit(root)
    with pytest.raises(PerennialError, match=r"cannot be merged, so nothing was changed:\n  conflict  tasks"):
        upgrade(root)
    assert Repository(root).run("status", "--porcelain") == ""
    assert upgrade(root, conflicts=True).conflicts == ["tasks/policy.py"]
    assert "<<<<<<< this project" in (root / "tasks/policy.py").read_text()
    assert "name: perennial" in (root / "prefect.yaml").read_text()


@pytest.mark.parametrize(
    ("missing", "message"),
    [(BASE, r"base is missing.*nothing was changed"), ("code.yaml", r"is no project of perennial")],
)
def test_a_folder_without_pristine_copies_or_digests_is_refused(root: Path, missing: str, message: str) -> None:
    path = root / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    commit(root)
    with pytest.raises(ConfigError, match=message):
        upgrade(root)


def test_an_upgrade_that_fails_leaves_the_project_as_it_was(root, monkeypatch) -> None:
    older(root, "tasks/policy.py", "GATE_TRIES = 5", "GATE_TRIES = 4")
    older(root, "prefect.yaml", "name: perennial", "name: another")
    commit(root)

    def fail(*given: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(module, "write_base", lambda root, content: write_base(root, content) or fail())
    with pytest.raises(OSError, match="No space left"):
        upgrade(root)
    monkeypatch.undo()
    assert Repository(root).run("status", "--porcelain") == ""


def test_unknown_keys_are_kept_and_told_and_a_params_yaml_that_cannot_be_read_is_a_conflict(root: Path) -> None:
    for text, conflicts in (("own: 1\n", []), ("train: [\n", ["params.yaml"])):
        with (root / "params.yaml").open("a") as file:
            file.write(text)
        commit(root)
        done = upgrade(root, check=True)
        assert (done.conflicts, "own" in " ".join(done.notes)) == (conflicts, not conflicts)
        assert done.needed is bool(conflicts)
    with pytest.raises(PerennialError, match=r"params\.yaml"):
        upgrade(root)


def test_a_damaged_code_yaml_is_written_again(root: Path) -> None:
    (root / "code.yaml").write_text("<<<<<<< ours\n")
    commit(root)
    done = upgrade(root)
    assert (done.before, what(done)) == ("of an unknown version", {"code.yaml": "updated"})
    assert set(done.run_again[""]) == set(code_digests.read(root / "code.yaml")["stages"])
