"""Git servers that refuse a push, each a real one: nothing is lost, nothing piles up, the reason is shown."""

import json
from collections.abc import Callable

import pytest
from release.registry.git_server import World, hook, record
from support.pipelines import Project

Mend = Callable[[], object]
Arrange = Callable[[World], Mend]


def hooked(name: str, script: str) -> Arrange:
    """A hook of the server."""

    def arrange(world: World) -> Mend:
        hook(world.remote, name, script)
        return lambda: hook(world.remote, name, "")

    return arrange


def over_http(fault: int | str) -> Arrange:
    """A fault of the server at HTTP."""

    def arrange(world: World) -> Mend:
        server = world.http(fault)
        return lambda: setattr(server, "fault", None)

    return arrange


def blocked_by(reference: str) -> Arrange:
    """A branch or tag whose name leaves no room for ours."""

    def arrange(world: World) -> Mend:
        git = ("-C", str(world.remote), "update-ref")
        world.project.git(*git, reference, "refs/heads/main")

        def mend() -> None:
            world.project.git(*git, "-d", reference)
            world.project.git("fetch", "-q", "--prune", "origin", "+refs/tags/*:refs/tags/*")
            world.project.git("fetch", "-q", "--prune", "origin")

        return mend

    return arrange


def stale_lock(world: World) -> Mend:
    """The lock of a git process that died."""
    lock = world.remote / "refs" / "heads" / "main.lock"
    lock.touch()
    tags = world.remote / "refs" / "tags" / "classifier@v0.0.1.lock"
    tags.touch()

    def mend() -> None:
        lock.unlink()
        tags.unlink()

    return mend


RULES = """\
echo 'error: GH013: Repository rule violations found for refs/heads/main.'
echo '- Commits must have verified signatures.'
echo '  Review all repository rules at https://example.org/rules'
exit 1"""
REFUSALS: dict[str, tuple[Arrange, str]] = {
    "rules of the host": (hooked("pre-receive", RULES), "- Commits must have verified signatures."),
    "protected run branches": (
        hooked("update", '[ "${1#refs/heads/run/}" = "$1" ] && exit 0; echo "name it team/..."; exit 1'),
        "name it team/...",
    ),
    "a branch named run": (blocked_by("refs/heads/run"), "'refs/heads/run' exists; cannot create"),
    "a lock that a dead process left": (stale_lock, "Another git process seems to be running"),
    "no access, HTTP 403": (over_http(403), "The requested URL returned error: 403"),
    "a broken server, HTTP 500": (over_http(500), "500"),
    "a lost connection": (over_http("drop"), "hung up"),
}


@pytest.mark.fast_rows("rules of the host")
@pytest.mark.parametrize("name", REFUSALS)
def test_what_a_server_refuses_is_kept_once_and_pushed_when_it_no_longer_does(name: str, world: World) -> None:
    arrange, words = REFUSALS[name]
    project, mend = world.project, arrange(world)
    before = world.refs()
    first, second = (record(project, run) for run in ("night-1", "night-2"))
    print(f"{name}: {first['message']}")
    assert [first["outcome"], second["outcome"]] == ["kept", "kept"], first
    assert words in first["message"]
    assert json.loads((project.folder / "runs" / "night-1" / "run.json").read_text())["recorded"] == "kept"
    assert first["commit"] == second["commit"]
    place = "unpushed/night-1" if world.waiting() else "origin/run/night-1"  # the server may take a branch
    assert f"the commit is kept on {place}" in second["message"]
    assert project.git("rev-parse", f"{place}^") == first["commit"]
    assert world.waiting() in ([], ["unpushed/night-1"])
    assert project.tags() == _fetched(project)
    assert before == {ref: at for ref, at in world.refs().items() if ref != "refs/heads/run/night-1"}
    mend()
    third = record(project, "night-3")
    assert third["outcome"] == "promoted", third
    there = world.refs()
    assert project.git("rev-parse", f"{there['refs/tags/classifier@v0.0.1']}^{{}}") == first["commit"]
    assert (world.waiting(), there["refs/heads/main"]) == ([], first["commit"])


def _fetched(project: Project) -> list[str]:
    """The tags of this repository that are not ours."""
    return [name for name in project.tags() if name.count("/")]


NO_ATOMIC = ("receive.advertiseAtomic", "false")


