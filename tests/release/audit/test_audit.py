"""What revisions need, compared with DVC's cache and with remotes in a folder and in S3; planted faults."""

import json
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from support import forks
from support.pipelines import ROOT, Project

from perennial.base import files
from perennial.base.errors import PerennialError
from perennial.base.project.git import repository
from perennial.base.storage import open_store
from perennial.release.audit.object_audit import audit
from perennial.release.audit.sides import Side, open_sides

MEMBERS = 30
IN_A_FOLDER = pytest.mark.parametrize("remote", ["folder"], indirect=True)  # alone, which is faster
PIPELINE = Path(__file__).with_name("pipeline.yaml").read_text(encoding="utf-8")
MAKE = f"""\
import pathlib
for n in range({MEMBERS}):
    file = pathlib.Path(f"photos/{{n % 4}}/{{n}}.txt")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"photo {{n:04}}\\n")
pathlib.Path("model").write_text("weights\\n" * 100)
pathlib.Path("metrics.json").write_text("{{}}")
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A project of which one stage wrote a folder, a file and a metric that is in git; `labels` was added."""
    base = tmp_path_factory.mktemp("audit")
    project = Project(base / "project", base / "home")
    project.start({
        "dvc.yaml": PIPELINE, "make.py": MAKE, "labels": "cat\n", ".gitignore": "photos\nmodel\nlabels\nkept\n",
        "params.yaml": "paths:\n  photos: photos\n  metrics: metrics.json\n",
    })  # fmt: skip
    project.must("dvc", "add", "-q", "labels")
    project.must("dvc", "repro", "-q")
    project.git("add", ".")
    project.git("commit", "-qm", "Start")
    return project.folder


@pytest.fixture
def here(made, tmp_path, monkeypatch, forked_dvc):
    """A copy of it, which the test works in."""
    shutil.copytree(made, tmp_path / "project", symlinks=True)
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("PERENNIAL_HOME", str(tmp_path / "home of runs"))
    return tmp_path / "project"


class Holding:
    """The objects of a side, which a test damages."""

    def __init__(self, side, store):
        self.side, self.store = side, store

    def names(self):
        return sorted(entry.key for entry in self.store.list("files/md5/"))

    def read(self, key):
        return self.store.get_bytes(key)[0]

    def damage(self, key, how):
        content = self.read(key)
        if how == "deleted":
            self.store.delete(key)
        elif how == "cut":
            self.store.put(key, content[:-1])
        else:
            self.store.put(key, content[:-2] + b"?\n")


@pytest.fixture
def cache(here):
    folder = here / ".dvc" / "cache"
    return Holding(Side("cache", open_store(str(folder)), folder), open_store(str(folder)))


@pytest.fixture(params=["folder", "s3"])
def remote(request, here, cache, tmp_path):
    folder, url = tmp_path / "store", str(tmp_path / "store")
    if request.param != "folder":
        folder, url = None, f"{request.getfixturevalue('bucket').url}/dvc"
    held = Holding(Side("remote", open_store(url), folder), open_store(url))
    fill(held, cache)
    return held


def fill(remote, cache):
    if remote.side.folder:
        shutil.copytree(cache.side.folder, remote.side.folder)
        return
    for key in cache.names():
        remote.store.put(key, cache.read(key))


def check(*sides, revisions=None, **options):
    git = repository(Path())
    return audit(git, revisions or [git.commit_of("HEAD")], *(side and side.side for side in sides), **options)


def key_of(path):
    """The key of a file of the checkout."""
    digest = subprocess.run(["md5sum", path], check=True, capture_output=True, text=True).stdout[:32]
    return f"files/md5/{digest[:2]}/{digest[2:]}"


FILES = ["model", "labels", *(f"photos/{n % 4}/{n}.txt" for n in range(MEMBERS))]


