"""Terminals in which tests run the commands of a page as printed."""

import os
import re
import subprocess
import sys
from pathlib import Path

from support import s3

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


def machine(folder: Path, programs: Path, bucket: str, name: str) -> Terminal:
    """A machine of its own: another home folder."""
    home = folder / name
    home.mkdir()
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = {"HOME": str(home), "PATH": path, "AWS_ENDPOINT_URL": bucket, "DO_NOT_TRACK": "1", "TERM": "dumb"}
    who = {f"GIT_{role}_{part}": "ada" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PERENNIAL"))}
    return Terminal(folder, {**kept, **s3.CREDENTIALS, **own, **who})


def blocks(text: str) -> list[list[str]]:
    """The commands of each block of a page."""
    return [
        [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]
        for block in BLOCK.findall(text)
    ]


def without(commands: list[str], *starts: str) -> list[str]:
    """The commands that do not begin so, each of which must be there."""
    assert all(any(each.startswith(start) for each in commands) for start in starts)
    return [each for each in commands if not each.startswith(starts)]
