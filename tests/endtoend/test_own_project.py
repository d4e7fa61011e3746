"""The tutorial of a project of one's own, run as printed with the installed package, a server and a bucket."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import raw, s3, terminal, wheel
from support.checkout import Beside, Server, free_port, responds, wait_until

from perennial.base import files

pytestmark = pytest.mark.slow  # five trainings
PAGE = Path(__file__).parents[2] / "docs" / "tutorial-project.md"


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
    return terminal.blocks(text)


def test_every_command_of_the_tutorial_runs_as_printed(world, server, bucket, tmp_path) -> None:
    programs = wheel.installed(tmp_path)
    make, use, keep, nightly, rebuild = blocks(world, server)
    here = terminal.machine(world, programs, bucket, "home")
    here.run(terminal.without(make, "uv tool install"))
    assert "roses/1.png: " in here.run(terminal.without(use, "perennial serve"))
    port = str(free_port())
    with Beside([str(programs / "perennial"), "serve", "--port", port], here.folder, here.environment):
        wait_until(lambda: responds(f"http://127.0.0.1:{port}/ready"))
    assert "shop v0.0.1 is champion" in here.run(keep)
    watched = next(each for each in nightly if "--watch" in each)
    deployed = terminal.without(
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
    there = terminal.machine(elsewhere, programs, bucket, "home")
    printed = there.run(terminal.without(rebuild, "uv tool install"))
    assert "v0.0.1: equal" in printed
