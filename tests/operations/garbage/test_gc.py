"""Garbage collection: what is needed stays, and the bytes named before are the bytes that are freed."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from support.pipelines import IDENTITY
from support.stores import PROVIDERS

from perennial.base import config, files
from perennial.base.errors import PerennialError
from perennial.base.project import dvc
from perennial.base.storage import open_store
from perennial.operations.garbage import collect, folders, objects
from perennial.operations.run_setup.checkout import prepare
from perennial.release.audit import sides

ROOT = Path(__file__).parents[3]
OLD = time.time() - 100 * 86400


def git(*arguments, folder=Path(), date=None):
    environment = {**os.environ, "GIT_COMMITTER_DATE": date} if date else None
    command = ["git", *IDENTITY, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, check=True, capture_output=True, text=True
    ).stdout.strip()


class World:
    """A project with a remote of git, one of DVC, and a home; outputs are stored as DVC does."""

    def __init__(self, base):
        self.base, self.home, self.store = base, base / "home", base / "store"
        self.project = base / "project"
        self.cache = self.project / ".dvc" / "cache"
        (self.project / ".dvc").mkdir(parents=True)
        (self.project / ".dvc" / "config").write_text(
            f"[core]\n    remote = store\n['remote \"store\"']\n    url = {self.store}\n"
        )
        (self.project / ".gitignore").write_text("/data\n/.work\n/runs\n/.dvc/cache\n/.dvc/config.local\n")
        shutil.copy(ROOT / "params.yaml", self.project)
        git("init", "-qb", "main", folder=self.project)
        git("add", ".", folder=self.project)
        git("commit", "-qm", "Start", folder=self.project)
        git("clone", "-q", "--bare", ".", str(base / "remote"), folder=self.project)
        git("remote", "add", "origin", str(base / "remote"), folder=self.project)

    def make(self, name, *, folder=None, pushed=True, old=True):
        """Write an output of two files and its dvc.lock in a checkout; returns its objects."""
        folder = folder or self.project
        data = folder / "data"
        shutil.rmtree(data, ignore_errors=True)
        for number in range(2):
            files.write_bytes(data / f"{number}.txt", f"{name} {number}\n".encode() * (number + 10))
        members = {each: dvc.digest(file) for each, file in dvc.files_of(data).items()}
        digest = dvc.digest(data)
        listed = json.dumps([{"md5": md5, "relpath": each} for each, md5 in sorted(members.items())])
        content = {md5: (data / each).read_bytes() for each, md5 in members.items()} | {digest: listed.encode()}
        for base in (self.cache, self.store) if pushed else (self.cache,):
            for md5, text in content.items():
                file = base / "files" / "md5" / md5[:2] / md5[2:]
                files.write_bytes(file, text)
                if old:
                    os.utime(file, (OLD, OLD))
        lock = {"stages": {"make": {"outs": [{"path": "data", "hash": "md5", "md5": digest}]}}}
        with (folder / "dvc.lock").open("w") as stream:
            YAML().dump(lock, stream)
        return set(content)

    def commit(self, name, *, folder=None, **options):
        """The same, committed long ago."""
        made = self.make(name, folder=folder, **options)
        git("add", "dvc.lock", folder=folder or self.project)
        git("commit", "-qm", name, folder=folder or self.project, date=f"@{int(OLD)} +0000")
        return made

    def held(self, base):
        return {f"{file.parent.name}{file.name}" for file in (base / "files" / "md5").glob("*/*")}

    def bytes(self, *where):
        return sum(file.stat().st_size for base in where for file in base.rglob("*") if file.is_file())

    def gc(self, *, yes=False, days=7):
        rows = collect.collect(config.load(Path("params.yaml")), self.home, days=days, yes=yes)
        return {row.what: row for row in rows}


@pytest.fixture
def world(tmp_path, monkeypatch, forked_dvc):
    made = World(tmp_path)
    monkeypatch.chdir(made.project)
    return made


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


def test_data_of_a_tag_that_only_the_remote_has_stay_until_it_is_deleted_there(world, tmp_path):
    world.commit("first")
    git("push", "-q", "origin", "main")
    other = tmp_path / "other"
    git("clone", "-q", str(tmp_path / "remote"), str(other))
    theirs = world.commit("theirs", folder=other)
    git("push", "-q", "origin", "HEAD:refs/tags/theirs", folder=other)
    world.gc(yes=True)
    assert theirs <= world.held(world.store)
    git("push", "-q", "--delete", "origin", "theirs", folder=other)
    world.gc(yes=True)
    assert not theirs & world.held(world.store)


def test_a_run_in_another_clone_that_shares_the_cache_keeps_what_it_wrote(world, tmp_path):
    world.commit("first")
    git("push", "-q", "origin", "main")
    clone = tmp_path / "clone"
    git("clone", "-q", str(tmp_path / "remote"), str(clone))
    (clone / ".dvc" / "config.local").write_text(f"[cache]\n    dir = {world.cache}\n")
    running = subprocess.Popen([sys.executable, "-c", "input()"], cwd=clone, stdin=subprocess.PIPE)
    try:
        written = world.make("running", folder=clone)
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
    aside = world.cache / objects.ASIDE
    aside.mkdir()
    for digest in later:  # as a killed call leaves it
        (world.cache / "files" / "md5" / digest[:2] / digest[2:]).rename(aside / digest)
    needed_now, calls = objects.needed_now, []

    def while_another_pushes(places):
        calls.append(len(list(aside.glob("*"))))
        if calls[-1]:
            git("update-ref", "refs/heads/back", commit)
        return needed_now(places)

    monkeypatch.setattr(objects, "needed_now", while_another_pushes)
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


@pytest.mark.fast_rows("s3")
@pytest.mark.parametrize("scheme", PROVIDERS)
def test_objects_in_a_bucket_go_too(world, make_bucket, scheme):
    needed = world.commit("first")
    lost = world.make("lost")
    world.make("first")
    url = f"{make_bucket(scheme).url}/dvc"
    (world.project / ".dvc" / "config").write_text(
        f"[core]\n    remote = s\n['remote \"s\"']\n    url = {url}\n"
    )
    store = open_store(url)
    for digest in needed | lost:
        key = f"files/md5/{digest[:2]}/{digest[2:]}"
        store.put(key, world.cache / key)
    assert world.gc()["remote"].garbage_number == 0  # they are of now
    rows = world.gc(yes=True, days=0)
    left = {entry.key.removeprefix("files/md5/").replace("/", "") for entry in store.list()}
    assert (left, rows["remote"].garbage_number, rows["remote"].where) == (needed, len(lost), url)


def test_objects_removed_from_s3_are_named_if_git_cannot_be_compared_again(world, bucket, monkeypatch):
    needed = world.commit("first")
    lost = world.make("lost")
    world.make("first")
    url = f"s3://{bucket.name}/dvc"
    (world.project / ".dvc" / "config").write_text(
        f"[core]\n    remote = s\n['remote \"s\"']\n    url = {url}\n"
    )
    store = open_store(url)
    for digest in needed | lost:
        key = f"files/md5/{digest[:2]}/{digest[2:]}"
        store.put(key, world.cache / key)
    shutil.rmtree(world.cache)
    remove = sides.Side.remove

    def then_the_remote_is_away(side, digests):
        remove(side, digests)
        (world.base / "remote").rename(world.base / "away")

    monkeypatch.setattr(sides.Side, "remove", then_the_remote_is_away)
    with pytest.raises(
        PerennialError, match=rf"^{len(lost)} objects were removed from {url}, .* cannot be reached"
    ):
        world.gc(yes=True, days=0)


def areas(world):
    return {
        area.where.name: area for area in folders.areas(world.home, Path(".work"), Path("runs"), OLD + 86400)
    }


def test_folders_that_nobody_used_go_and_their_bytes_are_those_named(world):
    home = world.home
    for path in ("environments/one/bin/python", "environments/two/bin/python", "train/classifier/a/weights"):
        files.write_bytes(home / path, b"x" * 1000)
    files.write_bytes(Path(".work/train/b/weights"), b"y" * 500)
    os.link(home / "environments/one/bin/python", home / "environments/two/link")
    files.write_bytes(home / "environments/two/perennial-ready", b"")
    for file in (*home.rglob("*"), *Path(".work").rglob("*")):
        os.utime(file, (OLD, OLD))
    (home / "environments" / "two" / "perennial-ready").touch()
    found = areas(world)
    unneeded = {item.path: item for area in found.values() for item in area.items if item.kept is None}
    sizes = {path.name: item.bytes for path, item in unneeded.items()}
    assert sizes == {"one": 0, "a": 1000, "b": 500}  # a link in the other environment keeps the bytes
    for item in unneeded.values():
        assert folders.remove(item) == item.bytes
    assert [each.name for each in (home / "environments").iterdir()] == ["two"]
    assert not [*(home / "train" / "classifier").iterdir(), *Path(".work/train").iterdir()]


def test_a_checkout_of_a_run_goes_with_its_branch_but_not_with_commits_of_its_own(world):
    world.commit("first")
    git("push", "-q", "origin", "main")
    own, plain = (prepare(world.home, str(world.base / "remote"), name) for name in ("own", "plain"))
    git("commit", "-q", "--allow-empty", "-m", "Mine", folder=own)
    for folder in (own, plain):
        for file in (folder, *folder.rglob("*")):
            os.utime(file, (OLD, OLD), follow_symlinks=False)
    items = {item.path: item for item in areas(world)["runs"].items}
    assert {path.name: item.kept for path, item in items.items()} == {
        "own": "its commit is on no branch of the remote", "plain": None
    }  # fmt: skip
    assert folders.remove(items[plain]) == items[plain].bytes > 0
    assert (own.exists(), plain.exists()) == (True, False)
    assert "checkout/plain" not in git("branch", folder=own)
    assert prepare(world.home, str(world.base / "remote"), "plain").is_dir()


def test_usage_counts_a_file_with_two_names_once(tmp_path):
    (tmp_path / "a").write_bytes(b"123")
    os.link(tmp_path / "a", tmp_path / "b")
    assert folders.usage(tmp_path) == 3
