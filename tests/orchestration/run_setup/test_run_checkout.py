"""Checkouts of runs: worktrees of one mirror, in which git, DVC and the registry work as in a clone."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from dvc.config import Config as DvcConfig
from ruamel.yaml import YAML
from support.parameters import change_params
from support.pipelines import Project, recorded

from perennial.base.errors import ConfigError, PerennialError
from perennial.base.project.git import Repository
from perennial.orchestration.provisioning import deploy
from perennial.orchestration.run_setup.run_checkout import prepare_checkout

KILLS = int(os.environ.get("KILLS", "2"))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with a DVC remote and one version, `v0.0.1`."""
    return recorded(tmp_path_factory.mktemp("worker"))


def checkout(project: Project, home: Path, run: str, rev: str | None = None) -> Project:
    """The checkout of a run."""
    return replace(project, folder=prepare_checkout(home, project.git("remote", "get-url", "origin"), run, rev))


def test_a_run_on_the_default_branch_promotes_and_moves_it(project: Project, tmp_path: Path) -> None:
    run, before = checkout(project, tmp_path, "run-1"), project.git("rev-parse", "HEAD")
    assert (run.git("rev-parse", "HEAD"), run.git("branch", "--show-current")) == (before, "checkout/run-1")
    change_params(run.folder / "params.yaml", {"train.seed": 1})  # an override
    run.must("perennial", "runs", "start", "run-1")
    run.reproduce()
    assert "models" in run.must("dvc", "diff", "HEAD", "--json")
    done = run.perennial("record", "run-1")
    assert {"outcome": "promoted", "branch": "main", "pushed": True}.items() <= done.items()
    assert run.git("rev-parse", "HEAD") == done["commit"]
    assert run.git("status", "--porcelain") == ""
    assert run.must("dvc", "status", "-q") == ""
    assert YAML(typ="safe").load(run.git("show", "HEAD:params.yaml"))["train"]["seed"] == 1
    listed = run.perennial("versions")
    assert {"version": "v0.0.2", "commit": done["commit"]}.items() <= listed[0].items()
    tip = project.git("ls-remote", "origin", "refs/heads/main").split()[0]
    assert (tip, run.perennial("runs")[0]["run"]) == (done["commit"], "run-1")
    again = checkout(project, tmp_path, "run-2")
    assert again.git("rev-parse", "HEAD") == done["commit"]
    again.must("dvc", "repro")
    assert again.must("dvc", "status", "-q") == ""


@pytest.mark.fast_rows("branch -m main master-main is no longer on origin")
@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("branch -m main master", "main is no longer on origin"),
        ("update-ref refs/heads/main main~1", "main was set back to"),
    ],
)
def test_a_branch_that_a_person_renamed_or_set_back_meanwhile_stays_so(project, tmp_path, command, why) -> None:
    url = str(tmp_path / "copy.git")
    project.git("clone", "-q", "--bare", project.git("remote", "get-url", "origin"), url)
    run = replace(project, folder=prepare_checkout(tmp_path, url, "run-1"))
    change_params(run.folder / "params.yaml", {"train.seed": 4})
    run.must("perennial", "runs", "start", "run-1")
    run.reproduce()
    project.git("-C", url, *command.split())
    before = project.git("-C", url, "for-each-ref", "refs/heads/ma*")
    done = run.perennial("record", "run-1")
    assert {"outcome": "promoted", "branch": "run/run-1"}.items() <= done.items()
    assert why in done["message"]
    assert project.git("-C", url, "for-each-ref", "refs/heads/ma*") == before


def test_an_address_from_which_no_run_can_be_checked_out_is_not_deployed(tmp_path) -> None:
    whole = repository(tmp_path / "whole")
    (whole / "more").touch()
    commit(whole, "config", "uploadpack.allowFilter", "true")
    for option in ("--depth=1", "--filter=blob:none"):
        subprocess.run(["git", "clone", "-qn", option, f"file://{whole}", tmp_path / option], check=True)
    for unfit in (str(tmp_path / "--depth=1"), str(tmp_path / "--filter=blob:none"), "../whole"):
        with pytest.raises(ConfigError, match="PERENNIAL_REPOSITORY must be "):
            deploy._require_source(unfit)
    for fit in (str(whole), f"file://{whole}", "git@host:a/b.git", "https://host/a.git", "/elsewhere"):
        deploy._require_source(fit)


