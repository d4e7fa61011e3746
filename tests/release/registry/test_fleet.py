"""Several pipelines in one repository: each has its versions, its champion and its records."""

import shutil
from pathlib import Path

import pytest
from support import pipelines
from support.edits import edit
from support.pipelines import Project

from perennial.base.files import make_folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Project]:
    """Three pipelines whose first runs are reproduced, which no test changes."""
    return pipelines.fleet(tmp_path_factory.mktemp("fleet") / "base", "ants", "birds")


@pytest.fixture
def fleet(made: dict[str, Project], tmp_path: Path) -> dict[str, Project]:
    """A copy of them with a remote of its own."""
    top = made[""].copied(tmp_path / "base")
    below = {name: project.folder.relative_to(made[""].folder) for name, project in made.items()}
    return {name: Project(top.folder / place, top.home) for name, place in below.items()}


def on_main(project: Project) -> list[str]:
    """The subjects of the commits on the remote's main branch, the newest first."""
    project.git("fetch", "-q", "origin")
    return project.git("log", "--format=%s", "origin/main").splitlines()


def apart(fleet: dict[str, Project]) -> dict[str, Project]:
    """Each pipeline in a clone of its own, where its first run is reproduced."""
    found = {}
    for name, project in fleet.items():
        top = fleet[""].clone(f"clone of {name or 'top'}")
        found[name] = Project(top.folder / project.folder.relative_to(fleet[""].folder), top.home)
        found[name].reproduce()
    return found


def test_each_pipeline_has_its_own_versions(fleet):
    for project in fleet.values():
        assert project.perennial("record", "night")["version"] == "v0.0.1"
    assert set(fleet[""].tags()) == {
        "classifier@v0.0.1", "classifier#champion#1",
        "pipelines/ants=classifier@v0.0.1", "pipelines/ants=classifier#champion#1",
        "pipelines/birds=classifier@v0.0.1", "pipelines/birds=classifier#champion#1",
    }  # fmt: skip
    birds = fleet["birds"]
    (known,) = birds.perennial("versions")
    assert known["commit"] == birds.git("rev-parse", "pipelines/birds=classifier@v0.0.1^{commit}")
    assert fleet["ants"].perennial("versions")[0]["champion"]


@pytest.mark.slow
def test_what_other_pipelines_pushed_meanwhile_is_kept(fleet, tmp_path):
    """Each run works in a checkout of its own; all began at the same commit."""
    clones = apart(fleet)
    done = {name: each.perennial("record", f"night-{name or 'top'}") for name, each in clones.items()}
    assert {each["outcome"] for each in done.values()} == {"promoted"}
    assert {each["branch"] for each in done.values()} == {"main"}
    assert len(on_main(fleet[""])) == 3 + 2  # with those of the fixture
    for name, project in fleet.items():
        assert (
            project.git("show", "origin/main:./dvc.lock")
            == (clones[name].folder / "dvc.lock").read_text().strip()
        )
    last = clones["birds"]
    assert last.git("status", "--porcelain") == ""  # files of the others are here, too


def test_code_that_all_pipelines_share_must_be_that_of_the_commit(fleet):
    (fleet[""].folder / "flows" / "retrain.py").write_text("# edited\n")
    assert "flows/retrain.py: not as in the commit" in fleet["birds"].refused(1, "record", "night")


@pytest.mark.slow
def test_a_file_of_another_pipeline_may_be_edited(fleet):
    (fleet["ants"].folder / "data.txt").write_text("0.1 edited\n")
    (fleet[""].folder / "params.yaml").write_text("# broken\n")
    assert fleet["birds"].perennial("record", "night")["outcome"] == "promoted"
    assert (fleet["ants"].folder / "data.txt").read_text() == "0.1 edited\n"
    changed = fleet[""].git("status", "--porcelain", "--untracked-files=no").split()
    assert changed == ["M", "params.yaml", "M", "pipelines/ants/data.txt"]


@pytest.mark.slow
def test_a_commit_to_shared_code_keeps_a_run_off_the_branch(fleet):
    top = fleet[""].clone("clone")
    birds = Project(top.folder / "pipelines" / "birds", top.home)
    birds.reproduce()
    (fleet[""].folder / "flows" / "retrain.py").write_text("# other code\n")
    fleet[""].git("commit", "-qam", "Other code")
    fleet[""].git("push", "-q", "origin", "main")
    done = birds.perennial("record", "night")
    assert (done["outcome"], done["branch"]) == ("promoted", "run/night")
    assert "main has commits that this run does not have" in done["message"]


@pytest.mark.slow
def test_data_that_another_pipeline_shares_must_be_those_of_the_run(fleet):
    birds, top = fleet["birds"], fleet[""]
    (top.folder / "own").mkdir()
    (top.folder / "own" / "names.txt").write_text("first\n")
    stages = birds.folder / "dvc.yaml"
    edit(stages, "deps: [data.txt,", "deps: [data.txt, ../../own/names.txt,")
    top.git("add", ".")
    top.git("commit", "-qm", "Names")
    top.git("push", "-q", "origin", "main")
    birds.reproduce()
    (top.folder / "own" / "names.txt").write_text("edited\n")
    assert "own/names.txt: not as in the commit" in birds.refused(1, "record", "night")
    top.git("checkout", "-q", "own")
    clone = top.clone("clone")
    (clone.folder / "own" / "names.txt").write_text("second\n")
    clone.git("commit", "-qam", "Other names")
    clone.git("push", "-q", "origin", "main")
    done = birds.perennial("record", "night")
    assert (done["outcome"], done["branch"]) == ("promoted", "run/night")


def test_only_the_own_outputs_are_pushed(fleet, tmp_path):
    store = make_folder(tmp_path / "store") or tmp_path / "store"
    top = fleet[""]
    top.must("dvc", "remote", "add", "-d", "store", str(store))
    top.git("commit", "-qam", "Remote")
    top.git("push", "-q", "origin", "main")
    fleet["birds"].perennial("record", "night")
    texts = {file.read_bytes() for file in store.rglob("*") if file.is_file()}
    assert b"0.8 first birds\n" in texts
    assert b"0.8 first ants\n" not in texts


@pytest.mark.slow
def test_gc_in_one_pipeline_keeps_the_objects_of_all(fleet):
    for project in fleet.values():
        project.perennial("record", "night")
    before = sorted(fleet[""].cache.rglob("files/md5/*/*"))
    for project in fleet.values():
        project.must("perennial", "gc", "--days", "0", "--yes")
    assert sorted(fleet[""].cache.rglob("files/md5/*/*")) == before
    fleet[""].must("perennial", "audit")


def test_a_project_in_a_subfolder_has_the_folder_in_its_tags_unless_it_has_plain_ones(tmp_path):
    project = pipelines.make(tmp_path / "base")
    top = tmp_path / "mono"
    shutil.copytree(project.folder, top / "shop", ignore=shutil.ignore_patterns(".git"))
    shop = Project(top / "shop", project.home)
    shop.git("init", "-q", "-b", "main", str(top))
    shop.git("add", ".")
    shop.git("commit", "-qm", "Shop")
    shop.perennial("record", "night")
    assert set(shop.tags()) == {"shop=classifier@v0.0.1", "shop=classifier#champion#1"}
    old = shop.git("rev-parse", "HEAD")
    shop.git("tag", "-d", *shop.tags())
    shop.git("tag", "-a", "-m", "old", "classifier@v0.0.1", old)
    assert [each["version"] for each in shop.perennial("versions")] == ["v0.0.1"]
