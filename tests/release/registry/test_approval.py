"""A person's approval, with real git and DVC: approved, rejected, too late, superseded, by two at once."""

import json
import subprocess
from pathlib import Path

import pytest
from release.registry.git_server import hook
from support.parameters import change_params
from support.pipelines import Project, link_runs, make


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with a champion, v0.0.1, whose second run waits for approval; no test changes it."""
    project = make(tmp_path_factory.mktemp("approval") / "base")
    project.perennial("record", "night-0")
    change_params(project.folder / "params.yaml", {"gate.approval": True})
    project.data("0.9 second")
    project.git("push", "-q", "origin", "main")
    project.reproduce()
    done = project.perennial("record", "night-1")
    assert {"outcome": "waiting", "branch": "run/night-1", "version": None}.items() <= done.items()
    return project


@pytest.fixture
def project(asked: Project, tmp_path: Path) -> Project:
    """A copy of it with a remote of its own."""
    return asked.copied(tmp_path / "copy")


def remote(project: Project, name: str) -> str:
    """The commit of a reference of the remote; empty if there is none."""
    listed = project.git("ls-remote", "origin", f"refs/{name}", f"refs/{name}^{{}}")
    return listed.splitlines()[-1].split()[0] if listed else ""


def recorded(project: Project, run: str = "night-1") -> dict[str, object]:
    """The record of a run on the remote."""
    project.git("fetch", "-q", "origin")
    return json.loads(project.git("show", f"refs/remotes/origin/run/{run}:runs/{run}/run.json"))


def late(project: Project) -> None:
    """Let the request of night-1 be one of the past."""
    record = recorded(project)
    record["approval"]["until"] = "2020-01-01T00:00:00+00:00"  # type: ignore[index]
    clone = project.clone("past")
    clone.git("checkout", "-q", "run/night-1")
    (clone.folder / "runs" / "night-1" / "run.json").write_text(json.dumps(record))
    clone.git("commit", "-qam", "Record of run night-1: waits for approval")
    clone.git("push", "-q", "origin", "run/night-1")


def test_a_model_that_waits_is_listed_with_its_scores_and_is_no_version(project: Project) -> None:
    assert project.perennial("record", "night-1")["outcome"] == "waiting"  # after a kill
    assert project.perennial("record", "night-2")["outcome"] == "unchanged"  # it is not asked about twice
    (found,) = project.perennial("approve")
    assert {"run": "night-1", "state": "waiting", "opponent": "v0.0.1"}.items() <= found.items()
    assert found["candidate"]["accuracy"] == 0.9
    assert found["reasons"] == ["compared with v0.0.1"]
    assert [each["version"] for each in project.perennial("versions")] == ["v0.0.1"]
    assert "waits for approval until" in project.must("perennial", "approve")


def test_an_approval_makes_the_version_and_names_the_person(project: Project) -> None:
    elsewhere = project.clone("elsewhere")
    name = 'Zoë "猫" O\'Neil\\'
    done = elsewhere.perennial("approve", "night", "--by", name, "--because", "looks\ngood")
    assert {"state": "approved", "version": "v0.0.2"}.items() <= done.items()
    newest = elsewhere.perennial("versions", "--fetch")[0]
    assert newest["champion"]
    assert newest["decision"]["approved"] == {"by": name, "because": "looks\ngood"}
    commit = newest["commit"]
    assert [remote(project, each) for each in ("heads/main", "tags/classifier@v0.0.2")] == [commit, commit]
    record = recorded(project)
    assert record["recorded"] == "promoted"
    assert record["approval"]["by"] == name  # type: ignore[index]
    again = project.perennial("approve", "night-1", "--by", "Ada")
    assert {"by": name, "version": "v0.0.2"}.items() <= again.items()


def test_a_rejection_is_recorded_and_the_same_model_is_not_asked_about_again(project: Project) -> None:
    done = project.perennial("approve", "night-1", "--by", "Ada", "--because", "wrong data", "--reject")
    record = recorded(project)
    assert (done["state"], record["recorded"]) == ("rejected", "rejected")
    assert record["approval"]["because"] == "wrong data"  # type: ignore[index]
    assert "was rejected by Ada: wrong data" in project.refused(4, "approve", "night-1", "--by", "Grace")
    for run in ("night-1", "night-2"):
        again = project.perennial("record", run)
        assert again["outcome"] == "unchanged"
        assert "run night-1, which was rejected by Ada" in again["message"]
    assert remote(project, "tags/classifier@v0.0.2") == ""


@pytest.mark.slow
def test_an_answer_that_comes_too_late_changes_nothing_and_the_next_run_asks_again(project: Project) -> None:
    late(project)
    said = project.refused(4, "approve", "night-1", "--by", "Ada")
    assert "was not approved until 2020-01-01T00:00 UTC" in said
    assert (recorded(project)["recorded"], remote(project, "tags/classifier@v0.0.2")) == ("expired", "")
    assert project.perennial("record", "night-2")["outcome"] == "waiting"
    assert project.perennial("approve", "night-2", "--by", "Ada")["version"] == "v0.0.2"


def test_nobody_s_answer_is_recorded(project: Project) -> None:
    late(project)
    assert project.perennial("approve", "night-1", "--expire")["state"] == "expired"
    assert recorded(project)["recorded"] == "expired"
    assert recorded(project)["approval"]["by"] is None  # type: ignore[index]


def test_a_newer_model_that_waits_supersedes_the_older(project: Project) -> None:
    project.data("0.95 third")
    project.reproduce()
    assert project.perennial("record", "night-3")["outcome"] == "waiting"
    states = {each["run"]: each["state"] for each in project.perennial("approve")}
    assert states == {"night-3": "waiting", "night-1": "superseded"}
    assert project.run("perennial", "approve", "night-1", "--by", "Ada").returncode == 4
    assert recorded(project)["recorded"] == "superseded"
    assert project.perennial("approve", "night-3", "--by", "Ada")["version"] == "v0.0.2"


@pytest.mark.fast_rows("None", "approval3")
@pytest.mark.parametrize("approval", [None, [], {"artifact": "classifier"}, {"since": 1}])
def test_a_record_that_holds_no_valid_request_is_left_out(approval: object, project: Project) -> None:
    record = recorded(project)
    if isinstance(approval, dict) and "since" in approval:
        approval = {**record["approval"], **approval}  # type: ignore[dict-item]
    clone = project.clone("crafted")
    clone.git("checkout", "-q", "-b", "run/bad", "origin/run/night-1")
    (clone.folder / "runs" / "bad").mkdir()
    (clone.folder / "runs" / "bad" / "run.json").write_text(json.dumps({**record, "approval": approval}))
    clone.git("add", "-f", "runs")
    clone.git("commit", "-qm", "Record of run bad: waits for approval")
    clone.git("push", "-q", "origin", "run/bad")
    assert [each["run"] for each in project.perennial("approve")] == ["night-1"]


def test_of_two_answers_at_once_one_wins(project: Project) -> None:
    clones = {name: project.clone(name) for name in ("Ada", "Grace")}
    running = [
        subprocess.Popen(
            ["python", "-m", "perennial", "approve", "night-1", "--by", name, *more],
            cwd=clones[name].folder, env=clones[name].environment(), stderr=subprocess.PIPE, text=True,
        )
        for name, more in (("Ada", []), ("Grace", ["--reject"]))
    ]  # fmt: skip
    messages = [process.communicate()[1] for process in running]
    codes = [process.returncode for process in running]
    assert sorted(code > 0 for code in codes) == [False, True], messages
    approved = codes[0] == 0
    assert recorded(project)["approval"]["by"] == ("Ada" if approved else "Grace")  # type: ignore[index]
    assert bool(remote(project, "tags/classifier@v0.0.2")) == approved


def test_an_answer_that_the_remote_refuses_changes_nothing_here_either(project: Project) -> None:
    file = project.folder / "runs" / "night-1" / "run.json"
    before = file.read_text()
    hook = project.folder.parent / "remote" / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    said = project.refused(1, "approve", "night-1", "--by", "Ada")
    assert ("nothing was changed" in said, "meanwhile" in said) == (True, False)
    assert file.read_text() == before
    hook.unlink()
    assert project.perennial("approve", "night-1", "--by", "Ada")["version"] == "v0.0.2"
    assert json.loads(file.read_text())["recorded"] == "promoted"


def test_no_model_waits_whose_record_git_cannot_have(tmp_path: Path) -> None:
    project = make(tmp_path / "alone")
    change_params(project.folder / "params.yaml", {"gate.approval": True})
    project.git("commit", "-qam", "Approval")
    link_runs(project)
    before = project.git("for-each-ref")
    assert "runs must lie in the project" in project.refused(2, "record", "night-1")
    assert project.git("for-each-ref") == before


@pytest.mark.slow
def test_a_run_that_moves_no_branch_names_none_when_it_is_approved(tmp_path: Path) -> None:
    project = make(tmp_path / "alone")
    change_params(project.folder / "params.yaml", {"gate.approval": True, "record.branch": "run"})
    project.git("commit", "-qam", "Approval")
    project.git("push", "-q", "origin", "main")
    assert project.perennial("record", "night-1")["outcome"] == "waiting"
    approved = project.perennial("approve", "night-1", "--by", "Ada")
    assert approved["message"] == "classifier v0.0.1 is champion, approved by Ada"


@pytest.mark.slow
@pytest.mark.parametrize("step", ["heads/main", "tags/classifier@", "tags/classifier#", "heads/run"])
def test_the_same_answer_completes_one_that_was_pushed_halfway(step: str, project: Project) -> None:
    remote_folder = project.folder.parent / "remote"
    project.git("-C", str(remote_folder), "config", "receive.advertiseAtomic", "false")
    drop = "kill -9 $PPID" if step.endswith("main") else "exit 1"  # the connection breaks
    hook(remote_folder, "update", f'case "$1" in refs/{step}*) {drop};; esac')
    said = project.refused(1, "approve", "night-1", "--by", "Ada")
    assert step.endswith("main") or "not everything was pushed" in said
    hook(remote_folder, "update", "")
    done = project.perennial("approve", "night-1", "--by", "Ada")
    assert {"state": "approved", "version": "v0.0.2"}.items() <= done.items()
    newest, _ = project.perennial("versions", "--fetch")
    assert {"version": "v0.0.2", "champion": True}.items() <= newest.items()
    assert newest["decision"]["approved"]["by"] == "Ada"
    assert (remote(project, "heads/main"), recorded(project)["recorded"]) == (newest["commit"], "promoted")


@pytest.mark.parametrize("options", [["--by", ""], ["--by", " "], ["--reject"], ["--because", "good"]])
def test_an_answer_without_a_name_is_refused(options: list[str], project: Project) -> None:
    assert "--by NAME says who decides" in project.refused(2, "approve", "night-1", *options)


@pytest.mark.slow
def test_promote_asks_for_a_person_and_records_the_name(project: Project) -> None:
    assert "--approve NAME says who" in project.refused(2, "promote")
    assert project.perennial("promote", "--push", "--approve", "Ada")["version"] == "v0.0.2"
    newest = project.perennial("versions")[0]
    assert newest["decision"]["approved"] == {"by": "Ada", "because": None}


def test_without_a_remote_the_repository_holds_request_and_answer(tmp_path: Path) -> None:
    project = make(tmp_path / "alone")
    project.git("remote", "remove", "origin")
    change_params(project.folder / "params.yaml", {"gate.approval": True})
    project.git("commit", "-qam", "Approval")
    assert project.perennial("record", "night-1")["outcome"] == "waiting"
    assert project.perennial("approve", "night-1", "--by", "Ada")["version"] == "v0.0.1"
    (version,) = project.perennial("versions")
    assert version["champion"]
    assert project.git("rev-parse", "run/night-1~2") == version["commit"]
