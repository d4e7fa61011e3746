"""`make gpu-check`: whether perennial works on this machine's GPUs, and how fast; a report of every row tried.

Each row is a process of its own with a time limit: a crash of CUDA takes only its row, and the others go on.
The report, .work/gpu-check/report.md and report.json, is updated after each row. Without a GPU the same
rows run on the CPU in small sizes, and those that need a GPU say so. Environment:

DATA         folder with MNIST's four files, cifar-10-binary.tar.gz and flower_photos.tgz, or some of them; what
             is missing is downloaded, or generated where it cannot be or with --quick
PEAK_TFLOPS  what the GPU's data sheet promises for bfloat16, where benchmarks/gpu_speed.py does not know it

Exit code 0: every row passed or could not be tried; 1: a row failed.
"""

import argparse
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Lock
from typing import Any, Literal

from benchmarks import gpu_rows, results
from benchmarks.gpu_projects import Setting
from benchmarks.timing import ENVIRONMENT, ROOT
from perennial.base.devices import gpus, lease

FOLDER = ROOT / ".work" / "gpu-check"
PACKAGES = ("tensorflow", "keras", "numpy", "nvidia-cudnn-cu12", "nvidia-cuda-runtime-cu12", "nvidia-nccl-cu12")
DETAILS = "name,driver_version,memory.total,compute_cap"  # of nvidia-smi
MOST_JOBS, CORES_A_JOB = 4, 4  # rows at once, where their times do not matter
LEAST_S = 10.0  # in which a row can do anything
OUTPUT_LINES = 40  # of a failed row in the report
Status = Literal["passed", "failed", "not tried"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A process to run; the last line that it prints is a JSON object: `said`, and numbers."""

    name: str
    command: Sequence[str]
    limit_s: float
    environment: Mapping[str, str] = field(default_factory=dict)
    after: Sequence[str] = ()  # rows that must have passed
    alone: bool = False  # no other row beside it
    not_tried: str | None = None  # why it is left out


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of a row."""

    name: str
    status: Status
    said: str
    seconds: float = 0.0
    numbers: Mapping[str, Any] = field(default_factory=dict)
    output: str = ""  # of a failed row, its last lines


class Check:
    """Runs rows, several at once, and keeps the report up to date."""

    def __init__(self, folder: Path, *, minutes: float, about: Mapping[str, Any]) -> None:
        self._folder, self._about = folder, about
        self._end = time.monotonic() + 60 * minutes
        self._order: list[str] = []
        self._found: dict[str, Result] = {}
        self._writing = Lock()
        (folder / "rows").mkdir(parents=True, exist_ok=True)

    def run(self, rows: Sequence[Row], *, jobs: int = 1) -> int:
        """Runs the rows, and then those that must be alone; returns the exit code."""
        self._order = [row.name for row in rows]
        running: dict[str, Future[None]] = {}
        for alone, width in ((False, jobs), (True, 1)):
            with ThreadPoolExecutor(width) as pool:
                for row in rows:
                    if row.alone == alone:
                        before = [running[name] for name in row.after if name in running]
                        running[row.name] = pool.submit(self._one, row, before)
        for each in running.values():
            each.result()
        failed = sum(result.status == "failed" for result in self._found.values())
        print(f"\n{failed} of {len(rows)} rows failed; {self._folder / 'report.md'} has the report")
        return 1 if failed else 0

    def _one(self, row: Row, before: Sequence[Future[None]]) -> None:
        wait(before)
        result = _result(row, self._folder, self._found, self._end - time.monotonic())
        with self._writing:
            self._found[row.name] = result
            print(f"{result.status:<10}{result.seconds:>6.0f} s  {row.name}: {result.said}", flush=True)
            _write(
                self._folder, self._about, [self._found[name] for name in self._order if name in self._found]
            )


def _result(row: Row, folder: Path, found: Mapping[str, Result], left_s: float) -> Result:
    missing = [name for name in row.after if name not in found or found[name].status != "passed"]
    reason = row.not_tried or (f"it needs the row {missing[0]}" if missing else None)
    if reason is None and left_s < LEAST_S:
        reason = "no time left"
    if reason:
        return Result(name=row.name, status="not tried", said=reason)
    result = _tried(row, folder, min(row.limit_s, left_s))
    if result.status == "failed" and row.limit_s > left_s and result.seconds >= left_s:
        return replace(result, status="not tried", said="no time left to end it", output="")
    return result


def _tried(row: Row, folder: Path, limit_s: float) -> Result:
    file = folder / "rows" / f"{row.name.replace(' ', '-')}.log"
    started = time.monotonic()
    with file.open("w+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(
            row.command, cwd=ROOT, env={**ENVIRONMENT, **row.environment},
            stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            code: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
    seconds = time.monotonic() - started
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    if code == 0 and lines and lines[-1].startswith("{"):
        numbers = json.loads(lines[-1])
        said = numbers.pop("said")
        return Result(name=row.name, status="passed", said=said, seconds=seconds, numbers=numbers)
    said = f"ended after its limit of {limit_s:.0f} s" if code is None else f"ended with code {code}"
    output = "\n".join(lines[-OUTPUT_LINES:])
    last = f": {lines[-1][:300]}" if lines and code is not None else ""
    return Result(name=row.name, status="failed", said=said + last, seconds=seconds, output=output)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a row and all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def _write(folder: Path, about: Mapping[str, Any], found: Sequence[Result]) -> None:
    document = {**about, "rows": [asdict(result) for result in found]}
    text = json.dumps(document, indent=2, default=str)
    for name, content in (("report.json", text + "\n"), ("report.md", "\n".join(_page(about, found)))):
        unfinished = folder / f"{name}.part"
        unfinished.write_text(content, encoding="utf-8")
        unfinished.replace(folder / name)


def _page(about: Mapping[str, Any], found: Sequence[Result]) -> Iterator[str]:
    yield "# GPU check\n"
    for name, value in about.items():
        shown = value if not isinstance(value, Mapping) else ", ".join(f"{k} {v}" for k, v in value.items())
        yield f"- {name}: {shown or 'none'}"
    counts = {
        status: sum(each.status == status for each in found) for status in ("passed", "failed", "not tried")
    }
    yield "\n" + ", ".join(f"{count} {status}" for status, count in counts.items())
    yield "\n| row | result | found | seconds |\n|---|---|---|---|"
    for each in found:
        said = each.said.replace("|", "\\|").replace("\n", " ")
        yield f"| {each.name} | {each.status} | {said} | {each.seconds:.0f} |"
    for each in found:
        if each.output:
            yield f"\n## {each.name}\n\n````text\n{each.output}\n````"
    yield ""


def _about(count: int, jobs: int) -> dict[str, Any]:
    """What the results depend on."""
    return {
        "at once": f"{jobs} rows, so their speeds are no measurements; `speed` and `Keras fit` run alone",
        "GPUs": _details() or ("none: the rows run on the CPU" if not count else f"{count}"),
        "machine": results.machine(),
        "revision": results.revision() or "unknown",
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
    }


def _details() -> str:
    if not (program := shutil.which("nvidia-smi")):
        return ""
    query = [program, f"--query-gpu={DETAILS}", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False, timeout=60)
    return "; ".join(done.stdout.split("\n")).strip("; ") if not done.returncode else ""


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def chosen(setting: Setting, only: str | None) -> Iterator[Row]:
    """The rows of this machine. A row that `only` does not name is left out, not those that it needs."""
    table = gpu_rows.table(setting)
    wanted = {name for name in table if re.search(only or "", name)}
    while missing := {name for each in wanted for name in table[each].after} - wanted:
        wanted |= missing
    for name, task in table.items():
        if name not in wanted:
            continue
        reason = None
        if task.gpus > setting.gpus:
            reason = (
                "no GPU" if not setting.gpus else f"it needs {task.gpus} GPUs, the machine has {setting.gpus}"
            )
        yield Row(
            name=name,
            command=(sys.executable, "-m", "benchmarks.gpu_rows", str(setting.folder), name),
            limit_s=task.limit_s,
            environment=gpu_rows.environment(setting, name),
            after=task.after,
            alone=task.alone,
            not_tried=reason,
        )


def main() -> int:
    """Checks this machine; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rows: about 3 minutes on an H100")
    parser.add_argument("--minutes", type=float, default=30.0, help="rows that do not fit are not tried")
    parser.add_argument(
        "--only", metavar="TEXT", help="rows whose name has this text, and those that they need"
    )
    arguments = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    setting = Setting(folder=FOLDER, gpus=len(gpus.visible()), quick=arguments.quick)
    gpu_rows.write(setting)
    rows = list(chosen(setting, arguments.only))
    # The rows share the GPUs, which nobody else gets from perennial meanwhile.
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with lease.leased(
        f"gpu:{setting.gpus}" if setting.gpus else "cpu:1", "all", key="gpu-check", name="gpu-check"
    ):
        jobs = max(1, min(MOST_JOBS, len(os.sched_getaffinity(0)) // CORES_A_JOB))
        check = Check(FOLDER, minutes=arguments.minutes, about=_about(setting.gpus, jobs))
        return check.run(rows, jobs=jobs)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        os._exit(130)  # without waiting for rows, which end with this process