def test_a_repository_without_a_default_branch_says_what_it_has(tmp_path: Path) -> None:
    whole = repository(tmp_path / "whole")
    for command in (("branch", "-m", "main", "master"), ("symbolic-ref", "HEAD", "refs/heads/main")):
        subprocess.run(["git", "-C", str(whole), *command], check=True)
    with pytest.raises(ConfigError, match=r"no default branch; name one as `rev` .*; branches: master"):
        prepare_checkout(tmp_path / "home", str(whole), "run")


@pytest.mark.fast_rows("tag-2")
@pytest.mark.parametrize(("kind", "seed"), [("tag", 2), ("commit", 3)])
def test_a_tag_or_commit_is_checked_out_without_a_branch(project, tmp_path, kind, seed) -> None:
    first = project.git("rev-parse", "classifier@v0.0.1^{commit}")
    project.git("push", "-qf", "origin", f"{first}:refs/tags/first")
    run = checkout(project, tmp_path, f"run-{kind}", "first" if kind == "tag" else first[:7])
    assert (run.git("rev-parse", "HEAD"), run.git("branch", "--show-current")) == (first, "")
    change_params(run.folder / "params.yaml", {"train.seed": seed})
    run.reproduce()
    done = run.perennial("record", f"run-{kind}")
    assert {"branch": f"run/run-{kind}", "pushed": True}.items() <= done.items()


def test_a_repository_that_is_away_is_named_without_its_password(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("perennial.orchestration.run_setup.run_checkout.GIT_PAUSES_S", (0,))
    with pytest.raises(PerennialError, match=r"http://\*\*\*@127\.0\.0\.1:1/x\.git cannot be fetched") as away:
        prepare_checkout(tmp_path, "http://me:secret@127.0.0.1:1/x.git", "run-1")
    assert "secret" not in str(away.value)


def test_runs_share_cache_copies_downloads_and_the_trainings_of_their_pipeline(project, tmp_path) -> None:
    one, other = (checkout(project, tmp_path, name).folder for name in ("run-1", "run-2"))
    for name in ("source", "downloads", "train"):
        (one / ".work" / name / "file").touch()
        assert (other / ".work" / name / "file").exists()
    (trainings,) = (tmp_path / "train").iterdir()
    assert trainings.name.startswith("classifier-")
    assert (trainings / "file").exists()
    assert str(tmp_path / "cache") in (one / ".dvc" / "config.local").read_text()
    assert Repository(one).changed() == ([], [])


def test_projects_with_equal_names_of_models_have_trainings_of_their_own(project, tmp_path) -> None:
    fork = str(tmp_path / "fork.git")
    project.git("clone", "-q", "--bare", project.git("remote", "get-url", "origin"), fork)
    own = checkout(project, tmp_path, "run-1").folder / ".work" / "train"
    others = [prepare_checkout(tmp_path, each, run) / ".work" / "train"
              for run, each in (("run-2", fork), ("run-3", f"file://{fork}/"))]  # fmt: skip
    assert own.resolve() != others[0].resolve()
    assert others[0].resolve() == others[1].resolve()


@pytest.mark.fast_rows("1")
@pytest.mark.parametrize("kill", range(KILLS))
def test_a_checkout_whose_making_was_killed_is_made_again_or_taken_up(project, tmp_path, kill) -> None:
    url = project.git("remote", "get-url", "origin")
    code = (
        "from pathlib import Path\n"
        "from perennial.orchestration.run_setup.run_checkout import prepare_checkout\n"
        "print('now', flush=True)\n"
        f"prepare_checkout(Path({str(tmp_path)!r}), {url!r}, 'run-1')"
    )
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", code], env=project.environment(), stdout=subprocess.PIPE
        ) as making:
            assert making.stdout
            making.stdout.readline()
            time.sleep(random.uniform(0, 0.4))  # about the time that it takes; the moment does not decide
            os.kill(making.pid, signal.SIGKILL)
    run = checkout(project, tmp_path, "run-1")
    assert run.git("status", "--porcelain") == ""
    (run.folder / "mine.txt").touch()
    assert (checkout(project, tmp_path, "run-1").folder / "mine.txt").exists()


