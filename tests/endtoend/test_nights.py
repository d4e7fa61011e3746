"""Nights of a deployment whose data, DVC remote and published models are in S3; FAULTS: how many fail."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from PIL import Image
from sklearn.datasets import load_digits
from support import s3
from support.checkout import Beside, Checkout, Server

FAULTS = float(os.environ.get("FAULTS", "0"))
FIRST, MORE = 1200, 150  # images of night 1, and those that night 2 adds
pytestmark = pytest.mark.slow


@dataclass
class Nights:
    """A deployment with a worker, a bare repository, and a bucket behind a proxy that counts requests."""

    project: Checkout
    repository: Path
    server: Server
    home: Path
    bucket: Any
    proxy: s3.Proxy
    log: Path
    environment: dict[str, str] = field(default_factory=dict)

    def put(self, numbers: range) -> None:
        """Upload digits as photos, one folder for each class."""
        digits, file = load_digits(), self.project.home / "digit.png"
        for number in numbers:
            Image.fromarray((digits.images[number] * 255 / 16).astype("uint8")).save(file)
            key = f"images/{digits.target[number]}/{number:04}.png"
            self.bucket.put_object(Bucket=self.bucket.name, Key=key, Body=file.read_bytes())

    def run(self) -> dict[str, Any]:
        """One night: what `perennial run --watch` printed, and what the run asked of the bucket."""
        self.proxy.asked.clear()
        started = time.monotonic()
        command = (sys.executable, "-m", "perennial", "run", "nightly", "--watch", "--json")
        done = self.project.run(*command, **self.environment)
        assert done.returncode == 0, done.stdout
        found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
        asked = list(self.proxy.asked)
        image = re.compile(rf"/{self.bucket.name}/images/(.+?)(?:\?|$)")
        names = [image.search(unquote(path)) for method, path in asked if method == "GET"]
        found["images"] = {name[1] for name in names if name}
        found["requests"], found["seconds"] = len(asked), time.monotonic() - started
        record = self.home / "runs" / str(found["id"]) / "runs" / str(found["id"]) / "run.json"
        found["record"] = json.loads(record.read_text()) if record.exists() else None
        return found

    def refs(self) -> dict[str, str]:
        """Commits of the repository's branches and tags."""
        listed = self.project.must("git", "ls-remote", str(self.repository)).splitlines()
        return {name: commit for commit, name in (line.split("\t") for line in listed)}

    def clone_is_clean(self, folder: Path, revision: str) -> None:
        """Git and the remote give all outputs of a commit."""
        clone = Checkout(folder, self.project.home)
        self.project.must("git", "clone", "-q", str(self.repository), str(folder))
        clone.must("git", "checkout", "-q", revision)
        while clone.run("dvc", "pull", "-q", **self.environment).returncode:
            assert FAULTS, "DVC itself gives up where many requests fail, and goes on when it runs again"
        assert "up to date" in clone.must("dvc", "status", **self.environment)


@pytest.fixture
def nights(
    make_checkout: Callable[[str], Checkout], server: Server, tmp_path: Path, bucket: Any, proxy: s3.Proxy
) -> Iterator[Nights]:
    proxy.rate, proxy.faults = FAULTS, s3.FAST_FAULTS
    project, home, repository = make_checkout("nights"), tmp_path / "worker", tmp_path / "digits.git"
    home.mkdir()
    environment = {
        **s3.CREDENTIALS,
        "AWS_ENDPOINT_URL": proxy.url,
        "PREFECT_API_URL": server.url,
        "PERENNIAL_HOME": str(home),
        "PERENNIAL_REPOSITORY": str(repository),
    }
    project.set("dataset", name="image_folder", url=f"{bucket.url}/images")
    project.set("preprocessing", image_size=8, grayscale=True)
    project.set("train", epochs=20)
    project.set("gate", min_accuracy=0.8)
    project.set("publish", url=f"{bucket.url}/models")
    project.must("perennial", "remote", "add", "store", f"{bucket.url}/dvc", **environment)
    project.commit("Bucket")
    project.must("git", "init", "-q", "--bare", "-b", "main", str(repository))
    project.must("git", "remote", "add", "origin", str(repository))
    project.must("git", "push", "-q", "origin", "main")
    project.must(sys.executable, "-m", "tasks.deploy", **environment)
    worker = ["python", "-m", "tasks.worker", "--pool", "cpu"]
    seen = project.environment(**environment, PREFECT_WORKER_QUERY_SECONDS="1")
    with Beside(worker, project.folder, seen) as started:
        yield Nights(project, repository, server, home, bucket, proxy, started.log, environment)


