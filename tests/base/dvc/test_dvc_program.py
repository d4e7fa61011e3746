"""Calls of DVC: outputs of other revisions, digests, and what it says when it fails."""

import shutil
from pathlib import Path

import pytest
from support.pipelines import Project

from perennial.base import documents, failures
from perennial.base.dvc import dvc_digests, dvc_lock, dvc_program
from perennial.base.dvc.dvc_program import DvcError
from perennial.base.errors import Failure
from perennial.base.storage.s3_errors import remedy

pytestmark = pytest.mark.usefixtures("forked_dvc")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A project with an output that is older than the remote that holds it; the cache is gone."""
    folder = tmp_path_factory.mktemp("built")
    project = Project(folder / "project", folder / "home")
    for each in (project.folder, project.home):
        each.mkdir()
    (project.folder / "dvc.yaml").write_text("stages: {make: {cmd: echo it > out, outs: [out]}}\n")
    project.git("init", "-q", "-b", "main")
    project.must("dvc", "init", "-q")
    project.must("dvc", "repro", "-q")
    project.git("add", ".")
    project.git("commit", "-qm", "Start")
    project.must("dvc", "remote", "add", "-q", "-d", "store", "../store")
    project.git("commit", "-qam", "Add a remote")
    project.must("dvc", "push", "-q")
    shutil.rmtree(project.folder / ".dvc" / "cache")
    return project


@pytest.fixture
def older(built, tmp_path, monkeypatch):
    """The commit of the output, in a copy of that project."""
    shutil.copytree(built.folder.parent, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path / "project")
    return built.git("rev-parse", "HEAD^").strip()


@pytest.mark.slow
@pytest.mark.parametrize("where", ["its remote", "the cache of another clone"])
def test_an_output_older_than_the_remote_is_fetched_from_where_it_is(older, tmp_path, where):
    if where == "the cache of another clone":  # which the default remote lacks
        shutil.move(tmp_path / "store", tmp_path / "cache")
        dvc_program.run("remote", "add", "--local", dvc_program.CACHE, str(tmp_path / "cache"))
    dvc_program.get("out", older, tmp_path / "found")
    assert (tmp_path / "found").read_text() == "it\n"


def test_the_reason_is_named_where_no_remote_has_the_output(older, tmp_path):
    shutil.rmtree(tmp_path / "store")
    with pytest.raises(DvcError, match=r"`dvc get` failed: ERROR: .*out"):
        dvc_program.get("out", older, tmp_path / "found")
    assert not Path(tmp_path / "found").exists()


def test_remotes_are_copied_with_dots_in_their_names_and_commas_in_their_values(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dvc_program.run("init", "--no-scm")
    dvc_program.run("remote", "add", "--default", "my.s3", "s3://bucket/data")
    for option, value in {"secret_access_key": "a,b # 'c'", "session_token": 'd "e"'}.items():
        dvc_program.run("remote", "modify", "--local", "my.s3", option, value)
    found = dvc_program.configuration()
    Path(".dvc", "config").write_text("")
    Path(".dvc", "config.local").write_text(dvc_program.remotes_section(found))
    copied = dvc_program.configuration()
    assert dvc_program.remotes(copied) == dvc_program.remotes(found)
    assert dvc_program.remotes(found)["my.s3"]["secret_access_key"] == "a,b # 'c'"
    assert copied["core.remote"] == "my.s3"


IGNORED = """\
# A comment, and patterns of each kind.
__pycache__/
*.swp
/code/scratch.py
code/**/old
!code/kept.swp
/elsewhere
"""
FILES = ("a.py", "__pycache__/a.pyc", ".a.py.swp", "kept.swp", "scratch.py", "sub/scratch.py", "sub/old/b.py",
         "sub/__pycache__", "sub/c.py")  # fmt: skip


def test_a_folder_has_the_digest_that_dvc_records(tmp_path):
    project = Project(tmp_path / "project", tmp_path / "home")
    project.home.mkdir()
    for name in FILES:
        file = project.folder / "code" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    (project.folder / ".dvcignore").write_text(IGNORED)
    (project.folder / "dvc.yaml").write_text(
        "stages: {make: {cmd: echo it > out, deps: [code], outs: [out]}}\n"
    )
    project.must("dvc", "init", "-q", "--no-scm", "--force")
    (project.folder / ".dvcignore").write_text(IGNORED)
    project.must("dvc", "repro", "-q")
    assert dvc_lock.here(project.folder)["make"].deps["code"] == dvc_digests.digest(project.folder / "code")


def test_the_files_of_a_folder_that_dvc_ignores_as_a_whole_are_still_found(tmp_path):
    for name in ("elsewhere/a", "elsewhere/sub/b", "elsewhere/__pycache__/c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".dvcignore").write_text(IGNORED)
    for folder, found in (("elsewhere", {"a", "sub/b"}), ("elsewhere/sub", {"b"})):
        assert dvc_digests.files_of(tmp_path / folder).keys() == found


@pytest.mark.usefixtures("older")
def test_a_push_that_fails_says_why() -> None:
    shutil.rmtree("../store")
    Path("../store").touch()
    with pytest.raises(DvcError, match=r"`dvc push` failed: ERROR: .*store"):
        dvc_program.run("push")


@pytest.mark.fast_rows('{"read": {"/home/me')
@pytest.mark.usefixtures("older")
@pytest.mark.parametrize("text", ["", '{"read": {"/home/me'])
def test_a_list_of_locks_that_a_full_disk_left_half_written_is_no_obstacle(text: str) -> None:
    file = Path(".dvc", "tmp", "rwlock")
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    assert dvc_program.run("status", "--json").startswith("{")
    assert not file.exists() or documents.parse_json(file.read_bytes()) is not None


@pytest.mark.fast_rows("PUT")
@pytest.mark.parametrize("method", ["PUT", "GET"])
def test_a_bucket_that_grants_no_right_is_a_refusal(tmp_path, monkeypatch, bucket, proxy, method):
    monkeypatch.chdir(tmp_path)
    dvc_program.run("init", "--no-scm")
    dvc_program.run("remote", "add", "--default", "store", f"s3://{bucket.name}/dvc")
    Path("data").write_text("data")
    dvc_program.run("add", "data")
    proxy.denies = lambda asked, path, headers: asked == method
    with pytest.raises(DvcError, match=r"AccessDenied.*; give these credentials the right") as refused:
        dvc_program.run("push")
    assert failures.kind(refused.value) is Failure.REFUSED
    proxy.denies = lambda asked, path, headers: False
    assert "1 file pushed" in dvc_program.run("push")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("failed to push - The provided token has expired.", "AWS_SESSION_TOKEN"),
        ("An error occurred (RequestTimeTooSkewed) when calling PutObject", "set the clock"),
        ("The difference between the request time and the current time is too large.", "set the clock"),
        ("The AWS Access Key Id you provided does not exist in our records.", "AWS_ACCESS_KEY_ID"),
        ("Unable to locate credentials", "AWS_ACCESS_KEY_ID"),
        ("An error occurred (400) when calling the HeadObject operation: Bad Request", "AWS_SESSION_TOKEN"),
        ("An error occurred (NoSuchBucket) when calling the PutObject operation", "create the bucket"),
    ],
)
def test_a_refusal_in_the_words_of_dvc_has_its_remedy(said: str, expected: str) -> None:
    assert expected in (remedy(said) or "")
