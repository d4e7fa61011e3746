"""Records of runs and promotions, with real git, DVC and GTO."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from release.registry.git_server import hook
from support.parameters import change_params
from support.pipelines import Project, link_runs

from perennial.base.devices import processor
from perennial.model.evaluation.results import CandidateRecord, Decision
from perennial.release.registry import record


def remote_refs(project: Project) -> dict[str, str]:
    """The commit of each branch and tag of the remote."""
    lines = project.git("ls-remote", "origin", "refs/*").splitlines()
    found = {name: commit for commit, name in map(str.split, lines)}
    return {
        name.removeprefix("refs/"): found.get(f"{name}^{{}}", commit)
        for name, commit in found.items()
        if not name.endswith("^{}")
    }


def head(project: Project) -> str:
    return project.git("rev-parse", "HEAD")


def beside(project: Project) -> Project:
    """A second checkout with what this one has now, and the same remote."""
    second = Project(project.folder.with_name("second"), project.home)
    shutil.copytree(project.folder, second.folder, symlinks=True)
    return second


def test_a_promoted_run_is_one_commit_with_its_tags_on_branch_and_remote(project: Project) -> None:
    done = project.perennial("record", "night-1")
    assert {"outcome": "promoted", "version": "v0.0.1", "branch": "main"}.items() <= done.items()
    assert done["pushed"] is True
    commit = done["commit"]
    names = ("heads/main", "tags/classifier@v0.0.1", "tags/classifier#champion#1")
    said = "Run night-1: accuracy 0.8, passes the gate\n\n- compared with None"
    assert project.git("log", "-1", "--format=%B") == said
    assert (remote_refs(project), head(project)) == (dict.fromkeys(names, commit), commit)
    assert (project.git("status", "--porcelain"), project.must("dvc", "status", "-q")) == ("", "")
    facts = json.loads(project.git("for-each-ref", "--format=%(contents:body)", "refs/tags/classifier@v0.0.1"))
    model = {"accuracy": 0.8, "data": "d" * 64, "model": "0.8 first", "opponent": None, "run": "night-1"}
    decision = {"promote": True, "reasons": ["compared with None"], "forced": None}
    settings = facts["machine"]["settings"]  # of that process; an import of TensorFlow sets one here
    machine = {**processor.facts(), "settings": settings}
    assert {**model, "decision": decision, "machine": machine}.items() <= facts.items()


@pytest.mark.parametrize(
    ("passed", "facts", "reason", "message"),
    [
        (True, {"accuracy": 0.75}, "drift", "accuracy 0.75, passes the gate\n\nReason of the run: drift\n"),
        (False, {"map": 0.5}, None, "mAP 0.5, rejected by the gate\n"),
        (False, {}, None, "rejected by the gate\n"),
    ],
)
def test_the_message_of_a_commit_has_score_verdict_and_every_reason(passed, facts, reason, message) -> None:
    reasons = ["p-value", "latency"]
    decision = Decision(promote=passed, reasons=reasons, candidate=CandidateRecord(data="d", model="m"))
    assert (
        record._commit_message("one", decision, facts, reason) == f"Run one: {message}\n- p-value\n- latency\n"
    )


def test_the_branch_of_another_clone_follows_a_commit_that_is_pushed_already(project: Project) -> None:
    second = beside(project)
    first = project.perennial("record", "night-1")
    again = second.perennial("record", "night-1")
    assert {"outcome": "unchanged", "version": "v0.0.1"}.items() <= again.items()
    assert (head(second), second.git("status", "--porcelain")) == (first["commit"], "")
    assert len(project.tags()) == 2


@pytest.mark.fast_rows("project")
@pytest.mark.parametrize("record_in", [None, "project", "linked folder"])
def test_a_rejected_run_goes_to_a_branch_of_its_own(record_in: str | None, project: Project) -> None:
    before = remote_refs(project)["heads/main"]
    project.data("0.2 bad")
    project.reproduce()
    if record_in == "linked folder":
        link_runs(project)
    if record_in:
        project.must("perennial", "runs", "start", "night-1")
    done = project.perennial("record", "night-1")
    assert {"outcome": "not promoted", "branch": "run/night-1", "version": None}.items() <= done.items()
    refs = remote_refs(project)
    assert (refs.keys(), refs["heads/main"]) == ({"heads/main", "heads/run/night-1"}, before)
    # git has no files behind a link.
    added = project.git("log", "--format=%s", f"{done['commit']}..origin/run/night-1")
    assert added == ("Record of run night-1" if record_in == "project" else "")
    again = project.perennial("record", "night-2")
    assert {"outcome": "unchanged", "commit": done["commit"]}.items() <= again.items()


def test_a_rejected_run_stays_on_the_commit_that_it_ran_where_others_were_promoted(project: Project) -> None:
    project.data("0.2 bad")
    project.git("push", "-q", "origin", "main")
    project.reproduce()
    second = beside(project)
    project.perennial("promote", "--push", "--force", "Ada", "--because", "the first")
    change_params(second.folder / "params.yaml", {"train.seed": 1})
    second.reproduce()
    done = second.perennial("record", "night-1")
    assert done["outcome"] == "not promoted"
    assert second.git("rev-parse", f"{done['commit']}^") == head(second)


def test_a_person_s_forced_promotion_is_recorded_and_can_be_published(project: Project, tmp_path: Path) -> None:
    project.data("0.2 bad")
    project.reproduce()
    assert (project.run("perennial", "promote").returncode, project.tags()) == (4, [])
    publish = ("publish", "--to", str(tmp_path / "published"))
    assert "`perennial promote --force NAME --because TEXT` makes it champion" in project.refused(4, *publish)
    project.perennial("promote", "--push", "--force", "Ada", "--because", "the old one is worse")
    (version,) = project.perennial("versions")
    assert version["decision"]["forced"] == {"by": "Ada", "because": "the old one is worse"}
    project.must("perennial", *publish)
    assert (tmp_path / "published/current").resolve().name == "1"


def test_a_version_that_was_rolled_back_is_neither_promoted_nor_published_again(two_versions, tmp_path) -> None:
    project = two_versions.copied(tmp_path / "copy")
    assert project.perennial("rollback", "--push")["version"] == "v0.0.1"
    again = project.perennial("rollback", "v0.0.1", "--push")
    assert {"moved": False, "pushed": False}.items() <= again.items()
    project.reproduce()
    assert project.perennial("record", "night-3")["outcome"] == "unchanged"
    assert [each["champion"] for each in project.perennial("versions")] == [False, True]
    assert project.run("perennial", "promote").returncode == 4
    said = project.refused(4, "publish", "--to", str(tmp_path / "published"))
    assert "this is the model of v0.0.2, which was rolled back; nothing was published" in said
    assert project.perennial("rollback", "v0.0.2", "--push")["moved"] is True
    assert project.tags()[:4] == [f"classifier#champion#{n}" for n in range(1, 5)]


@pytest.mark.slow
def test_gto_and_dvc_read_the_registry_also_after_a_rollback(project: Project, tmp_path: Path) -> None:
    project.must("dvc", "remote", "add", "-d", "store", str(tmp_path / "store"))
    project.git("commit", "-qam", "Remote")
    project.reproduce()
    project.perennial("record", "night-1")
    project.data("0.9 second")
    project.reproduce()
    project.perennial("record", "night-2")
    fresh = Project(tmp_path / "fresh", project.home)

    def champion(name: str) -> str:
        shutil.rmtree(fresh.folder, ignore_errors=True)
        project.must("git", "clone", "-q", project.git("remote", "get-url", "origin"), str(fresh.folder))
        fresh.must("dvc", "artifacts", "get", ".", "classifier", "--stage", "champion", "-o", name)
        return (fresh.folder / name / "model").read_text()

    assert champion("out") == "0.9 second\n"
    shown = json.loads(fresh.must("gto", "show", "--json"))
    assert [shown["classifier"]["version"], shown["classifier"]["stage"]] == ["v0.0.2", {"champion": "v0.0.2"}]
    project.perennial("rollback", "--push")
    assert champion("out") == "0.8 first\n"
    shown = json.loads(fresh.must("gto", "show", "--json"))
    assert shown["classifier"]["stage"]["champion"] == "v0.0.1"
    fresh.must("dvc", "get", ".", "models/export", "--rev", "classifier@v0.0.1", "-o", "old")
    assert (fresh.folder / "old" / "model").read_text() == "0.8 first\n"


def test_nothing_is_recorded_of_code_that_changed_while_the_run_ran(project: Project) -> None:
    before = remote_refs(project)
    with (project.folder / "train.py").open("a") as code:
        code.write("# changed\n")
    assert "train.py" in project.refused(1, "record", "night-1")
    project.git("checkout", "-q", "train.py")
    (project.folder / "data.txt").write_text("0.9 later\n")
    project.git("commit", "-qam", "Later")
    assert "dvc repro" in project.refused(1, "record", "night-1")
    assert remote_refs(project) == before


def test_a_later_run_pushes_what_an_earlier_one_could_not(project: Project) -> None:
    remote = Path(project.git("remote", "get-url", "origin"))
    remote.rename(remote.with_name("away"))
    kept = project.perennial("record", "night-1")
    remote.with_name("away").rename(remote)
    project.data("0.9 second")
    project.reproduce()
    assert project.perennial("record", "night-2")["outcome"] == "promoted"
    assert remote_refs(project)["heads/run/night-1"] == kept["commit"]
    assert project.git("branch", "--list", "unpushed/*") == ""


def damage(file: Path, content: bytes) -> None:
    """Write into an object of DVC, which goes on to trust what is read-only."""
    file.chmod(0o644)
    file.write_bytes(content)
    file.chmod(0o444)


def test_git_gets_no_run_whose_objects_are_not_all_in_the_remote_of_dvc(project, tmp_path) -> None:
    """DVC's push takes the list of a folder for the folder, and says that all is in sync."""
    store, before = tmp_path / "store", remote_refs(project)
    project.must("dvc", "remote", "add", "-d", "store", str(store))
    project.git("commit", "-qam", "Remote")
    project.must("dvc", "push", "-q")
    digest = hashlib.md5(b"0.8 first\n", usedforsecurity=False).hexdigest()
    there, here = (folder / "files/md5" / digest[:2] / digest[2:] for folder in (store, project.cache))
    there.unlink()
    damage(here, b"0.8 FIRST\n")
    kept = project.perennial("record", "night-1")
    assert (kept["outcome"], remote_refs(project)) == ("kept", before)
    assert not there.exists()
    assert "after `dvc push`, models/export/model: lost (stage train, commit" in kept["message"]
    damage(here, b"0.8 first\n")
    done = project.run("perennial", "record", "night-2", "--json")
    assert "models/export/model: missing in the remote, repaired" in done.stderr
    assert (json.loads(done.stdout)["outcome"], there.read_bytes()) == ("promoted", b"0.8 first\n")


