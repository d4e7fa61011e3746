"""Git as people configure it: a run is recorded and pushed all the same, or what is in the way is said."""

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from release.registry.git_server import World, record

from perennial.base.files import GIT_VARIABLES

HOOKS = ("pre-commit", "commit-msg", "prepare-commit-msg", "pre-push", "post-checkout", "post-index-change")
SETTINGS: dict[str, dict[str, str]] = {
    "how it commits and pushes": {
        "commit.template": "/nowhere", "commit.verbose": "true", "push.default": "nothing",
        "push.followTags": "true", "push.recurseSubmodules": "only", "push.gpgSign": "if-asked",
        "remote.pushDefault": "elsewhere", "fetch.prune": "true", "fetch.pruneTags": "true",
    },
    "how it shows": {
        "color.ui": "always", "column.ui": "always", "core.abbrev": "4", "core.editor": "/bin/false",
        "core.pager": "/bin/false", "core.quotePath": "true", "diff.external": "/bin/false",
        "diff.noprefix": "true", "diff.relative": "true", "i18n.logOutputEncoding": "UTF-16",
        "log.decorate": "full", "log.showSignature": "true", "status.showUntrackedFiles": "no",
        "tag.sort": "-version:refname",
    },
    "how it stores": {
        "core.autocrlf": "true", "core.fsmonitor": "/bin/false", "core.logAllRefUpdates": "always",
        "core.splitIndex": "true", "core.untrackedCache": "true", "gc.auto": "1", "core.ignoreCase": "true",
        "fetch.fsckObjects": "true", "receive.fsckObjects": "true", "init.defaultBranch": "trunk",
    },
}  # fmt: skip


def sparse(world: World) -> None:
    """Only a folder that holds none of what a run records."""
    world.project.git("sparse-checkout", "set", "--cone", "nothing")


def tag_named_as_the_branch(world: World) -> None:
    """Git shortens the name of neither."""
    for name in ("main", "origin/main"):
        world.project.git("tag", name)


def ignoring(world: World) -> None:
    """Ignored are all files, and all are text with other line ends."""
    for option, content in (("core.excludesFile", "*\n"), ("core.attributesFile", "* text eol=crlf\n")):
        file = world.project.home / option
        file.write_text(content)
        world.project.git("config", "--global", option, str(file))


def failing_hooks(world: World) -> None:
    """Hooks of the user that print and refuse."""
    folder = world.project.home / "hooks"
    folder.mkdir()
    for name in HOOKS:
        (folder / name).write_text("#!/bin/sh\necho heard\nexit 1\n")
        (folder / name).chmod(0o755)
    world.project.git("config", "--global", "core.hooksPath", str(folder))


ARRANGED: list[Callable[[World], None]] = [sparse, tag_named_as_the_branch, ignoring, failing_hooks]


def recorded(world: World, **variables: str) -> None:
    """A run is recorded, pushed to main, and leaves nothing behind."""
    done = record(world.project, "night-1", **variables)
    assert (done["outcome"], done["branch"], done["pushed"]) == ("promoted", "main", True), done
    there = world.project.git("ls-remote", "origin", "refs/heads/main").split()[0]
    assert there == done["commit"] == world.project.git("rev-parse", "refs/heads/main")
    changed = world.project.git("-c", "core.fsmonitor=false", "status", "--porcelain", "--untracked-files=no")
    assert changed == ""
    (version,) = world.project.perennial("versions")
    assert {"version": "v0.0.1", "champion": True}.items() <= version.items()


@pytest.mark.fast_rows("how it commits and pushes")
@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_a_user_do_not_change_what_is_recorded(name: str, world: World) -> None:
    for option, value in SETTINGS[name].items():
        world.project.git("config", "--global", option, value)
    recorded(world)


@pytest.mark.slow
@pytest.mark.parametrize("arrange", ARRANGED)
def test_a_run_is_recorded_in_any_checkout(arrange: Callable[[World], None], world: World) -> None:
    arrange(world)
    recorded(world)