def faults(seed):
    """15 of the files with the side and the kind of their damage: single files and members."""
    chance = random.Random(seed)
    kinds = [(side, how) for side in ("cache", "remote") for how in ("deleted", "cut", "flipped")] * 3
    return dict(zip(["model", "labels", *chance.sample(FILES[2:], 13)], kinds, strict=False))


@pytest.mark.fast_rows("folder")
def test_fifteen_planted_faults_are_named_and_repaired(cache, remote):
    planted, before = faults(1), (cache.names(), remote.names())
    contents = {key: cache.read(key) for key in before[0]}
    for path, (side, how) in planted.items():
        {"cache": cache, "remote": remote}[side].damage(key_of(path), how)
    expected = {
        (path, side, "missing" if how == "deleted" else "damaged") for path, (side, how) in planted.items()
    }
    found = check(cache, remote, deep=True)
    assert {(each.need.path, each.where, each.kind) for each in found.problems} == expected
    assert {each.need.stage for each in found.problems} == {"make", None}
    done = check(cache, remote, deep=True, repair=True)
    assert done.ok is True
    assert len(done.problems) == 15
    assert check(cache, remote, deep=True).problems == []
    assert (cache.names(), remote.names()) == before
    assert all(side.read(key) == contents[key] for side in (cache, remote) for key in contents)


@pytest.mark.fast_rows("folder-cut", "s3-flipped")
@pytest.mark.parametrize("how", ["deleted", "cut", "flipped"])
def test_without_reading_deleted_and_cut_objects_are_noticed_and_in_s3_flipped_ones(cache, remote, how):
    remote.damage(key_of("photos/3/7.txt"), how)
    shutil.rmtree(".dvc/cache/files")  # as in a fresh clone; the remote alone knows the sizes of members
    found = check(cache, remote)
    noticed = how != "flipped" or remote.side.folder is None
    assert [(each.kind, each.need.path) for each in found.problems] == (
        [("lost", "photos/3/7.txt")] if noticed else []
    )


@IN_A_FOLDER
def test_what_is_damaged_on_both_sides_is_lost_and_untouched(cache, remote):
    lost = {"model": "cut", "photos/1/1.txt": "flipped", "photos/2/2.txt": "deleted"}
    for path, how in lost.items():
        cache.damage(key_of(path), how)
        remote.damage(key_of(path), "flipped")
    before = [(side.names(), [side.read(key) for key in side.names()]) for side in (cache, remote)]
    found = check(cache, remote, deep=True, repair=True)
    assert {(each.need.path, each.kind, each.where) for each in found.problems} == {
        (path, "lost", "both") for path in lost
    }
    assert [(side.names(), [side.read(key) for key in side.names()]) for side in (cache, remote)] == before


@IN_A_FOLDER
@pytest.mark.parametrize("how", ["deleted", "cut"])
def test_the_list_of_a_folder_is_an_object_too(cache, remote, how):
    (folder,) = (key for key in cache.names() if key.endswith(".dir"))
    remote.damage(folder, how)
    found = check(cache, remote, repair=True)
    kind = "missing" if how == "deleted" else "damaged"
    assert [(each.need.path, each.kind, each.repaired) for each in found.problems] == [("photos", kind, True)]
    cache.damage(folder, how)
    remote.damage(folder, how)
    (lost,) = check(cache, remote).problems
    assert lost.need.path == "photos"
    assert lost.kind == "lost"


def test_without_a_remote_the_cache_is_audited_alone(cache):
    assert check(cache, None).ok
    cache.damage(key_of("model"), "deleted")
    (lost,) = check(cache, None).problems
    assert lost.need.path == "model"
    assert (lost.kind, lost.where) == ("lost", "cache")