def test_without_atomic_pushes_the_references_follow_each_other(world: World) -> None:
    world.configure(*NO_ATOMIC)
    order = world.remote.with_name("order")
    hook(world.remote, "update", f'echo "$1" >> "{order}"')
    done = record(world.project, "night-1")
    assert {"outcome": "promoted", "branch": "main", "pushed": True}.items() <= done.items()
    names = ["refs/heads/main", "refs/tags/classifier@v0.0.1", "refs/tags/classifier#champion#1"]
    assert (order.read_text().split(), world.waiting()) == ([*names, "refs/heads/run/night-1"], [])


STEPS = ("refs/heads/main", "refs/heads/run/night-1", "refs/tags/classifier@v0.0.1", "refs/tags/classifier#")


@pytest.mark.fast_rows("refs/tags/classifier@v0.0.1")
@pytest.mark.parametrize("step", STEPS)
def test_what_is_half_pushed_is_said_and_completed_by_the_next_run(step: str, world: World) -> None:
    world.configure(*NO_ATOMIC)
    hook(world.remote, "update", f'case "$1" in {step}*) echo "not $1"; exit 1;; esac')
    first = record(world.project, "night-1")
    hook(world.remote, "update", "")
    if step == "refs/heads/main":  # a protected branch: all else is pushed
        assert {"outcome": "promoted", "branch": "run/night-1"}.items() <= first.items()
        return
    assert first["outcome"] == "kept"
    assert f"not {step}" in first["message"]
    assert "not everything was pushed to origin" in first["message"]
    assert record(world.project, "night-2")["outcome"] in {"promoted", "unchanged"}
    (version,) = world.project.perennial("versions")
    assert {"commit": first["commit"], "champion": True}.items() <= version.items()
    assert world.refs()["refs/heads/main"] == first["commit"]
    assert world.waiting() == []


@pytest.mark.slow
def test_what_git_pushes_in_spite_of_a_refusal_is_said(world: World) -> None:
    """git's atomic pushes leave out a hidden reference, and update the others."""
    world.configure("receive.hideRefs", "refs/heads/run")
    first = record(world.project, "night-1")
    assert first["outcome"] == "kept"
    assert "run/night-1: deny updating a hidden ref" in first["message"]
    assert "already pushed: main, classifier@v0.0.1, classifier#champion#1" in first["message"]
    assert record(world.project, "night-2")["outcome"] == "unchanged"
    assert world.project.perennial("versions", "--fetch")[0]["champion"]


def test_a_push_whose_answer_is_lost_is_known_to_be_done(world: World) -> None:
    world.http("drop answer")
    done = record(world.project, "night-1")
    assert {"outcome": "promoted", "pushed": True}.items() <= done.items()
    assert world.waiting() == []


@pytest.mark.fast_rows("true")
@pytest.mark.parametrize("atomic", ["true", "false"])
def test_a_race_on_the_server_is_lost_whatever_its_words(atomic: str, world: World) -> None:
    world.configure("receive.advertiseAtomic", atomic)
    move = 'git update-ref refs/heads/main $(git commit-tree -m x -p main "main^{tree}")'
    other = "GIT_AUTHOR_NAME=o GIT_AUTHOR_EMAIL=o GIT_COMMITTER_NAME=o GIT_COMMITTER_EMAIL=o"
    hook(world.remote, "pre-receive", f"unset GIT_QUARANTINE_PATH\nexport {other}\n{move}")
    done = record(world.project, "night-1")
    assert (done["outcome"], world.waiting()) == ("refused", ["unpushed/night-1"])
    hook(world.remote, "pre-receive", "")
    world.project.git("fetch", "-q")
    assert record(world.project, "night-2")["outcome"] == "promoted"


@pytest.mark.fast_rows("promote")
@pytest.mark.parametrize("command", ["promote", "rollback"])
def test_a_refusal_is_no_race_for_a_person_s_command_either(command: str, world: World) -> None:
    project = world.project
    if command == "rollback":
        record(project, "night-1")
        project.data("0.9 second")
        project.reproduce()
        record(project, "night-2")
    hook(world.remote, "pre-receive", "echo 'closed until Monday'; exit 1")
    before = world.refs()
    said = project.refused(1, command, "--push")
    assert "closed until Monday" in said
    assert "first" not in said
    assert "meanwhile" not in said
    assert world.refs() == before


def test_a_name_that_another_program_s_tag_has_is_not_chosen(world: World) -> None:
    world.project.git("-C", str(world.remote), "tag", "classifier@v0.0.1", "main")  # lightweight: no version
    done = record(world.project, "night-1")
    assert {"outcome": "promoted", "version": "v0.0.2"}.items() <= done.items()