def test_without_a_remote_the_repository_is_the_registry(project: Project) -> None:
    project.git("remote", "remove", "origin")
    done = project.perennial("promote")
    assert {"outcome": "promoted", "pushed": False, "commit": head(project)}.items() <= done.items()
    assert project.perennial("promote")["outcome"] == "unchanged"
    assert len(project.tags()) == 2


def test_without_a_remote_a_rejected_run_is_recorded_once(project: Project) -> None:
    project.git("remote", "remove", "origin")
    project.data("0.2 bad")
    project.reproduce()
    first, second = (project.perennial("record", run) for run in ("night-1", "night-2"))
    assert (first["outcome"], first["branch"], second["outcome"]) == (
        "not promoted",
        "run/night-1",
        "unchanged",
    )
    assert second["commit"] == first["commit"] == project.git("rev-parse", "run/night-1")


def test_a_protected_branch_stays_and_tags_are_pushed(project: Project) -> None:
    before = remote_refs(project)["heads/main"]
    hook(Path(project.git("remote", "get-url", "origin")), "update", '[ "$1" != refs/heads/main ]')
    done = project.perennial("record", "night-1")
    assert {"outcome": "promoted", "branch": "run/night-1"}.items() <= done.items()
    refs = remote_refs(project)
    assert refs["heads/main"] == before
    assert refs["tags/classifier#champion#1"] == done["commit"]


