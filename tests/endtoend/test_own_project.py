"""The tutorial of a project of one's own, run as printed with the installed package, a server and a bucket."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import raw, s3, wheel
from support.checkout import Beside, Server, free_port, responds, wait_until

from perennial.base import files

pytestmark = pytest.mark.slow  # five trainings
PAGE = Path(__file__).parents[2] / "docs" / "tutorial-project.md"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)


class Terminal:
    """A shell that keeps its folder and its variables from one block of the page to the next."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder, self.environment = folder, environment

    def run(self, commands: list[str]) -> str:
        """Run commands; returns what they print."""
        kept = self.environment["HOME"]
        script = "\n".join([*commands, f"pwd > {kept}/folder; env -0 > {kept}/variables"])
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-4000:]
        self.folder = Path(Path(kept, "folder").read_text().rstrip("\n"))
        variables = Path(kept, "variables").read_text().split("\0")
        self.environment = dict(each.split("=", 1) for each in variables if "=" in each)
        return done.stdout


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with s3.moto() as url, pytest.MonkeyPatch.context() as patch:
        for name, value in s3.CREDENTIALS.items():
            patch.setenv(name, value)
        s3.create_bucket(url, "my-bucket")
        yield url


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, server: Server, bucket: str) -> Path:
    """A folder with the photographs, and a git remote."""
    folder = tmp_path_factory.mktemp("world")
    for number in range(60):
        picture = raw.encoded(raw.picture(number, 60))
        files.write_bytes(
            folder / "flowers" / ("daisies", "roses", "tulips")[number % 3] / f"{number // 3}.png", picture
        )
    wheel.run("git", "init", "-q", "--bare", "-b", "main", "shop.git", cwd=folder)
    return folder


def blocks(world: Path, server: Server) -> list[list[str]]:
    """The commands of each block, with the addresses of this world."""
    text = PAGE.read_text(encoding="utf-8").replace("http://127.0.0.1:4200/api", server.url)
    text = text.replace("git@example.com:me/shop.git", f"{world}/shop.git").replace(
        "roses/1.jpg", "roses/1.png"
    )
    return [
        [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]
        for block in BLOCK.findall(text)
    ]


def terminal(folder: Path, programs: Path, bucket: str, name: str) -> Terminal:
    """A machine of its own: another home folder."""
    home = folder / name
    home.mkdir()
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = {"HOME": str(home), "PATH": path, "AWS_ENDPOINT_URL": bucket, "DO_NOT_TRACK": "1", "TERM": "dumb"}
    who = {f"GIT_{role}_{part}": "ada" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PERENNIAL"))}
    return Terminal(folder, {**kept, **s3.CREDENTIALS, **own, **who})


def without(commands: list[str], *starts: str) -> list[str]:
    """The commands that do not begin so, each of which must be there."""
    assert all(any(each.startswith(start) for each in commands) for start in starts)
    return [each for each in commands if not each.startswith(starts)]


def test_every_command_of_the_tutorial_runs_as_printed(
    world: Path, server: Server, bucket: str, tmp_path: Path
) -> None:
    programs = wheel.installed(tmp_path)
    make, use, keep, nightly, rebuild = blocks(world, server)
    here = terminal(world, programs, bucket, "home")
    here.run(without(make, "uv tool install"))
    assert "roses/1.png: " in here.run(without(use, "perennial serve"))
    port = str(free_port())
    with Beside([str(programs / "perennial"), "serve", "--port", port], here.folder, here.environment):
        wait_until(lambda: responds(f"http://127.0.0.1:{port}/ready"))
    assert "classifier v0.0.1 is champion" in here.run(keep)
    watched = next(each for each in nightly if "--watch" in each)
    deployed = without(
        nightly, "prefect server start", "perennial worker", "perennial run", "prefect deployment"
    )
    here.run([*deployed, "prefect deployment schedule ls retrain/nightly"])
    worker = [str(programs / "perennial"), "worker"]
    with Beside(worker, here.folder, {**here.environment, "PREFECT_WORKER_QUERY_SECONDS": "5"}):
        assert "Completed" in here.run([watched])
        with server.schedule("nightly", seconds=10):
            wait_until(lambda: [run for run in server.runs() if run["auto_scheduled"] and run["start_time"]])
        wait_until(lambda: not server.runs("PENDING", "RUNNING"), seconds=3600)
    states = [run["state_type"] for run in server.runs() if run["auto_scheduled"] and run["start_time"]]
    assert set(states) == {"COMPLETED"}
    (world / "flowers").rename(world / "flowers-of-the-first-machine")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    there = terminal(elsewhere, programs, bucket, "home")
    printed = there.run(without(rebuild, "uv tool install"))
    assert "v0.0.1: equal" in printed
