"""The registry is what the server has: after any history there, all clones agree with a fresh one."""

import json
import shutil
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from release.registry.git_server import World
from support.pipelines import Project

from perennial.base import config
from perennial.release.registry import access, scores

ON_SERVER = ("version", "commit", "accuracy", "champion")
History = Callable[[World, Project], None]


@pytest.fixture
def both(two_versions: Project, tmp_path: Path) -> tuple[World, Project]:
    """A copy of that project with its server, and a second clone that has seen both versions."""
    project = two_versions.copied(tmp_path / "copy")
    other = project.clone("other")
    assert versions(other) == versions(project)
    return World(project, tmp_path / "copy" / "remote", None), other  # type: ignore[arg-type]


def versions(project: Project, *options: str) -> list[dict[str, Any]]:
    """The versions of a clone that count, without what only it has."""
    listed: list[dict[str, Any]] = project.perennial("versions", *options)
    return [{key: each[key] for key in ON_SERVER} for each in listed if not each["only_here"]]


def listed(project: Project, *, fetch: bool) -> list[dict[str, Any]]:
    """The same in this process, because starting a command takes a second."""
    with chdir(project.folder):
        checked = config.load(Path("params.yaml"))
        registry = access.here(access.open_registry(checked, fetch=fetch)).registry
        found = [each for each in scores.listing(checked, registry) if not each["only_here"]]
    return [{key: each[key] for key in ON_SERVER} for each in found]


def only_here(project: Project) -> list[str]:
    """The versions that only a clone has."""
    return [each["version"] for each in project.perennial("versions", "--no-fetch") if each["only_here"]]


def server(world: World, *arguments: str) -> str:
    """Run git in the server's repository."""
    return world.project.git("-C", str(world.remote), *arguments)


def lost(world: World, _: Project) -> None:
    """The last version is deleted on the server."""
    server(world, "tag", "-d", "classifier@v0.0.2", "classifier#champion#2")


def moved(world: World, _: Project) -> None:
    """A version is set to another commit by force."""
    server(world, "tag", "-f", "-a", "-m", "moved", "classifier@v0.0.2", "main~1")


def replaced(world: World, _: Project) -> None:
    """The server is deleted and made again, by the first commit and version alone."""
    first = server(world, "rev-list", "--max-parents=0", "main")
    shutil.rmtree(world.remote)
    world.project.git("clone", "-q", "--bare", ".", str(world.remote))
    server(world, "update-ref", "refs/heads/main", first)
    lost(world, world.project)


def rewritten(world: World, _: Project) -> None:
    """The history of the branch is rewritten and pushed by force; tags stay on the old commits."""
    tree = server(world, "rev-parse", "main^{tree}")
    new = server(world, "-c", "user.name=t", "-c", "user.email=t@t", "commit-tree", "-m", "All", tree)
    server(world, "update-ref", "refs/heads/main", new)


def renamed(world: World, _: Project) -> None:
    """The branch is renamed."""
    server(world, "branch", "-m", "main", "trunk")


def by_the_other(_: World, other: Project) -> None:
    """Another clone rolls back and pushes."""
    other.perennial("rollback", "v0.0.1", "--push")


def below_a_deleted_branch(world: World, other: Project) -> None:
    """A branch `feature` is deleted after it was fetched, and `feature/x` pushed."""
    server(world, "branch", "feature", "main")
    versions(world.project)
    versions(other)
    server(world, "branch", "-D", "feature")
    server(world, "branch", "feature/x", "main~1")


def lost_and_back(world: World, other: Project) -> None:
    """A version is deleted, noticed by a clone, and pushed again by its owner."""
    tag = server(world, "rev-parse", "classifier@v0.0.2")
    server(world, "tag", "-d", "classifier@v0.0.2")
    versions(other)
    server(world, "update-ref", "refs/tags/classifier@v0.0.2", tag)


HISTORIES: tuple[History, ...] = (
    lost, moved, replaced, rewritten, renamed, by_the_other, below_a_deleted_branch,
    lost_and_back,
)  # fmt: skip


@pytest.mark.fast_rows("moved")
@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.__name__)
def test_all_clones_agree_with_a_fresh_one(history: History, both: tuple[World, Project]) -> None:
    world, other = both
    url = f"file://{world.remote}"
    folders = {name: other.folder.parent / name for name in ("shallow", "partial", "tagless", "single")}
    server(world, "config", "uploadpack.allowFilter", "true")
    options = {"shallow": "--depth=1", "partial": "--filter=blob:none", "tagless": "--no-tags",
               "single": "--single-branch"}  # fmt: skip
    for name, option in options.items():
        world.project.git("clone", "-q", option, url, str(folders[name]))
    history(world, other)
    fresh = world.project.clone("fresh")
    if not (fresh.folder / "params.yaml").exists():  # the default branch is gone
        fresh.git("checkout", "-q", "trunk")
    expected = versions(fresh)
    clones = [world.project, other, *(Project(folder, other.home) for folder in folders.values())]
    assert [listed(clone, fetch=True) for clone in clones] == [expected] * len(clones)
    assert [listed(clone, fetch=False) for clone in clones] == [expected] * len(clones)
    assert only_here(fresh) == []