def repository(folder: Path, inside: str = "") -> Path:
    """A repository with a project in a folder of it."""
    (folder / inside).mkdir(parents=True)
    (folder / inside / "params.yaml").write_text("record: {artifact: classifier}\n")
    commit(folder, "init", "-q", "-b", "main")
    return folder


def commit(folder: Path, *first: str) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always")
    for arguments in (first, ("add", "."), ("commit", "-qm", "change")):
        subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def test_submodules_are_checked_out_with_those_in_them(tmp_path: Path) -> None:
    inner, outer, whole = (repository(tmp_path / name) for name in ("inner", "outer", "whole"))
    (inner / "code.py").write_text("VALUE = 1\n")
    commit(inner, "status")
    commit(outer, "submodule", "--quiet", "add", str(inner), "inner")
    commit(whole, "submodule", "--quiet", "add", "../outer", "src/outer")
    found = prepare_checkout(tmp_path / "home", str(whole), "run")
    assert (found / "src" / "outer" / "inner" / "code.py").read_text() == "VALUE = 1\n"
    assert prepare_checkout(tmp_path / "home", str(whole), "run") == found


def test_a_submodule_that_is_gone_is_named_and_leaves_no_mirror_for_each_run(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("perennial.orchestration.run_setup.run_checkout.GIT_PAUSES_S", ())
    inner, whole = repository(tmp_path / "inner"), repository(tmp_path / "whole")
    commit(whole, "submodule", "--quiet", "add", str(inner), "src/inner")
    inner.rename(tmp_path / "elsewhere")
    for run in ("run-1", "run-2"):
        with pytest.raises(PerennialError, match=r"whole with its submodules cannot be fetched: .*inner"):
            prepare_checkout(tmp_path / "home", str(whole), run)
    assert len(list((tmp_path / "home" / "mirror").iterdir())) == 1


def test_a_project_in_a_subfolder_is_where_the_run_works(tmp_path: Path) -> None:
    whole = str(repository(tmp_path / "whole", "two/models"))
    found = prepare_checkout(tmp_path / "home", whole, "run", inside="two/models")
    assert found == tmp_path / "home" / "runs" / "run" / "two" / "models"
    assert (found / ".work" / "train").resolve().name.startswith("classifier-")
    with pytest.raises(ConfigError, match=r"the folder three of .* holds no project at main"):
        prepare_checkout(tmp_path / "home", whole, "other", inside="three")


@pytest.mark.parametrize("name", ["a #b", "a,b", "50% 'x'", "a \"b\" 'c'", "[z];"])
def test_dvc_finds_the_cache_whatever_the_name_of_the_home(name: str, tmp_path: Path) -> None:
    found = prepare_checkout(tmp_path / name, str(repository(tmp_path / "whole")), "run")
    (found / ".dvc" / "config").write_text("")
    assert DvcConfig(str(found / ".dvc"), validate=False)["cache"]["dir"] == str(tmp_path / name / "cache")


def break_object(mirror: Path) -> None:
    """An object that a power cut left empty: that of the default branch's commit."""
    commit = subprocess.run(
        ["git", "--git-dir", str(mirror), "rev-parse", "refs/remotes/origin/main"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    for pack in mirror.glob("objects/pack/*"):
        pack.chmod(0o644)
        pack.write_bytes(b"")
    loose = mirror / "objects" / commit[:2] / commit[2:]
    if loose.exists():
        loose.chmod(0o644)
        loose.write_bytes(b"")


DAMAGE: dict[str, Callable[[Path], object]] = {
    "an empty object": break_object,
    "an empty reference": lambda mirror: (mirror / "refs/remotes/origin/main").write_bytes(b""),
    "no HEAD": lambda mirror: (mirror / "HEAD").unlink(),
    "an empty HEAD": lambda mirror: (mirror / "HEAD").write_bytes(b""),
    "an empty config": lambda mirror: (mirror / "config").write_bytes(b""),
    "a damaged config": lambda mirror: (mirror / "config").write_bytes(b"\0" * 64),
    "a fresh lock of the config": lambda mirror: (mirror / "config.lock").touch(),
    "a fresh lock of a reference": lambda mirror: (mirror / "refs/remotes/origin/main.lock").touch(),
    "damaged packed references": lambda mirror: (mirror / "packed-refs").write_bytes(b"\0" * 64),
    "no objects": lambda mirror: shutil.rmtree(mirror / "objects"),
}


@pytest.mark.fast_rows("an empty object", "no HEAD", "a damaged config", "damaged packed references")
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_mirror_is_made_again_beside_the_runs_that_use_it(damage, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("perennial.orchestration.run_setup.run_checkout.GIT_PAUSES_S", ())
    whole, home = repository(tmp_path / "whole"), tmp_path / "home"
    first = prepare_checkout(home, str(whole), "run-1")
    (mirror,) = (home / "mirror").iterdir()
    DAMAGE[damage](mirror)
    (whole / "more").touch()
    commit(whole, "status")
    assert (prepare_checkout(home, str(whole), "run-2") / "more").exists()
    assert prepare_checkout(home, str(whole), "run-1") == first  # which may be at work
    assert (prepare_checkout(home, str(whole), "run-3") / "more").exists()


def test_a_damaged_mirror_goes_with_the_last_run_that_uses_it(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("perennial.orchestration.run_setup.run_checkout.GIT_PAUSES_S", ())
    whole, home = repository(tmp_path / "whole"), tmp_path / "home"
    first = prepare_checkout(home, str(whole), "run-1")
    (mirror,) = (home / "mirror").iterdir()
    DAMAGE["a damaged config"](mirror)
    second = prepare_checkout(home, str(whole), "run-2")
    assert mirror.exists()
    shutil.rmtree(first)
    prepare_checkout(home, str(whole), "run-3")
    (other,) = (home / "mirror").iterdir()
    DAMAGE["a damaged config"](other)
    prepare_checkout(home, str(whole), "run-4")
    assert (second / ".git").exists()
    assert {each.name for each in (home / "mirror").iterdir()} == {f"{mirror.name}-1", f"{mirror.name}-2"}


def test_no_hook_and_no_format_of_a_person_is_used_in_the_checkout_of_a_run(tmp_path, monkeypatch) -> None:
    hooks = tmp_path / "husky"
    hooks.mkdir()
    for name in ("post-checkout", "reference-transaction", "pre-commit", "post-index-change"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
        (hooks / name).chmod(0o755)
    whole = repository(tmp_path / "whole")
    config = tmp_path / "gitconfig"
    config.write_text(f"[core]\n  hooksPath = {hooks}\n[safe]\n  bareRepository = explicit\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_DEFAULT_HASH", "sha256")
    assert (prepare_checkout(tmp_path / "home", str(whole), "run") / "params.yaml").exists()
    assert not (tmp_path / "ran").exists()


def test_a_branch_below_a_deleted_one_and_tags_that_are_gone(tmp_path: Path) -> None:
    whole, home = repository(tmp_path / "whole"), tmp_path / "home"
    for arguments in (("branch", "feature"), ("tag", "old")):
        subprocess.run(["git", "-C", str(whole), *arguments], check=True)
    prepare_checkout(home, str(whole), "run-1", "feature")
    for arguments in (("branch", "-qD", "feature"), ("branch", "feature/x"), ("tag", "-d", "old")):
        subprocess.run(["git", "-C", str(whole), *arguments], check=True, capture_output=True)
    prepare_checkout(home, str(whole), "run-2", "feature/x")
    with pytest.raises(ConfigError, match="has no branch, tag or commit old"):
        prepare_checkout(home, str(whole), "run-3", "old")
