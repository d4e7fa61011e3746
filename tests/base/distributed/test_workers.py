"""Workers that are started and watched together: what one of them does ends all."""

import sys
from pathlib import Path

import pytest

from perennial.base import failures, files
from perennial.base.distributed import workers
from perennial.base.errors import ConfigError, Interrupted
from perennial.base.processes.programs import Program

WAITS = "import time; time.sleep(600)"


@pytest.fixture
def supervised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Supervises workers that run these programs; returns their exit codes, or raises the error."""
    monkeypatch.setattr(workers, "NOTICE_S", 0.2)
    started: list[Program] = []

    def run(*programs: str) -> list[int | None]:
        def start(index: int) -> Program:
            started.append(Program([sys.executable, "-c", programs[index]], stdout=None, stderr=None))
            return started[-1]

        workers.supervise(start, len(programs), tmp_path)
        return [each.poll() for each in started]

    yield run
    assert None not in [each.poll() for each in started]
    for each in started:
        each.stop()


def test_all_that_end_well_are_a_success(supervised) -> None:
    assert supervised("", "") == [0, 0]


def test_the_mistake_of_one_ends_all_and_is_the_error(supervised, tmp_path: Path) -> None:
    failure = tmp_path / "mistake.json"
    files.write_json(failure, failures.document(ConfigError("train.seed"), "train.seed is wrong"))
    program = f"import os; os.rename({str(failure)!r}, {str(workers.failure_file(tmp_path, 1))!r}); os._exit(2)"
    with pytest.raises(ConfigError, match=r"worker 1: train\.seed is wrong"):
        supervised(WAITS, program)


def test_the_kill_of_one_ends_all_resumably(supervised) -> None:
    with pytest.raises(Interrupted, match="worker 1 was ended by SIGKILL"):
        supervised(WAITS, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
