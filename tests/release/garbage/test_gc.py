"""Garbage collection: what is needed stays, and the bytes named before are the bytes that are freed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.garbage import OLD
from support.git import git
from typer.testing import CliRunner

from perennial.base import files
from perennial.base.storage import open_store
from perennial.cli import app
from perennial.orchestration.run_setup.run_checkout import prepare_checkout
from perennial.release.audit import sides
from perennial.release.garbage import local_folders, unneeded_objects


def test_what_refs_and_the_checkout_need_stays_and_the_bytes_are_those_named(world):
    first = world.commit("first")
    git("tag", "-am", "v", "v1")
    lost = world.commit("lost")
    git("reset", "-q", "--hard", "v1")
    other = world.commit("other", pushed=False)
    git("branch", "apart")
    git("reset", "-q", "--hard", "v1")
    fresh = world.make("fresh", old=False)
    now = world.make("now")  # not committed
    needed = first | other | fresh | now
    before = world.bytes(world.cache, world.store)
    said = world.gc()
    assert world.bytes(world.cache, world.store) == before
    done = world.gc(yes=True)
    assert (world.held(world.cache), world.held(world.store)) == (needed, needed - other)
    for name in ("cache", "remote"):
        numbers = [(row[name].garbage_number, row[name].garbage_bytes) for row in (said, done)]
        assert numbers == [(len(lost), numbers[0][1])] * 2
    freed = before - world.bytes(world.cache, world.store)
    assert sum(row.garbage_bytes for row in said.values()) == freed > 0


def test_a_branch_that_was_not_fetched_keeps_its_data(world, tmp_path):
    world.commit("first")
    git("push", "-q", "origin", "main")
    other = tmp_path / "other"
    git("clone", "-q", str(tmp_path / "remote"), str(other))
    pushed = world.commit("theirs", folder=other)
    git("push", "-q", "origin", "HEAD:refs/heads/theirs", folder=other)
    world.gc(yes=True)
    assert pushed <= world.held(world.store)
    shutil.rmtree(tmp_path / "remote")
    world.make("lost")
    world.make("next")
    rows = world.gc(yes=True)
    assert (rows["remote"].garbage_number, "cannot be reached" in rows["remote"].kept) == (0, True)


@pytest.mark.parametrize(
    "reference", [f"refs/exps/ab/{'c' * 38}/exp-theirs", "refs/tags/theirs", "refs/heads/theirs"]
)
def test_what_another_clone_pushed_keeps_its_data_until_it_is_deleted_there(world, tmp_path, reference):
    world.commit("first")
    git("push", "-q", "origin", "main")
    other = tmp_path / "other"
    git("clone", "-q", str(tmp_path / "remote"), str(other))
    theirs = world.commit("theirs", folder=other)
    git("push", "-q", "origin", f"HEAD:{reference}", folder=other)
    world.gc(yes=True)
    assert theirs <= world.held(world.store)
    git("push", "-q", "origin", f":{reference}", folder=other)
    world.gc(yes=True)
    assert not theirs & world.held(world.store)


def test_a_deleted_branch_keeps_its_data_while_a_local_one_has_it_and_branches_here_do_not_move(world):
    world.commit("first")
    git("push", "-q", "origin", "main", "main:theirs")
    git("checkout", "-q", "-b", "theirs")
    mine = world.commit("mine")
    git("checkout", "-q", "main")
    tip = git("rev-parse", "theirs")
    git("config", "remote.origin.fetch", "+refs/heads/*:refs/heads/*")  # as `git clone --mirror` sets it
    world.gc(yes=True)
    git("update-ref", "-d", "refs/heads/theirs", folder=world.base / "remote")
    world.gc(yes=True)
    assert (git("rev-parse", "theirs"), mine <= world.held(world.store)) == (tip, True)
    git("branch", "-D", "theirs")
    git("update-ref", "-d", "refs/remotes/origin/theirs")
    world.gc(yes=True)
    assert not mine & world.held(world.store)


@pytest.mark.slow
def test_local_tags_do_not_move_and_keep_their_data(world, tmp_path):
    world.commit("first")
    git("push", "-q", "origin", "main")
    kept = world.commit("mine")
    git("tag", "experiment")
    git("reset", "-q", "--hard", "origin/main")
    git("push", "-q", "origin", "main:refs/tags/experiment")
    mine = git("rev-parse", "experiment")
    world.gc(yes=True)
    assert (git("rev-parse", "experiment"), kept <= world.held(world.cache)) == (mine, True)


def test_a_run_in_another_clone_that_shares_the_cache_keeps_what_it_wrote(world, tmp_path):
    world.commit("first")
    git("push", "-q", "origin", "main")
    clone = tmp_path / "clone"
    git("clone", "-q", str(tmp_path / "remote"), str(clone))
    (clone / ".dvc" / "config.local").write_text(f"[cache]\n    dir = {world.cache}\n")
    running = subprocess.Popen([sys.executable, "-c", "input()"], cwd=clone, stdin=subprocess.PIPE)
    try:
        written = world.make("restorable", folder=clone)  # from DVC's run cache, whatever else is in it
        (listed,) = (digest for digest in written if digest.endswith(".dir"))
        files.write_bytes(world.cache / "runs/ab/abc/whole", f"outs:\n- path: data\n  md5: {listed}\n".encode())
        for content in (b"[", b"outs: 1", b"outs: [{md5: [1]}]"):
            files.write_bytes(world.cache / "runs/ab/abc" / content.hex(), content)
        written |= world.make("running", folder=clone)
        world.gc(yes=True, days=0)
        assert written <= world.held(world.cache)
    finally:
        running.communicate(b"\n")
    world.gc(yes=True)
    assert not written & world.held(world.cache)


def test_what_was_set_aside_and_is_needed_is_put_back(world, monkeypatch):
    world.commit("first")
    git("tag", "-am", "v", "v1")
    later = world.commit("later")
    commit = git("rev-parse", "HEAD")
    git("reset", "-q", "--hard", "v1")
    aside = world.cache / unneeded_objects.ASIDE
    aside.mkdir()
    for digest in later:  # as a killed call leaves it
        (world.cache / "files" / "md5" / digest[:2] / digest[2:]).rename(aside / digest)
    needed_now, calls = unneeded_objects.needed_now, []

    def while_another_pushes(places):
        calls.append(len(list(aside.glob("*"))))
        if calls[-1]:
            git("update-ref", "refs/heads/back", commit)
        return needed_now(places)

    monkeypatch.setattr(unneeded_objects, "needed_now", while_another_pushes)
    rows = world.gc(yes=True)
    assert calls[:2] == [0, 3]
    assert (rows["cache"].garbage_number, later <= world.held(world.cache), aside.exists()) == (0, True, False)


def test_a_damaged_list_of_a_needed_folder_stops_the_removal(world):
    made = world.commit("first")
    world.commit("second")
    git("reset", "-q", "--hard", "HEAD~1")
    (listed,) = (digest for digest in made if digest.endswith(".dir"))
    before = world.held(world.cache)
    for base in (world.cache, world.store):
        (base / "files" / "md5" / listed[:2] / listed[2:]).write_text("[]")
    rows = world.gc(yes=True)
    assert ("is damaged" in rows["cache"].kept, world.held(world.cache)) == (True, before)


def in_bucket(world, name):
    """Objects that are needed, and others, in the cache and in a bucket that is the default remote."""
    needed = world.commit("first")
    lost = world.make("lost")
    world.make("first")
    url = f"s3://{name}/dvc"
    (world.project / ".dvc" / "config").write_text(
        f"[core]\n    remote = s\n['remote \"s\"']\n    url = {url}\n"
    )
    store = open_store(url)
    for digest in needed | lost:
        key = f"files/md5/{digest[:2]}/{digest[2:]}"
        store.put(key, world.cache / key)
    return needed, lost, store


def test_objects_removed_from_s3_are_named_if_git_cannot_be_compared_again(world, bucket, monkeypatch):
    _, lost, store = in_bucket(world, bucket.name)
    shutil.rmtree(world.cache)
    remove = sides.Side.remove

    def then_the_remote_is_away(side, digests):
        refused = remove(side, digests)
        (world.base / "remote").rename(world.base / "away")
        return refused

    monkeypatch.setattr(sides.Side, "remove", then_the_remote_is_away)
    problem = world.gc(yes=True, days=0)["remote"].problem
    assert problem.startswith(f"{len(lost)} objects were removed from {store.url}, ")
    assert "cannot be reached" in problem


def test_without_the_right_to_delete_in_s3_the_cache_is_freed_and_the_rest_is_named(
    world, bucket, proxy, monkeypatch
):
    needed, lost, store = in_bucket(world, bucket.name)
    proxy.denies = lambda method, path, headers: method == "DELETE"
    monkeypatch.setenv("PERENNIAL_HOME", str(world.home))
    done = CliRunner().invoke(app, ["gc", "--yes", "--days", "0"])
    assert (done.exit_code, world.held(world.cache)) == (1, needed)
    assert f"{len(lost)} objects that nothing needs could not be removed" in done.output
    locked = min(lost)  # as S3's Object Lock keeps one
    proxy.denies = lambda method, path, headers: method == "DELETE" and locked[2:] in path
    row = world.gc(yes=True, days=0)["remote"]
    left = {entry.key.removeprefix("files/md5/").replace("/", "") for entry in store.list()}
    assert (left, row.garbage_number) == (needed | {locked}, len(lost) - 1)
    assert "access denied (AccessDenied: injected); give" in row.problem


def test_a_bucket_that_cannot_be_listed_does_not_stop_the_rest(world, bucket, proxy):
    needed, lost, _ = in_bucket(world, bucket.name)
    proxy.denies = lambda method, path, headers: True
    rows = world.gc(yes=True, days=0)
    assert (world.held(world.cache), rows["cache"].garbage_number) == (needed, len(lost))
    assert "access denied" in rows["remote"].problem


def test_an_object_that_cannot_be_moved_is_named_and_the_others_go(world):
    needed = world.commit("first")
    lost = world.make("lost")
    world.make("first")
    stuck = min(lost)
    (world.cache / unneeded_objects.ASIDE / stuck / "in the way").mkdir(parents=True)
    row = world.gc(yes=True)["cache"]
    assert (world.held(world.cache), row.garbage_number) == (needed | {stuck}, len(lost) - 1)
    assert "1 objects that nothing needs could not be removed" in row.problem


def areas(world):
    return {
        area.where.name: area
        for area in local_folders.areas(world.home, Path(".work"), Path("runs"), OLD + 86400)
    }


def test_folders_that_nobody_used_go_and_their_bytes_are_those_named(world):
    home = world.home
    for path in ("environments/one/bin/python", "environments/two/bin/python", "train/classifier/a/weights"):
        files.write_bytes(home / path, b"x" * 1000)
    files.write_bytes(Path(".work/train/b/weights"), b"y" * 500)
    os.link(home / "environments/one/bin/python", home / "environments/two/link")
    os.link(home / "train/classifier/a/weights", home / "train/classifier/a/again")
    files.write_bytes(home / "environments/two/perennial-ready", b"")
    for file in (*home.rglob("*"), *Path(".work").rglob("*")):
        os.utime(file, (OLD, OLD))
    (home / "environments" / "two" / "perennial-ready").touch()
    found = areas(world)
    unneeded = {item.path: item for area in found.values() for item in area.items if item.kept is None}
    sizes = {path.name: item.bytes for path, item in unneeded.items()}
    # A link in the other environment keeps the bytes, one beside the file does not.
    assert sizes == {"one": 0, "a": 1000, "b": 500}
    for item in unneeded.values():
        assert local_folders.remove(item) == item.bytes
    assert [each.name for each in (home / "environments").iterdir()] == ["two"]
    assert not [*(home / "train" / "classifier").iterdir(), *Path(".work/train").iterdir()]


def test_a_checkout_of_a_run_goes_with_its_branch_but_not_with_commits_of_its_own(world):
    world.commit("first")
    git("push", "-q", "origin", "main")
    own, plain = (prepare_checkout(world.home, str(world.base / "remote"), name) for name in ("own", "plain"))
    git("commit", "-q", "--allow-empty", "-m", "Mine", folder=own)
    for folder in (own, plain):
        for file in (folder, *folder.rglob("*")):
            os.utime(file, (OLD, OLD), follow_symlinks=False)
    items = {item.path: item for item in areas(world)["runs"].items}
    assert {path.name: item.kept for path, item in items.items()} == {
        "own": "its commit is on no branch of the remote", "plain": None
    }  # fmt: skip
    assert local_folders.remove(items[plain]) == items[plain].bytes > 0
    assert (own.exists(), plain.exists()) == (True, False)
    assert "checkout/plain" not in git("branch", folder=own)
    assert prepare_checkout(world.home, str(world.base / "remote"), "plain").is_dir()