@pytest.mark.fast_rows("remote")
@pytest.mark.parametrize("where", ["remote", "cache"])
def test_what_only_the_cache_of_runs_holds_is_repaired_from_there(here, cache, where):
    shutil.copy(ROOT / "params.yaml", "params.yaml")
    store = here.parent / "store"
    (store / "files").mkdir(parents=True)
    if where == "remote":
        configure(f"url = {store}")
    runs = files.home() / "cache"
    shutil.copytree(".dvc/cache", runs)
    shutil.rmtree(".dvc/cache/files")  # the checkout never made them
    code, found, _ = command("--json")
    assert code == 0
    assert {(each["kind"], each["where"]) for each in json.loads(found)["problems"]} == {("missing", where)}
    code, found, _ = command("--repair")
    assert code == 0
    assert "all intact" in found
    assert found.count("repaired") == len(FILES) + 1
    shutil.rmtree(runs)
    code, found, _ = command()
    assert code == 0
    assert "all intact" in found


def test_a_listing_is_one_request_and_encrypted_etags_cost_three_more(cache, bucket, proxy, monkeypatch):
    url = f"{bucket.url}/dvc"
    held = Holding(Side("remote", open_store(url)), open_store(url))
    fill(held, cache)
    proxy.asked.clear()
    assert check(cache, held).ok
    assert [method for method, _ in proxy.asked] == ["GET"]
    monkeypatch.setattr(Side, "doubtful", lambda side, *_: side.digests_listed)  # as with KMS
    proxy.asked.clear()
    assert check(cache, held).ok
    assert len(proxy.asked) == 4


def configure(*rows):
    """Give the checkout a default remote with these options."""
    Path(".dvc/config").write_text("\n".join(["[core]", "remote = store", "['remote \"store\"']", *rows]))


def command(*arguments):
    done = subprocess.run(
        [forks.python(), "-m", "perennial", "audit", *arguments], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


@IN_A_FOLDER
def test_the_command_names_repairs_and_ends_with_3_where_something_is_lost(here, cache, remote):
    shutil.copy(ROOT / "params.yaml", "params.yaml")
    configure(f"url = {remote.side.folder}")
    remote.damage(key_of("photos/1/5.txt"), "deleted")
    revision = repository(Path()).commit_of("HEAD")
    lines = [
        f"photos/1/5.txt: missing in the remote (stage make, commit {revision[:10]})",
        f"1 revision, {len(FILES) + 1} objects: 1 problem",
    ]
    code, found, message = command("--all")
    assert code == 0
    assert found.splitlines() == lines
    assert message == ""
    code, found, _ = command("--rev", "main", "--repair", "--json")
    (problem,) = json.loads(found)["problems"]
    assert code == 0
    assert json.loads(found)["ok"] is True
    assert {"repaired": True, "where": "remote"}.items() <= problem.items()
    for side in (cache, remote):
        side.damage(key_of("model"), "cut")
    code, found, message = command("--json")
    (problem,) = json.loads(found)["problems"]
    kept = {name: problem[name] for name in ("kind", "path", "stage", "revision", "where")}
    assert code == 3
    assert kept == {"kind": "lost", "path": "model", "stage": "make", "revision": revision, "where": "both"}
    assert "1 of 33 objects are intact neither in the caches of this machine nor in the remote" in message
    code, _, message = command("--remote", "other")
    assert code == 2
    assert "DVC has no remote other; known: store" in message


@pytest.mark.parametrize(
    "rows",
    [["url = ssh://host/dvc"], ["url = gs://bucket/dvc"], ["url = s3://bucket/dvc", "version_aware = true"]],
)
def test_a_remote_that_only_dvc_can_read_is_said(here, rows):
    configure(*rows)
    with pytest.raises(PerennialError, match=r"at ssh://host/dvc|gs:// is not|options .*: version_aware"):
        open_sides()


def test_a_remote_s_own_access_is_used(here, bucket, server, monkeypatch, cache):
    keys = ["access_key_id = one", "secret_access_key = two"]
    configure(f"url = s3://{bucket.name}/dvc", f"endpointurl = {server}", *keys)
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    _, remote = open_sides()
    assert remote.listing(["0" * 32]) == {}
