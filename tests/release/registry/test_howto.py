"""The guide to versions, each command as it is printed, in a small project."""

import re
from pathlib import Path

import pytest
from support.pipelines import Project, make

GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "versions.md"
BLOCK = re.compile(
    r"<!-- not run: tests/release/registry/test_howto.py[^\n]*\n```console\n(.*?)\n```", re.DOTALL
)
VARYING = re.compile(r"[0-9a-f]{10}  \S+")  # commit and date


def bash(project: Project, *lines: str) -> str:
    # `perennial` and `dvc` of this environment, as with .venv/bin first on the PATH.
    return project.must("bash", "-euo", "pipefail", "-c", "\n".join(lines))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose first model passes the gate."""
    project = make(tmp_path_factory.mktemp("howto") / "base")
    project.must("perennial", "runs", "start", "night-1")
    return project


@pytest.mark.slow
def test_every_command_prints_what_the_guide_shows(project: Project) -> None:
    promote, force, others, back, runs = BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
    run_block(project, promote)
    project.data("0.2 bad")
    project.reproduce()
    run_block(project, force)
    run_block(project, others)
    assert (project.folder / "champion" / "model").read_text() == "0.2 bad\n"
    assert (project.folder / "first" / "model").read_text() == "0.8 first\n"
    run_block(project, back)
    project.must("perennial", "runs", "start", "night-2")
    run_block(project, runs)


def run_block(project: Project, text: str) -> None:
    """Run the commands of a block; where it shows output, this must be it."""
    commands = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
    shown = [line for line in text.splitlines() if not line.startswith("$ ")]
    printed = bash(project, *commands)
    if shown:
        assert VARYING.sub("", printed) == VARYING.sub("", "\n".join(shown))
