"""Remotes that DVC verifies, added by real DVC."""

import json
import shutil

import pytest
from support import forks
from support.s3 import FAST_FAULTS

import perennial.base.dvc.dvc_program


def dvc(*arguments):
    done = forks.run("-m", "dvc", *arguments)
    done.check_returncode()
    return done.stdout


def add(*arguments):
    return forks.run("-m", "perennial", "remote", "add", *arguments)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository of DVC in a folder with a space."""
    folder = tmp_path / "a repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")
    dvc("init", "--no-scm")
    return folder


def test_a_remote_is_verified_and_the_first_is_the_default(repository):
    first = add("bucket", "s3://bucket/dvc", "--json")
    document = {"name": "bucket", "url": "s3://bucket/dvc", "default": True, "verify": True}
    assert json.loads(first.stdout) == document
    assert "other: s3://other/dvc, not asked yet; commit" in add("other", "s3://other/dvc").stdout
    assert add("bucket", "s3://bucket/dvc").returncode == 0
    listed = dvc("config", "--list").splitlines()
    assert {each for each in listed if each.startswith(("remote", "core.remote"))} == {
        "core.remote=bucket", "remote.bucket.url=s3://bucket/dvc", "remote.bucket.verify=true",
        "remote.other.url=s3://other/dvc", "remote.other.verify=true",
    }  # fmt: skip
    file = repository / ".dvc" / "config"
    file.write_text(f"{file.read_text()}['remote \"store\"']\n    url = /Böden\n", encoding="utf-8")
    before = file.read_bytes()
    refused = add("bucket", "s3://elsewhere/dvc")
    assert refused.returncode == 2
    assert "already, at s3://bucket/dvc" in refused.stderr
    assert add("more", "s3://more/dvc").returncode == 1  # DVC reads the file, and cannot write it
    assert file.read_bytes() == before


@pytest.mark.slow
def test_perennial_pushes_to_a_server_without_checksums_by_itself(repository, bucket, proxy):
    proxy.without_checksums = True
    add("bucket", f"s3://{bucket.name}/dvc")
    (repository / "data").write_text("content")
    dvc("add", "data")
    assert "1 file pushed" in perennial.base.dvc.dvc_program.run("push")


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0, 0.05, 0.2])
def test_dvc_pushes_and_pulls_through_failures(repository, bucket, proxy, rate):
    dvc_of_ours = perennial.base.dvc.dvc_program
    contents = {f"{number}": bytes([number]) * 10_000 * number for number in range(20)}
    (repository / "data").mkdir()
    for name, content in contents.items():
        (repository / "data" / name).write_bytes(content)
    add("bucket", f"{bucket.url}/dvc")
    dvc("add", "data")
    proxy.rate, proxy.faults = rate, FAST_FAULTS
    dvc_of_ours.run("push")
    shutil.rmtree(repository / "data")
    shutil.rmtree(repository / ".dvc" / "cache")
    dvc_of_ours.run("pull")
    assert {file.name: file.read_bytes() for file in (repository / "data").iterdir()} == contents
    assert bool(proxy.failed) == bool(rate)


@pytest.mark.parametrize(
    ("url", "remedy"), [("gs://bucket/dvc", "URL=https://storage.go"), ("../Böden", "ln -s")]
)
def test_a_place_that_dvc_or_we_cannot_use_is_refused_with_what_to_do(repository, url, remedy):
    done = add("bucket", url)
    assert (done.returncode, remedy in done.stderr) == (2, True)
    assert "remote" not in dvc("config", "--list")


@pytest.mark.parametrize("url", ["https://user:planted@host/dvc", "https://host/dvc?token=planted"])
def test_a_url_with_credentials_is_refused_before_git_sees_it(repository, url):
    before = (repository / ".dvc" / "config").read_bytes()
    done = add("bucket", url)
    assert done.returncode == 2
    assert "planted" not in done.stdout + done.stderr
    assert (repository / ".dvc" / "config").read_bytes() == before


def test_outside_a_repository_the_error_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = add("bucket", "s3://bucket/dvc")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "is in no DVC repository" in done.stderr