@pytest.mark.parametrize("promoted_here", [False, True])
def test_a_branch_with_other_people_s_commits_is_not_moved(promoted_here: bool, project: Project) -> None:
    if promoted_here:
        project.perennial("promote")
    other = project.clone("other")
    (other.folder / "README.md").write_text("New\n")
    other.git("add", ".")
    other.git("commit", "-qm", "Readme")
    other.git("push", "-q")
    done = project.perennial(*(("promote", "--push") if promoted_here else ("record", "night-1")))
    assert done["run"].startswith("promote-" if promoted_here else "night-1")
    assert {"outcome": "promoted", "branch": f"run/{done['run']}"}.items() <= done.items()
    refs = remote_refs(project)
    assert (refs["heads/main"], refs[f"heads/{done['branch']}"]) == (head(other), done["commit"])


def test_promote_pushes_only_after_a_yes(project: Project) -> None:
    before = remote_refs(project)
    here = project.must("perennial", "promote")
    assert here.startswith(
        "classifier v0.0.1 is champion, in this repository only: nothing was pushed to origin ("
    )
    assert "`perennial promote --push` does it" in here
    assert (remote_refs(project), len(project.tags())) == (before, 2)
    url = Path(project.git("remote", "get-url", "origin"))
    hook(url, "pre-receive", "exit 1")
    assert "or `perennial promote --push`, completes it" in project.refused(1, "promote", "--push")
    hook(url, "pre-receive", "")
    pushed = project.perennial("promote", "--push")
    assert {"outcome": "promoted", "version": "v0.0.1", "pushed": True}.items() <= pushed.items()
    assert project.git("branch", "--list", "unpushed/*") == ""
    names = ("heads/main", "tags/classifier@v0.0.1", "tags/classifier#champion#1")
    assert remote_refs(project) == dict.fromkeys(names, pushed["commit"])
    assert project.perennial("promote", "--push")["outcome"] == "unchanged"