def linked_worktree(world: World) -> Path:
    """A further working tree of the repository, which has the branch."""
    folder = world.remote.with_name("linked")
    world.project.git("checkout", "-q", "--detach")
    world.project.git("worktree", "add", "-q", str(folder), "main")
    return folder


def submodule(world: World) -> Path:
    """The project as a part of another repository."""
    top = world.remote.with_name("top")
    world.project.git("init", "-q", str(top))
    add = ("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(world.remote), "part")
    world.project.git("-C", str(top), *add)
    return top / "part"


def oddly_named(world: World) -> Path:
    """A clone whose path holds what URLs, settings and shells use."""
    folder = world.remote.with_name("a#b%20c'd,e\"f;g$h&i")
    world.project.git("clone", "-q", str(world.remote), str(folder))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("place", [linked_worktree, submodule, oddly_named])
def test_a_run_is_recorded_in_any_place(place: Callable[[World], Path], world: World) -> None:
    folder = place(world)
    for each in world.project.folder.iterdir():  # with its results
        if each.is_dir() and each.name != ".git":
            shutil.copytree(each, folder / each.name, dirs_exist_ok=True, symlinks=True)
        elif each.is_file():
            shutil.copy(each, folder / each.name)
    recorded(replace(world, project=replace(world.project, folder=folder)))


ELSEWHERE = {
    "no folder for temporary files": {"TMPDIR": "/nowhere"},
    "no home": {"HOME": "/nowhere"},
    "ASCII": {"LC_ALL": "C", "LANG": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_run_is_recorded_on_machines_that_lack_something(name: str, world: World) -> None:
    recorded(world, **ELSEWHERE[name])


def test_variables_of_a_git_hook_do_not_lead_to_another_repository(world: World) -> None:
    recorded(world, **dict.fromkeys(GIT_VARIABLES, "/nowhere"), GIT_TRACE="1", LANGUAGE="de", GIT_PAGER="false")


def test_a_lock_of_a_dead_git_loses_nothing_and_is_named(world: World) -> None:
    (world.project.folder / ".git" / "index.lock").touch()
    done = world.project.run("perennial", "record", "night-1", "--json")
    assert done.returncode == 0, done.stderr
    assert "index.lock': File exists" in done.stderr, done.stderr
    assert "`git reset`" in done.stderr
    (world.project.folder / ".git" / "index.lock").unlink()
    world.project.git("reset", "-q")
    assert world.project.git("status", "--porcelain") == ""


def test_a_remote_of_another_name_is_named_with_the_setting(world: World) -> None:
    world.project.git("remote", "rename", "origin", "upstream")
    done = world.project.run("perennial", "record", "night-1", "--json")
    assert "git has no remote origin, which record.remote names, only upstream" in done.stderr
    assert "`perennial config --set record.remote=upstream`" in done.stderr
    assert "record.remote=upstream`; nothing was changed" in world.project.refused(2, "promote", "--push")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_repository_of_another_user_is_named_with_git_s_remedy(world: World) -> None:
    subprocess.run(["chown", "-R", "12345", str(world.project.folder)], check=True)
    said = world.project.refused(2, "versions")
    assert "safe.directory" in said
    assert "git init" not in said


def test_settings_that_git_cannot_read_are_named(world: World) -> None:
    (world.project.home / ".gitconfig").write_text("[user\n")
    assert "bad config line 1" in world.project.refused(2, "versions")


@pytest.mark.fast_rows("record")
@pytest.mark.parametrize("command", ["versions", "record"])
def test_without_git_one_line_says_so(command: str, world: World, tmp_path: Path) -> None:
    more = {"record": ["night-1"]}.get(command, [])
    (tmp_path / "bin").mkdir()
    for name in ("python", "python3"):
        (tmp_path / "bin" / name).symlink_to(subprocess.check_output(["which", "python3"], text=True).strip())
    said = world.project.refused(2, command, *more, PATH=str(tmp_path / "bin"))
    assert ("git is not installed" in said, said.count("\n")) == (True, 1)
