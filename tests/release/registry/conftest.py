"""Projects that have a model to record, each with a remote of its own."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from release.registry.git_server import World
from support.pipelines import Project, make


@pytest.fixture(scope="session")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose first run is reproduced, which no test changes."""
    return make(tmp_path_factory.mktemp("refusals") / "base")


@pytest.fixture
def project(reproduced: Project, tmp_path: Path) -> Project:
    """A copy of it with a remote of its own."""
    return reproduced.copied(tmp_path / "copy")


@pytest.fixture
def world(project: Project, tmp_path: Path) -> Iterator[World]:
    """The copy and its remote."""
    with ExitStack() as resources:
        yield World(project, tmp_path / "copy" / "remote", resources)


@pytest.fixture(scope="session")
def two_versions(reproduced: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with v0.0.1 and the champion v0.0.2 on the server; no test changes it."""
    project = reproduced.copied(tmp_path_factory.mktemp("two") / "base")
    project.perennial("promote", "--push")
    project.data("0.9 second")
    project.reproduce()
    project.perennial("promote", "--push")
    return project


@pytest.fixture(scope="session")
def recorded_once(reproduced: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with v0.0.1, recorded as a flow does it; no test changes it."""
    project = reproduced.copied(tmp_path_factory.mktemp("once") / "base")
    project.must("perennial", "runs", "start", "night-1")
    project.perennial("record", "night-1")
    return project