@pytest.mark.fast_rows("y-True")
@pytest.mark.parametrize(("answer", "pushed"), [("y", True), ("n", False)])
def test_promote_asks_at_a_terminal(answer: str, pushed: bool, project: Project) -> None:
    before = remote_refs(project)
    typed = f"printf '{answer}\\n' | script -qec 'python -m perennial promote' /dev/null"
    shown = project.must("sh", "-c", typed)
    assert "Push the model's version to origin (" in shown
    assert (remote_refs(project) != before, len(project.tags())) == (pushed, 2)


def test_a_rollback_pushes_only_after_a_yes_and_takes_a_version_in_any_spelling(two_versions, tmp_path) -> None:
    project = two_versions.copied(tmp_path / "copy")
    before = remote_refs(project)
    here = project.must("perennial", "rollback", "0.0.1")
    assert here.startswith("v0.0.1 is champion, in this repository only: nothing was pushed to origin (")
    assert remote_refs(project) == before
    assert project.perennial("rollback", "classifier@v0.0.1", "--push") == {
        "version": "v0.0.1", "commit": before["tags/classifier@v0.0.1"], "moved": True, "pushed": True,
    }  # fmt: skip
    assert remote_refs(project)["tags/classifier#champion#3"] == before["tags/classifier@v0.0.1"]
    message = project.git("for-each-ref", "--format=%(contents)", "refs/tags/classifier#champion#3")
    assert message.startswith("classifier v0.0.1: champion after a rollback\n")
    assert json.loads(message[message.index("{") :])["rollback"] == {"from": "v0.0.2", "to": "v0.0.1"}


def test_parameters_that_change_while_a_run_is_recorded_are_not_committed(project, tmp_path) -> None:
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *write-tree*) echo "# edited" >> "{project.folder}/params.yaml";; esac\n'
        f'exec {shutil.which("git")} "$@"\n'
    )
    program.chmod(0o755)
    path = f"{program.parent}:{project.environment()['PATH']}"
    before = project.git("for-each-ref")
    said = project.refused(1, "record", "night-1", PATH=path)
    assert "params.yaml changed while this run was recorded; nothing was recorded" in said
    assert project.git("for-each-ref") == before