def test_three_nights_over_a_bucket(nights: Nights, tmp_path: Path) -> None:
    nights.put(range(FIRST))
    first = nights.run()
    assert len(first["images"]) == FIRST
    refs = nights.refs()
    assert "refs/tags/classifier@v0.0.1" in refs
    nights.clone_is_clean(tmp_path / "after 1", "main")

    nights.put(range(FIRST, FIRST + MORE))
    second = nights.run()
    assert len(second["images"]) == MORE
    assert second["record"]["champion"] == "v0.0.1"
    after = nights.refs()
    (changed,) = {name for name in after if name.startswith("refs/heads/") and after[name] != refs.get(name)}
    nights.clone_is_clean(tmp_path / "after 2", changed.removeprefix("refs/heads/"))

    third = nights.run()
    assert third["images"] == set()
    assert nights.refs() == after

    models, to = f"{nights.bucket.url}/models", str(tmp_path / "in use")
    nights.project.must("perennial", "fetch", models, "--to", to, **nights.environment)
    nights.project.must("git", "fetch", "-q", "--tags", "origin", "+refs/heads/*:refs/remotes/origin/*")
    nights.project.must("perennial", "verify", models, **nights.environment)
    nights.project.must("perennial", "audit", "--all", "--deep", **nights.environment)
    for number, night in enumerate((first, second, third), 1):
        images, requests, seconds = len(night["images"]), night["requests"], night["seconds"]
        print(f"night {number}: {images} images, {requests} requests, {seconds:.0f} s")
    print(f"{len(nights.proxy.failed)} requests failed")
    assert secrets(nights.log.parent) + secrets(tmp_path) == []


def test_machines_at_once_each_have_the_right_opponent(nights: Nights, tmp_path: Path) -> None:
    """Each pushes by itself, without a common server; who loses a race is compared with the new champion."""
    nights.project.set("train", epochs=1)
    nights.project.set("gate", min_accuracy=None, min_gain=0.0, significance=None, max_class_drop=None)
    nights.project.commit("Easy gate")
    nights.project.must("git", "push", "-q", "origin", "main")
    nights.put(range(FIRST))
    nights.run()
    machines = []
    for epochs in (3, 6, 20):
        machine = Checkout(tmp_path / f"{epochs} epochs", tmp_path / f"home {epochs}")
        machine.home.mkdir()
        nights.project.must("git", "clone", "-q", str(nights.repository), str(machine.folder))
        environment = machine.environment(**nights.environment | {"PERENNIAL_HOME": str(machine.home)})
        del environment["PREFECT_API_URL"]
        machine.set("train", epochs=epochs)
        retrain = "from flows.retrain import retrain; retrain(push=True)"
        with (machine.home / "log").open("w") as log:
            machines.append(
                subprocess.Popen(
                    [sys.executable, "-c", retrain], cwd=machine.folder, env=environment, stdout=log, stderr=log
                )
            )
    codes = [machine.wait() for machine in machines]
    assert codes == [0, 0, 0], [file.read_text()[-2000:] for file in tmp_path.glob("home */log")]
    versions = sorted(name.rpartition("@")[2] for name in nights.refs() if "@v" in name and "^" not in name)
    print(versions)
    for before, version in pairwise([None, *versions]):
        revision = f"classifier@{version}"
        nights.clone_is_clean(tmp_path / version, revision)
        opponent = json.loads((tmp_path / version / "pins/champion.json").read_text())["version"]
        decision = json.loads((tmp_path / version / "metrics" / "decision.json").read_text())
        assert (opponent, decision["promote"]) == (before, True)
    assert len(versions) > 1
    for epochs in (3, 6, 20):
        opponent = json.loads((tmp_path / f"{epochs} epochs" / "pins/champion.json").read_text())["version"]
        assert opponent in versions


def secrets(folder: Path) -> list[str]:
    """Files with the planted key in them, but for the one that plants it."""
    planted, secret = Path(s3.__file__).read_bytes(), s3.SECRET
    contents = ((path, path.read_bytes()) for path in folder.rglob("*") if path.is_file())
    return [str(path) for path, content in contents if secret.encode() in content and content != planted]
