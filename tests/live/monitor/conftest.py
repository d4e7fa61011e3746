"""A project whose champion was trained on pictures in a bucket: real git, DVC and S3, no training."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support import forks, raw, s3
from support.checkout import copy_project
from support.parameters import change_params

from perennial.base import config, files
from perennial.base.config import Config
from perennial.base.project.git import repository
from perennial.data.sources.pin import pin
from perennial.release.registry import versions
from perennial.stages.convert import convert
from perennial.stages.download import download
from perennial.stages.validate import validate

IDENTITY = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", "t"), ("EMAIL", "t@t"))}  # fmt: skip
OUTS = {"download": "data/raw", "validate": "data/validation.json", "export": "models/export"}


@dataclass(frozen=True)
class Watched:
    """A clone of the project, with its bucket behind a proxy that counts requests."""

    folder: Path
    proxy: Any
    client: Any

    @property
    def environment(self) -> dict[str, str]:
        here = {
            "PYTHONPATH": str(self.folder / "src"),
            "AWS_ENDPOINT_URL": self.proxy.url,
            "DVC_NO_ANALYTICS": "1",
        }
        return {**os.environ, **IDENTITY, **s3.CREDENTIALS, **here}

    def run(self, *command: str, **extra: str) -> str:
        """The output of a program that must succeed."""
        program = [forks.python(), "-m", *command] if command[0] in {"dvc", "perennial"} else list(command)
        done = subprocess.run(
            program, cwd=self.folder, env={**self.environment, **extra}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def set(self, **values: object) -> Config:
        """Change parameters; the working directory is the project's."""
        change_params(self.folder / "params.yaml", values)
        return config.load(self.folder / "params.yaml")

    def put(self, name: str, content: bytes) -> None:
        self.client.put_object(Bucket="watched", Key=f"photos/{name}", Body=content)

    def requests(self) -> tuple[list[str], int]:
        """Objects that were fetched since the last call, and the number of other requests."""
        return self.proxy.requests("/photos/")


def _project(folder: Path) -> None:
    """Train the first version, as far as the monitor looks at it."""
    from support.inference import write_export  # noqa: PLC0415 - imports TensorFlow, which other tests do without

    copy_project(folder, {"benchmarks", "docs", "dvc.lock", "dvc.yaml", "tests"})
    stages = {name: {"cmd": f"python -m perennial {name}", "outs": [out]} for name, out in OUTS.items()}
    files.write_json(folder / "dvc.yaml", {"stages": stages})
    change_params(
        folder / "params.yaml",
        {
            "dataset.name": "image_folder",
            "dataset.url": "s3://watched/photos",
            "validate.severity.near_duplicate": "ignore",
        },
    )
    checked = config.load(folder / "params.yaml")
    pin(checked)
    for stage in (download, convert, validate):
        stage(checked)
    write_export(folder / "models" / "export")


def _promote(project: Watched) -> None:
    for command in ("git init -q -b main", "dvc commit -q -f"):
        project.run(*command.split())
    project.run("git", "add", "-A")
    project.run("git", "commit", "-qm", "First")
    git = repository(project.folder, "t", "t@t")
    registry = versions.read(git, "classifier")
    git.update(versions.promotion(git, registry, str(git.commit_of("HEAD")), {"accuracy": 0.9})[1])
    remote = project.folder.parent / "remote"
    project.run("git", "clone", "-q", "--bare", ".", str(remote))
    project.run("git", "remote", "add", "origin", str(remote))


@pytest.fixture(scope="session")
def first(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The project with the state of its bucket, which no test changes."""
    base = tmp_path_factory.mktemp("watched")
    with pytest.MonkeyPatch.context() as patch, s3.moto() as url:
        for name, value in s3.CREDENTIALS.items():
            patch.setenv(name, value)
        s3.share_loader(patch)
        client, proxy = s3.create_bucket(url, "watched"), s3.Proxy(url)
        patch.setenv("AWS_ENDPOINT_URL", proxy.url)
        raw.write_pictures(base / "photos", each=6)
        project = Watched(base / "the project", proxy, client)
        for file in sorted((base / "photos").rglob("*.*")):
            project.put(file.relative_to(base / "photos").as_posix(), file.read_bytes())
        project.folder.mkdir()
        patch.chdir(project.folder)
        _project(project.folder)
        _promote(project)
        yield project
        proxy.end()


@pytest.fixture
def watched(first: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked: None) -> Any:
    """A copy with an own remote, which the test works in; new objects are removed afterwards."""
    shutil.copytree(first.folder.parent, tmp_path / "copy", symlinks=True)
    project = Watched(tmp_path / "copy" / first.folder.name, first.proxy, first.client)
    project.run("git", "remote", "set-url", "origin", str(tmp_path / "copy" / "remote"))
    before = _keys(first.client)
    for name, value in {**s3.CREDENTIALS, "AWS_ENDPOINT_URL": first.proxy.url}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(project.folder)
    project.requests()
    yield project
    for key in _keys(first.client) - before:
        first.client.delete_object(Bucket="watched", Key=key)


def _keys(client: Any) -> set[str]:
    return {each["Key"] for each in client.list_objects_v2(Bucket="watched")["Contents"]}