def test_what_only_a_clone_has_is_named_and_pushed_by_nothing(both: tuple[World, Project]) -> None:
    world, other = both
    lost(world, other)
    assert only_here(world.project) == []  # not asked yet
    noticed = other.run("perennial", "versions")
    assert "classifier@v0.0.2 is no longer on origin" in noticed.stderr
    assert [line.split()[0] for line in noticed.stdout.splitlines() if "only here" in line] == ["v0.0.2"]
    assert other.tags() == ["classifier#champion#1", "classifier@v0.0.1"]  # for GTO and DVC, too
    # A clone that git made, and that has never asked, keeps the tags; they do not count either.
    assert versions(world.project) == versions(other)
    assert only_here(world.project) == only_here(other) == ["v0.0.2"]
    pushed = other.perennial("rollback", "v0.0.1", "--push")
    assert pushed["moved"] is False
    assert not any("v0.0.2" in name or "#2" in name for name in world.refs())


def test_versions_that_the_server_lacks_count_once_there_is_no_server(both: tuple[World, Project]) -> None:
    world, _ = both
    clone = world.project.clone("clone")  # by git, which keeps the tags that a server loses
    server(world, "tag", "-d", *server(world, "tag").split())
    assert versions(clone) == []
    said = clone.run("perennial", "status").stdout.splitlines()[0]
    assert said == "classifier has no champion; only here: v0.0.1, v0.0.2 (`perennial docs versions`)"
    clone.git("remote", "remove", "origin")
    assert [each["version"] for each in versions(clone) if each["champion"]] == ["v0.0.2"]
    assert clone.perennial("status")["champion"]["version"] == "v0.0.2"


def test_a_version_that_was_not_pushed_is_champion_here_only_until_it_is(both: tuple[World, Project]) -> None:
    world, other = both
    rolled = other.perennial("rollback", "v0.0.1", "--no-push")
    assert rolled["pushed"] is False
    listed = {each["version"]: each for each in other.perennial("versions")}
    assert listed["v0.0.1"]["champion"]
    assert versions(world.project)[0]["champion"]
    assert other.perennial("rollback", "v0.0.1", "--push")["pushed"] is True
    assert versions(world.project) == versions(other)
    assert versions(other)[1]["champion"]


def test_without_the_server_the_last_fetch_counts_and_that_is_said(both: tuple[World, Project]) -> None:
    world, other = both
    before = versions(other)
    world.remote.rename(world.remote.with_name("away"))
    done = other.run("perennial", "versions", "--json")
    assert [{key: each[key] for key in ON_SERVER} for each in json.loads(done.stdout)] == before
    assert "origin could not be asked; the registry is as of the last fetch" in done.stderr


@pytest.mark.slow
def test_a_promotion_moves_the_branch_that_the_local_one_follows(both: tuple[World, Project]) -> None:
    world, _ = both
    project = world.project
    project.git("fetch", "-q")
    renamed(world, project)
    project.git("fetch", "-q", "--prune")
    project.git("branch", "-q", "--set-upstream-to", "origin/trunk")
    project.data("0.95 third")
    project.reproduce()
    done = project.perennial("promote", "--push")
    assert (done["branch"], world.refs()["refs/heads/trunk"]) == ("trunk", done["commit"])
    assert "refs/heads/main" not in world.refs()


@pytest.mark.slow
def test_a_promotion_does_not_make_a_branch_again_that_is_gone(both: tuple[World, Project]) -> None:
    world, other = both
    renamed(world, other)
    other.data("0.95 third")
    other.reproduce()
    done = other.perennial("promote", "--push")
    assert "main is no longer on origin, so it was not moved" in done["message"]
    assert "`git branch -u origin/BRANCH` sets the one to move" in done["message"]
    assert "refs/heads/main" not in world.refs()


def cloned(world: World, other: Project, *options: str) -> Project:
    """A clone with options, with the cache of another."""
    folder = other.folder.parent / "partly"
    server(world, "config", "uploadpack.allowFilter", "true")
    world.project.git("clone", "-q", *options, f"file://{world.remote}", str(folder))
    shutil.copy(other.folder / ".dvc" / "config.local", folder / ".dvc")
    return Project(folder, other.home)


def test_a_shallow_clone_without_tags_gets_what_a_command_needs(both: tuple[World, Project]) -> None:
    world, other = both
    server(world, "branch", "feature", "main~1")
    old, new = (each["commit"] for each in reversed(versions(other)))
    for command in ("audit --rev feature", "why v0.0.1 v0.0.2"):
        clone = cloned(world, other, "--depth=1", "--no-tags")
        assert clone.git("rev-parse", "--is-shallow-repository") == "true"
        found = json.loads(clone.run("perennial", *command.split(), "--json").stdout)
        if command.startswith("why"):
            assert (found["a"]["commit"], found["b"]["commit"]) == (old, new)
        else:
            assert (found["revisions"], found["unseen"]) == (1, [])
        assert clone.git("rev-list", "--count", "HEAD") == other.git("rev-list", "--count", "HEAD")
        shutil.rmtree(clone.folder)


@pytest.mark.slow
def test_what_a_clone_cannot_get_is_said(both: tuple[World, Project]) -> None:
    world, other = both
    clone = cloned(world, other, "--depth=1", "--no-tags")
    world.remote.rename(world.remote.with_name("away"))
    done = clone.run("perennial", "audit", "--all")
    assert (
        "not checked: older revisions, which this shallow clone lacks, and what origin had later than"
        in done.stdout
    )
    assert "this clone is shallow, and older revisions could not be fetched" in done.stderr
    assert len(json.loads(clone.run("perennial", "audit", "--all", "--json").stdout)["unseen"]) == 2
    refused = clone.run("perennial", "why", "v0.0.1", "HEAD")
    assert "origin could not be asked" in refused.stderr
    assert "this clone has no version, branch, tag or commit v0.0.1" in refused.stderr
