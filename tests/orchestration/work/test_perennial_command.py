"""Calls of `perennial` from a run."""

import sys
from pathlib import Path

import pytest
from support.checkout import wait_until

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
        perennial("report", "--json")
    assert (failed.value.exit_code, failed.value.message) == (3, "first\n  second")


def test_a_command_that_a_signal_ended_failed(program: Path) -> None:
    program.write_text("#!/bin/sh\nkill -9 $$\n")
    assert call_perennial("report").exit_code == 1


def test_an_interrupted_command_may_save(program: Path, tmp_path: Path) -> None:
    program.write_text(
        f"#!/bin/sh\ntrap 'touch {tmp_path}/saved; exit 75' TERM\necho ready >&2\nsleep 600 & wait\n"
    )

    def interrupt(line: str) -> None:
        raise KeyboardInterrupt(line)

    with pytest.raises(KeyboardInterrupt, match="ready"):
        call_perennial("rebuild", log=interrupt)
    assert (tmp_path / "saved").exists()


def test_a_command_that_does_not_end_is_killed(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
