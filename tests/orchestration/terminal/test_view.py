"""The live view of a run on a terminal."""

import io
import json
import logging
import os
import pty
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from rich.console import Console

from perennial.orchestration.terminal.view import View, live_view

STAGES = ("download", "train", "gate")
PROGRESS = {
    "step": 300, "steps": 400, "epoch": 3, "epochs": 4, "accuracy": 0.9653, "examples_per_second": 2000.0,
}  # fmt: skip


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)


@pytest.fixture
def view(console: Console, tmp_path: Path) -> View:
    return View(console, STAGES, tmp_path / "progress.json")


def record(
    message: str, level: int = logging.INFO, name: str = "prefect.task_runs", **extra: str
) -> logging.LogRecord:
    made = logging.LogRecord(name, level, "file", 1, message, (), None)
    made.__dict__.update(extra)
    return made


def rows(view: View, console: Console) -> list[list[str]]:
    """The words of each row, without the mark of the stage at work."""
    with console.capture() as shown:
        console.print(view)
    lines = [line.split() for line in shown.get().splitlines()]
    return [line if line[0] in (*STAGES, "✓") else line[1:] for line in lines if line]


def test_a_stage_shows_its_last_line_then_its_result(view: View, console: Console) -> None:
    view.emit(record("fetching\nmuch", task_name="download"))
    assert [row[:2] for row in rows(view, console)] == [["download", "fetching"], ["train"], ["gate"]]
    view.emit(record("download: ran", task_name="download", result="ran"))
    view.emit(record("Finished in state Completed()", task_name="download"))
    download, train, gate = rows(view, console)
    assert (download[:3], train[0], gate) == (["✓", "download", "ran"], "train", ["gate"])


def test_a_task_about_several_stages_shows_the_result_of_each(view: View, console: Console) -> None:
    for stage in ("download", "train"):
        extra = {"stage": stage, "result": "up to date"}
        view.emit(record(f"{stage}: up to date", task_name="find_unchanged", **extra))
    assert [row[1:5] for row in rows(view, console)[:2]] == [
        [stage, "up", "to", "date"] for stage in STAGES[:2]
    ]


def test_the_commands_of_dvc_are_not_shown(view: View, console: Console) -> None:
    for line in ("fetching", "Running stage 'download':", "> python -m perennial download"):
        view.emit(record(line, task_name="download"))
    assert rows(view, console)[0][:2] == ["download", "fetching"]


def test_the_time_before_a_stage_is_not_its_own(view: View, console: Console) -> None:
    view._started -= 60
    view.emit(record("Finished in state Completed()", task_name="pin"))
    view.emit(record("download: up to date", task_name="download", result="up to date"))
    *_, seconds, _ = rows(view, console)[0]
    assert float(seconds) < 30


def test_a_training_shows_its_progress_but_not_that_of_an_earlier_one(view, console, tmp_path) -> None:
    file = tmp_path / "progress.json"
    file.write_text(json.dumps({**PROGRESS, "seconds_left": 5}))
    view.emit(record("up to date", task_name="download", result="up to date"))
    view._started -= 3600  # the file was written since
    assert "epoch 3 of 4, accuracy 0.9653, 00:05 left" in " ".join(rows(view, console)[1])  # at 80 columns
    view.emit(record("ran", task_name="train", result="ran"))
    assert "epoch" not in str(rows(view, console))


@pytest.mark.parametrize(
    ("message", "name", "shown"),
    [
        ("the server is down", "prefect.flow_runs", True),
        ("stopping the stage", "perennial.base.dvc.repro", True),
        ("Finished in state Failed()", "prefect.flow_runs", False),
        ("something of a library", "dvc.rwlock", False),
    ],
)
def test_warnings_stand_above_the_rows(view, console, message, name, shown) -> None:
    with console.capture() as printed:
        view.emit(record(message, logging.WARNING, name))
    assert (message in printed.get()) == shown


def test_without_a_terminal_nothing_changes(tmp_path: Path) -> None:
    before = list(logging.getLogger().handlers)
    with live_view(STAGES, tmp_path / "work") as log:
        assert (log, logging.getLogger().handlers) == (None, before)
    assert not (tmp_path / "work").exists()


def test_on_a_terminal_the_lines_go_to_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [logging.StreamHandler()])
    with live_view(STAGES, tmp_path) as log:
        root.handle(record("a line of 猫", task_name="train"))
    (lines,) = root.handlers
    lines.close()
    assert log
    assert log.read_text(encoding="utf-8").endswith("| INFO    | train | a line of 猫\n")


# SIGHUP, which comes when its terminal is closed, or else SIGTERM later, ends it as it ends a run.
ON_A_TERMINAL = """
import logging, os, signal, sys, time
from pathlib import Path
from perennial.orchestration.terminal import flow_command
from perennial.orchestration.terminal.view import live_view

signal.signal(signal.SIGHUP, getattr(signal, sys.argv[1]))
flow_command.SIGNALS = (signal.SIGTERM, *([signal.SIGHUP] if sys.argv[1] == "SIG_DFL" else []))
root = logging.getLogger()
root.addHandler(logging.StreamHandler())
with flow_command._exit_codes(), live_view(["train"], Path()) as file:
    try:
        print("shown", flush=True)
        while os.isatty(2):
            time.sleep(0.05)
        if sys.argv[1] == "SIG_IGN":
            time.sleep(0.5)  # the rows are drawn meanwhile
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    except BaseException as error:
        log = logging.getLogger("perennial.base.dvc.repro")
        log.warning("stopping the stage after %s", type(error).__name__)
        raise
"""


@pytest.mark.fast_rows("SIG_DFL")
@pytest.mark.parametrize("hangup", ["SIG_DFL", "SIG_IGN"])
def test_a_closed_terminal_neither_hides_a_signal_nor_breaks_the_end(tmp_path, monkeypatch, hangup) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text("paths: {work: .}\n")
    command = [sys.executable, "-c", ON_A_TERMINAL, hangup]
    process, terminal = pty.fork()
    if not process:
        os.execve(sys.executable, command, {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"})
    while b"shown" not in os.read(terminal, 65536):
        pass
    os.close(terminal)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 75
    assert "stopping the stage after _Interrupted" in (tmp_path / "retrain.log").read_text()
