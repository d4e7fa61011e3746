"""The tutorial from traffic to a better model, as printed: with a bucket, a browser and a server of models."""

import hashlib
import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from support import chromium, s3, terminal, wheel
from support.checkout import Beside, Server, free_port, responds, wait_until

from perennial.live.capture import place
from perennial.live.label.duels import PROMOTE

pytestmark = [pytest.mark.slow, pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium")]
PAGE = Path(__file__).parents[2] / "docs" / "tutorial-loop.md"
NEW = "five"  # the class that the first model does not know


@dataclass
class Story:
    """The terminals of the page."""

    here: terminal.Terminal
    programs: Path
    port: int
    blocks: Iterator[list[str]]

    def next(self, *starts: str, without: tuple[str, ...] = ()) -> str:
        """Run the next block, which begins as given; returns what it prints."""
        commands = next(self.blocks)
        assert commands[0].startswith(starts), commands
        return self.here.run(terminal.without(commands, *without))

    def perennial(self, *arguments: str) -> Any:
        """What a command says as JSON."""
        done = subprocess.run(
            [self.programs / "perennial", *arguments, "--json"],
            cwd=self.here.folder, env=self.here.environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return json.loads(done.stdout)

    @contextmanager
    def beside(self, command: str, *more: str) -> Iterator[Beside]:
        """Run a command of the page in another terminal."""
        assert command.startswith("perennial ")
        arguments = [str(self.programs / "perennial"), *command.split()[1:], *more]
        with Beside(arguments, self.here.folder, self.here.environment) as running:
            yield running
        running.log.unlink()

    @contextmanager
    def served(self) -> Iterator[Beside]:
        """The next block's server, which has loaded its models."""
        command = next(self.blocks)[-1]
        with self.beside(command, "--port", str(self.port), "--every", "1") as running:
            wait_until(lambda: responds(f"http://127.0.0.1:{self.port}/ready"))
            if "--shadow" in command:
                wait_until(lambda: "loaded the candidate" in running.log.read_text())
            yield running

    def send(self, week: str) -> list[str]:
        """Send a week as the next block does, and wait until it is kept; returns the commands that follow."""
        images = list((self.here.folder.parent / week).iterdir())
        before = len(self.kept())
        first, *others = terminal.without(next(self.blocks), "sleep")
        assert week in first
        assert "results" in self.here.run([first])
        wait_until(lambda: len(self.kept()) >= before + len(images))
        return others

    def kept(self) -> list[Any]:
        store = place.open_place("s3://digits/captured")
        try:
            return [each for each in place.read(store) if each.reason == "random"]
        finally:
            store.stop()

    def recall(self, week: str) -> float:
        """The share of the new class's images that the served model answers so."""
        images = f"mkdir -p ../new && cp ../{week}/*-{NEW}.png ../new"
        printed = self.here.run([images, "bash ../send.sh ../new"])
        answers = [json.loads(line)["results"][0][0][0] for line in printed.splitlines()]
        return answers.count(NEW) / len(answers)

    def version(self) -> str:
        """The version that is served."""
        found = httpx.get(f"http://127.0.0.1:{self.port}/v1/models/digits").json()
        return str(found["model_version_status"][0]["version"])

    def labelled(self, command: str, profile: Path) -> Counter[str]:
        """Label the queue of a command in its page, by keys, as the names of the files say."""
        files = [file for week in self.here.folder.parent.glob("week-*") for file in week.iterdir()]
        truth = {hashlib.sha256(file.read_bytes()).hexdigest(): file.stem.split("-")[1] for file in files}
        given = Counter[str]()
        with self.beside(command, "--port", "0") as running:
            wait_until(lambda: "open http" in running.log.read_text())
            (url,) = re.findall(r"open (\S+);", running.log.read_text())
            with chromium.opened(url, profile) as page:
                for number in count():
                    page.wait_for(f"document.getElementById('count').textContent.startsWith('{number} of ')")
                    if page.evaluate("document.getElementById('image').hidden"):
                        break
                    name = truth[page.evaluate("document.getElementById('image').src").rpartition("/")[2]]
                    keys = page.evaluate(
                        "Object.fromEntries([...document.querySelectorAll('#classes button')].map(each => "
                        "[each.querySelector('span').textContent, each.querySelector('kbd').textContent]))"
                    )
                    page.press(keys[name])
                    given[name] += 1
        return given


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Story]:
    """The page, before its first command."""
    with s3.moto() as url:
        for name, value in {**s3.CREDENTIALS, "AWS_ENDPOINT_URL": url}.items():
            monkeypatch.setenv(name, value)
        port, world = free_port(), tmp_path / "world"
        world.mkdir()
        text = PAGE.read_text(encoding="utf-8").replace("http://127.0.0.1:9000", url)
        text = text.replace("127.0.0.1:8501", f"127.0.0.1:{port}")
        for language, name in (("python", "world.py"), ("bash", "send.sh")):
            (found,) = re.findall(
                rf"save this as `{name}`.*?```{language}\n(.*?)```", text, re.DOTALL | re.IGNORECASE
            )
            (world / name).write_text(found)
        programs = wheel.installed(tmp_path)
        here = terminal.machine(world, programs, url, "home")
        blocks = iter(terminal.blocks(text))
        assert "moto_server" in next(blocks)[0]
        yield Story(here, programs, port, blocks)


def test_every_command_of_the_tutorial_does_what_the_page_says(story, server, tmp_path) -> None:
    begin(story)
    with story.served():
        alarm(story)
    label(story, tmp_path / "first")
    judge(story)
    with story.served() as running:
        compare(story, tmp_path / "second")
        promote(story)
        wait_until(lambda: story.version() == "2")
        assert story.recall("week-2") > 0.5
        assert "v0.0.1 is champion" in story.next("perennial rollback")
        wait_until(lambda: story.version() == "1")
        assert story.recall("week-2") == 0
        assert "Traceback" not in running.log.read_text()
    assert [each["champion"] for each in story.perennial("versions")] == [False, True]
    assert next(story.blocks, None) is None
    deployed(story, server)


def begin(story: Story) -> None:
    """The bucket, the project and its first champion."""
    commands = next(story.blocks)
    assert commands[-1].startswith("uv run ")
    story.here.run([*commands[:-1], "python world.py"])
    printed = story.next("uv tool install", without=("uv tool install",))
    assert "digits v0.0.1 is champion" in printed
    assert "version 1: s3://digits/models/1" in printed


def alarm(story: Story) -> None:
    """The monitor notices blurred images and those of a new class without labels."""
    printed = story.here.run(story.send("week-1"))
    print(printed)
    assert "ALARM" in printed


def label(story: Story, profile: Path) -> None:
    """A queue of 300 images, half of them drawn at random, becomes a branch."""
    (command,) = next(story.blocks)
    given = story.labelled(command, profile)
    assert given.total() == 300
    assert given[NEW] > 10
    printed = story.next("perennial label --branch")
    assert "labels-1: 300 labels at" in printed
    assert "150 images drawn at random only measure, 150 chosen ones only train" in printed
    assert "main" in story.here.run(["git branch --show-current; git status --porcelain"]).split("\n")[0]


def judge(story: Story) -> None:
    """The gate compares the model of the branch, which knows the new class, with the champion."""
    printed = story.next("git switch")
    decision = json.loads((story.here.folder / "metrics" / "decision.json").read_text())
    assert decision["comparison"]["new_classes"] == [NEW]
    (traffic,) = [each for each in decision["comparison"]["slices"] if each["name"] == "traffic: random"]
    assert traffic["candidate"] > traffic["champion"]
    assert decision["promote"]
    assert "labelled images of the test split; v0.0.1 has" in story.perennial("report", "--no-page")["traffic"]
    print(printed[-3500:])


def compare(story: Story, profile: Path) -> None:
    """Labels of images on which the two disagree say that the candidate is better."""
    queue, *comparison = story.send("week-2")
    shadow = httpx.get(f"http://127.0.0.1:{story.port}/shadow", headers={"Accept": "application/json"}).json()
    assert shadow["images"] > 100
    assert shadow["errors"] == 0
    assert story.version() == "1"
    assert story.labelled(queue, profile).total() >= 60
    (duel,) = story.perennial("label", "--compare")
    print(shadow, duel, sep="\n")
    assert duel["e"] >= PROMOTE
    assert ": promote" in story.here.run(comparison)


def promote(story: Story) -> None:
    """The very model of the branch becomes champion, and the branch is merged."""
    (first, *more) = next(story.blocks)
    if not story.perennial("report", "--no-page")["decision"].startswith("passed"):
        first = first.replace("--approve Ada", "--force Ada --because 'the labels of the disagreements'")
    printed = story.here.run([first, *more])
    assert "digits v0.0.2 is champion" in printed
    assert "version 2: s3://digits/models/2" in printed
    state = story.here.run(
        ["git fetch -q; git status -sb; git rev-parse origin/main origin/labels-1 'digits@v0.0.2^{}'"]
    )
    first, *commits = state.split("\n")[:4]
    assert first == "## main...origin/main"
    assert len(set(commits)) == 1


def deployed(story: Story, server: Server) -> None:
    """The labels of the second queue, judged by a worker, wait for a person and are then promoted."""
    page = PAGE.with_name("how-to").joinpath("approval.md").read_text(encoding="utf-8")
    (commands,) = [each for each in terminal.blocks(page) if "dvc get" in " ".join(each)]
    commands = [each.replace("labels-1", "labels-2") for each in commands]
    story.here.environment |= {
        "PREFECT_API_URL": server.url,
        "PERENNIAL_REPOSITORY": str(story.here.folder.with_suffix(".git")),
        "PREFECT_WORKER_QUERY_SECONDS": "2",
    }
    story.here.run(["perennial label --branch labels-2 --push", "perennial deploy"])
    with story.beside("perennial worker"):
        assert "Completed" in story.here.run(commands[:1])
        (waiting,) = story.perennial("approve")
        fetch, serve, approve, merge = (each.replace("RUN", waiting["run"]) for each in commands[2:])
        story.here.run([fetch])
        assert (story.here.folder / "candidate" / "saved_model.pb").is_file()
        with story.beside(serve, "--port", str(story.port)) as running:
            wait_until(lambda: "loaded the candidate" in running.log.read_text())
        assert "digits v0.0.3 is champion, approved by Ada" in story.here.run([approve])
        wait_until(lambda: not server.runs("PENDING", "RUNNING", "PAUSED", "SCHEDULED"))
    story.here.run([merge])
    assert "v0.0.3" in story.here.run(["git describe --tags --match '*v*'"])
    published = boto3.client("s3").list_objects_v2(Bucket="digits", Prefix="models/3/")
    assert published["KeyCount"] > 0
