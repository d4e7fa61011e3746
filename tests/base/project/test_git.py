"""Git as a program: identity, secrets, and tags."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from support import forks

from perennial.base.errors import ConfigError
from perennial.base.project.git import LAST_DATE, GitError, Repository, after, repository
from perennial.release.registry import versions
from perennial.release.registry.push import push_references

VARIABLES = ("AUTHOR_NAME", "AUTHOR_EMAIL", "COMMITTER_NAME", "COMMITTER_EMAIL")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit, an empty HOME and no identity."""
    for name in VARIABLES:
        monkeypatch.delenv(f"GIT_{name}", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    place = tmp_path / "the project"
    commit = ("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "Start")
    for arguments in (("init", "-q", "-b", "main", str(place)), ("-C", str(place), *commit)):
        subprocess.run(["git", *arguments], check=True)
    return place


@pytest.fixture
def git(folder: Path) -> Repository:
    return repository(folder)


def promote(git: Repository) -> str:
    """Register HEAD's tree in a new commit as the next version."""
    head = git.run("rev-parse", "HEAD")
    commit = git.commit(git.run("rev-parse", "HEAD^{tree}"), head, "Next")
    name, tags = versions.promotion(git, versions.read(git, "classifier"), commit, {"accuracy": 0.5})
    git.update({"refs/heads/main": commit, **tags})
    return name


def tagger(git: Repository, tag: str) -> str:
    return git.run("for-each-ref", "--format=%(taggername) %(taggeremail)", f"refs/tags/{tag}")


def test_without_an_identity_perennial_is_the_author(git: Repository) -> None:
    promote(git)
    assert tagger(git, "classifier@v0.0.1") == "perennial <perennial@localhost>"
    assert git.run("log", "-1", "--format=%an %ce") == "perennial perennial@localhost"


def test_the_parameters_identity_comes_before_git_s_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(f"GIT_{name}", "own@t")
    git = repository(folder, "Robot", "robot@t")
    promote(git)
    assert tagger(git, "classifier@v0.0.1") == "Robot <robot@t>"
    assert repository(folder).run("var", "GIT_AUTHOR_IDENT").startswith("own@t <own@t>")


def test_a_folder_without_a_repository_or_a_commit_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError):
        repository(folder.parent)
    subprocess.run(["git", "init", "-q", str(folder.parent / "empty")], check=True)
    with pytest.raises(ConfigError, match="no commit"):
        repository(folder.parent / "empty")


def test_a_password_of_the_remote_is_in_no_message(git: Repository) -> None:
    git.run("remote", "add", "origin", "http://me:s3cret@127.0.0.1:1/project.git")
    with pytest.raises(GitError) as failed:
        git.fetch("origin", ["+refs/heads/*:refs/remotes/origin/*"])
    pushed = push_references(git, "origin", {"refs/heads/main": git.run("rev-parse", "HEAD")})
    assert pushed.failure
    assert "s3cret" not in f"{failed.value} {pushed}"


def test_each_tag_is_dated_after_those_before_it(git: Repository) -> None:
    future = after(None) + 10_000
    git.update(
        {"refs/tags/classifier@v0.0.1": git.tag("classifier@v0.0.1", git.run("rev-parse", "HEAD"), "x", future)}
    )
    assert promote(git) == "v0.0.2"
    found = versions.read(git, "classifier")
    assert [each.date - future for each in found.versions] == [0, 1]
    assert found.last_date == future + 2


def test_a_date_that_git_cannot_store_is_refused(git: Repository) -> None:
    head = git.run("rev-parse", "HEAD")
    git.update({"refs/tags/classifier@v0.0.1": git.tag("classifier@v0.0.1", head, "x", LAST_DATE)})
    with pytest.raises(GitError, match="2099"):
        promote(git)


def test_tags_that_gto_ignores_or_that_name_others_are_no_versions(git: Repository, caplog) -> None:
    promote(git)
    head = git.run("rev-parse", "HEAD")
    plain = {"refs/tags/classifier@v0.0.9": head}  # lightweight
    names = ("classifier@v7", "other@v0.0.8", "classifier#champion")
    git.update({**plain, **{f"refs/tags/{name}": git.tag(name, head, "x", after(None)) for name in names}})
    assert [each.name for each in versions.read(git, "classifier").versions] == ["v0.0.1"]
    assert "the tag classifier#champion is left out, although GTO counts it" in caplog.text


def test_stages_and_versions_that_gto_assigned_count(git: Repository) -> None:
    promote(git)
    head = git.run("rev-parse", "HEAD")
    git.update({"refs/tags/classifier#prod#7": git.tag("classifier#prod#7", head, "x", after(None) + 5)})
    promote(git)
    found = versions.read(git, "classifier")
    assert (found.last_number, found.champion and found.champion.name) == (8, "v0.0.2")


def gto(folder: Path, *arguments: str) -> str:
    command = [forks.python(), "-m", "gto.cli", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def champion(folder: Path) -> str | None:
    """The champion, on which GTO must agree."""
    found = versions.read(repository(folder), "classifier").champion
    shown = json.loads(gto(folder, "show", "--json"))["classifier"]["stage"].get("champion")
    assert shown == (found and found.name)
    return found and found.name


@pytest.mark.slow
def test_revocations_by_gto_count(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git, start = repository(folder), after(None) - 1000
    for key in ("user.name", "user.email"):
        git.run("config", key, "t@t")
    # In the past: GTO dates its own tags now, and orders all by their dates.
    monkeypatch.setattr(versions, "after", lambda last: max(start, (last or 0) + 1))
    for _ in range(3):
        promote(git)
    assert champion(folder) == "v0.0.3"
    gto(folder, "deprecate", "classifier", "v0.0.3", "champion")
    assert champion(folder) == "v0.0.2"
    assert [each.name for each in versions.read(git, "classifier").rolled_back] == ["v0.0.3"]
    gto(folder, "deprecate", "classifier", "v0.0.2")
    assert champion(folder) == "v0.0.1"
    found = versions.read(git, "classifier")
    assert ([each.name for each in found.versions], found.next_name()) == (["v0.0.1", "v0.0.3"], "v0.0.4")
    gto(folder, "deprecate", "classifier", "v0.0.1", "champion")
    assert champion(folder) is None
    assert promote(git) == champion(folder) == "v0.0.4"


def test_versions_above_the_champion_were_rolled_back(git: Repository) -> None:
    for _ in range(3):
        promote(git)

    def roll_back(name: str) -> list[str]:
        found = versions.read(git, "classifier")
        git.update(versions.assignment(git, found, found.named(name).commit, "x", {}))
        return [each.name for each in versions.read(git, "classifier").rolled_back]

    assert roll_back("v0.0.2") == ["v0.0.3"]
    assert versions.read(git, "classifier").previous().name == "v0.0.1"
    assert roll_back("v0.0.1") == ["v0.0.3", "v0.0.2"]
    assert roll_back("v0.0.3") == ["v0.0.2"]
    assert promote(git) == "v0.0.4"
    assert [each.name for each in versions.read(git, "classifier").rolled_back] == ["v0.0.2"]


def sign(git: Repository, folder: Path) -> None:
    """Let git sign with a new SSH key."""
    key = folder.parent / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    allowed = folder.parent / "allowed"
    allowed.write_text(f"* {key.with_suffix('.pub').read_text()}")
    options = {"gpg.format": "ssh", "user.signingKey": str(key), "gpg.ssh.allowedSignersFile": str(allowed)}
    for name, value in {**options, "commit.gpgSign": "true", "tag.gpgSign": "true"}.items():
        git.run("config", name, value)


needs_keys = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")


@needs_keys
@pytest.mark.parametrize("bare", ["all", "explicit"])
def test_commits_and_tags_are_signed_where_git_is_configured_to(
    bare: str, git: Repository, folder: Path
) -> None:
    git.run("config", "--global", "safe.bareRepository", bare)
    sign(git, folder)
    promote(git)
    git.run("verify-commit", "HEAD")
    for tag in ("classifier@v0.0.1", "classifier#champion#1"):
        git.run("verify-tag", tag)
    found = versions.read(git, "classifier")
    assert (found.champion and found.champion.facts) == {"accuracy": 0.5}
    assert promote(git) == "v0.0.2"


@needs_keys
def test_what_git_cannot_sign_is_said(git: Repository, folder: Path) -> None:
    sign(git, folder)
    (folder.parent / "key").unlink()
    with pytest.raises(GitError, match="sign"):
        promote(git)
    assert git.run("tag", "--list") == ""
