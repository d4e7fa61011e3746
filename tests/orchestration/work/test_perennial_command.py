"""Calls of `perennial` from a run."""

import json
import os
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from support.checkout import wait_until

from perennial.base.errors import Failure
from perennial.base.processes.process import is_alive
from perennial.orchestration.work import perennial_command as cli
from perennial.orchestration.work.perennial_command import call_perennial, perennial
from perennial.orchestration.work.stage_failures import StageFailed

pytestmark = pytest.mark.timing


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that is called in place of Python."""
    file = tmp_path / "program"
    file.touch(0o755)
    monkeypatch.setattr(sys, "executable", str(file))
    return file


def test_a_failure_has_the_exit_code_and_the_whole_log(program: Path) -> None:
    program.write_text("#!/bin/sh\necho out; echo first >&2; echo '  second' >&2; exit 3\n")
    with pytest.raises(StageFailed) as failed:
        perennial("publish", "--json")
    assert (failed.value.exit_code, failed.value.message) == (3, "first\n  second")


def test_a_command_that_a_signal_ended_failed(program: Path) -> None:
    program.write_text("#!/bin/sh\necho uploading >&2; kill -9 $$\n")
    done = call_perennial("publish")
    assert (done.exit_code, done.log[0][:16], done.log[1:]) == (1, "SIGKILL ended it", ["uploading"])


def test_an_interrupted_command_may_save(program: Path, tmp_path: Path) -> None:
    program.write_text(
        f"#!/bin/sh\ntrap 'touch {tmp_path}/saved; exit 75' TERM\nsleep 600 & echo ready >&2\nwait\n"
    )

    def interrupt(line: str) -> None:
        raise KeyboardInterrupt(line)

    with pytest.raises(KeyboardInterrupt, match="ready"):
        call_perennial("rebuild", log=interrupt)
    assert (tmp_path / "saved").exists()


def test_a_command_that_does_not_end_is_killed(program, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(cli, "GRACE_S", 0.1)
    program.write_text(
        f"#!/bin/sh\ntrap '' TERM\necho $$ > {tmp_path}/id\necho ready >&2\nwhile :; do sleep 1; done\n"
    )

    def interrupt(line: str) -> None:
        raise KeyboardInterrupt(line)

    with pytest.raises(KeyboardInterrupt):
        call_perennial("rebuild", log=interrupt)
    process = Path("/proc", (tmp_path / "id").read_text().strip())
    wait_until(lambda: not process.exists())


def test_a_short_command_is_a_fork_with_its_own_output_log_and_variables(workspace, monkeypatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere")  # no program is started
    done = call_perennial("config", "--set", "train.epochs=2")
    assert (done.exit_code, YAML(typ="safe").load(workspace / "params.yaml")["train"]["epochs"]) == (0, 2)
    assert json.loads(call_perennial("config", "--json").output)["train"]["epochs"] == 2
    failed = call_perennial("config", "--set", "train.epochs=never")
    assert (failed.exit_code, failed.output, failed.kind) == (2, "", Failure.REFUSED)
    assert failed.log[0].startswith("perennial config: ")


def test_an_interrupted_fork_ends_and_this_process_goes_on(workspace, monkeypatch) -> None:
    forks, fork = [], os.fork
    monkeypatch.setattr(os, "fork", lambda: forks.append(fork()) or forks[-1])

    def interrupt(line: str) -> None:
        if "SIGTERM" not in line:  # which it says while it ends
            raise KeyboardInterrupt(line)

    with pytest.raises(KeyboardInterrupt, match="perennial config: "):
        call_perennial("config", "--set", "train.epochs=never", log=interrupt)
    assert not is_alive(forks[0])
