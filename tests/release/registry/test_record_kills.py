"""Runs that are killed while they record: nothing is pushed by half, and the next run completes it."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
from support.checkout import wait_until
from support.pipelines import Project, recorded

pytestmark = [pytest.mark.timing, pytest.mark.slow]

KILLS = int(os.environ.get("KILLS", "1"))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with a DVC remote and one version."""
    return recorded(tmp_path_factory.mktemp("kills"))


def remote_state(project: Project) -> tuple[set[str], set[str]]:
    """Names of tags on the remote, and the commits of its main branch and of the newest version."""
    lines = [line.split() for line in project.git("ls-remote", "origin").splitlines()]
    tags = {name.removeprefix("refs/tags/") for _, name in lines if name.startswith("refs/tags/")}
    plain = {name for name in tags if not name.endswith("^{}")}
    newest = max(plain, key=lambda name: (name.startswith("classifier@"), len(name), name))
    ends = {commit for commit, name in lines if name in {"refs/heads/main", f"refs/tags/{newest}^{{}}"}}
    return plain, ends


def whole(number: int) -> set[str]:
    """The tags of so many versions, each promoted once."""
    numbers = range(1, number + 1)
    return {tag for n in numbers for tag in (f"classifier@v0.0.{n}", f"classifier#champion#{n}")}


def exists(group: int) -> bool:
    """Whether a group of processes has any."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("kill", range(KILLS))
def test_a_kill_leaves_no_half_of_a_push_and_the_next_run_completes_it(project: Project, kill: int) -> None:
    number = len(project.perennial("versions"))
    # Each version's code is the one before: only parameters differ, as in runs with overrides.
    params = (project.folder / "params.yaml").read_text(encoding="utf-8")
    old = f"\n  seed: {number - 1} # seed of initial weights"
    assert old in params
    new = params.replace(old, f"\n  seed: {number} # seed of initial weights")
    (project.folder / "params.yaml").write_text(new, encoding="utf-8")
    project.reproduce()
    command = [sys.executable, "-m", "perennial", "record", f"kill-{kill}"]
    with subprocess.Popen(
        command,
        cwd=project.folder,
        env=project.environment(),
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as run:
        # At a random moment of about the time that it takes; the moment does not decide the result.
        time.sleep(random.uniform(0.2, 6))
        os.killpg(run.pid, signal.SIGKILL)
    wait_until(lambda: not exists(run.pid))  # DVC would wait for a process that nobody has reaped yet
    tags, ends = remote_state(project)
    assert tags in (whole(number), whole(number + 1))
    assert len(ends) == 1
    project.reproduce()
    project.perennial("record", f"after-{kill}")
    tags, ends = remote_state(project)
    assert (tags, len(ends)) == (whole(number + 1), 1)
    (tip,) = ends
    assert (project.git("rev-parse", "HEAD"), project.git("status", "--porcelain")) == (tip, "")
