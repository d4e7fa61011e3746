"""The report of `make gpu-check`, and rows of it that need no GPU."""

import json
import signal
import sys
from pathlib import Path

import pytest
from support.checkout import wait_until

from benchmarks import gpu_check, gpu_rows
from benchmarks.gpu_check import Check, Row
from benchmarks.gpu_projects import Setting
from perennial.base.processes.process import is_alive

FINE = 'import json; print("working"); print(json.dumps({"said": "fine", "rate": 3.5}))'
LONG = "import time; time.sleep(1000)"


def row(name: str, code: str, *, limit_s: float = 60, after: tuple[str, ...] = ()) -> Row:
    """A row that runs this code."""
    return Row(name=name, command=(sys.executable, "-c", code), limit_s=limit_s, after=after)


@pytest.mark.fast_rows("3")
@pytest.mark.parametrize("jobs", [1, 3])
def test_rows_go_on_after_one_that_fails_hangs_or_crashes(tmp_path: Path, jobs: int) -> None:
    rows = [
        row("fails", 'import sys; print("the reason"); sys.exit("it is broken")'),
        row("hangs", "import subprocess; subprocess.run(['sleep', '1000'])", limit_s=1),
        row("crashes", "import os; os.abort()"),
        row("needs one that failed", FINE, after=("fails",)),
        row("passes", FINE),
        row("needs one that passed", FINE, after=("passes",)),
    ]
    assert Check(tmp_path, minutes=5, about={"GPUs": "two"}).run(rows, jobs=jobs) == 1
    report = json.loads((tmp_path / "report.json").read_text())
    assert [(each["name"], each["status"], each["said"]) for each in report["rows"]] == [
        ("fails", "failed", "ended with code 1: it is broken"),
        ("hangs", "failed", "ended after its limit of 1 s"),
        ("crashes", "failed", f"ended with code -{signal.SIGABRT.value}"),
        ("needs one that failed", "not tried", "it needs the row fails"),
        ("passes", "passed", "fine"),
        ("needs one that passed", "passed", "fine"),
    ]
    assert report["GPUs"] == "two"
    assert report["rows"][4]["numbers"] == {"rate": 3.5}
    page = (tmp_path / "report.md").read_text()
    assert "| fails | failed | ended with code 1: it is broken |" in page
    assert "the reason\nit is broken" in page


def test_rows_for_which_no_time_is_left_are_not_tried_and_are_no_failure(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(gpu_check, "LEAST_S", 0.1)
    assert Check(tmp_path, minutes=0.02, about={}).run([row("long", LONG), row("late", FINE)]) == 0
    rows = json.loads((tmp_path / "report.json").read_text())["rows"]
    assert [(each["status"], each["said"]) for each in rows] == [
        ("not tried", "no time left to end it"),
        ("not tried", "no time left"),
    ]


def test_what_a_row_started_ends_with_it(tmp_path: Path) -> None:
    code = f"""
import subprocess, time
child = subprocess.Popen(["sleep", "1000"])
open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
time.sleep(1000)
"""
    Check(tmp_path, minutes=5, about={}).run([row("hangs", code, limit_s=1)])
    wait_until(lambda: not is_alive(int((tmp_path / "pid").read_text())))


def test_every_row_comes_after_those_that_it_needs() -> None:
    for gpus, quick in ((0, False), (0, True), (1, True), (2, False)):
        seen: set[str] = set()
        for name, task in gpu_rows.table(Setting(Path("unused"), gpus, quick)).items():
            assert seen.issuperset(task.after), name
            seen.add(name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said"),
    [("too many GPUs", "train.devices is gpu:1"), ("resume mnist deterministic", "equal byte for byte")],
)
def test_a_row_runs_without_a_gpu(name: str, said: str, tmp_path: Path) -> None:
    setting = Setting(tmp_path, 0, quick=True)
    gpu_rows.write(setting)
    code = Check(tmp_path, minutes=20, about={}).run(list(gpu_check.chosen(setting, name)))
    page = (tmp_path / "report.md").read_text()
    assert code == 0, page
    assert said in page


def test_a_row_that_needs_more_gpus_says_so(tmp_path: Path) -> None:
    for gpus, reason in ((0, "no GPU"), (1, "it needs 2 GPUs, the machine has 1")):
        *_, last = gpu_check.chosen(Setting(tmp_path, gpus, quick=True), "^two GPUs$")
        assert (last.name, last.not_tried) == ("two GPUs", reason)
