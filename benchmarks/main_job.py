"""How long the main job takes from nothing and with nothing to do, beside a plain Keras program.

Each round makes a fresh copy of the project and runs `dvc repro` and the flow, alternately first; then the
Keras program, and short commands with the model that the flow made.
"""

import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import results
from benchmarks.timing import ENVIRONMENT, PERENNIAL, ROOT, RUNS

RUNNERS = {
    "dvc repro": (sys.executable, "-m", "dvc", "repro"),
    "flow": (sys.executable, "-m", "flows.retrain"),
}
RUNNING = re.compile(r"Running stage '(\w+)'")
KERAS = "Keras program"
COMMANDS = {
    "perennial --help": (*PERENNIAL, "--help"),
    "perennial status": (*PERENNIAL, "status"),
    "perennial versions": (*PERENNIAL, "versions"),
    "perennial runs": (*PERENNIAL, "runs"),
    "perennial predict": (*PERENNIAL, "predict", "digit.png"),
    "SavedModel in a script": (
        sys.executable, str(ROOT / "benchmarks" / "peers" / "saved_model.py"), "models/export", "digit.png",
    ),
}  # fmt: skip


def measure() -> None:
    """Measures, prints a table and writes the results."""
    measured: dict[str, list[dict[str, float]]] = {}
    for number in range(RUNS):
        for runner in list(RUNNERS)[:: 1 if number % 2 else -1]:
            with tempfile.TemporaryDirectory() as folder:
                copy(Path(folder))
                for case in ("first", "second"):
                    measured.setdefault(f"{runner}, {case}", []).append(timed(RUNNERS[runner], Path(folder)))
                if runner == "flow":
                    timed((*PERENNIAL, "show", "0", "--split", "test", "--save", "digit.png"), Path(folder))
                    for name, command in COMMANDS.items():
                        measured.setdefault(name, []).append(timed(command, Path(folder)))
        with tempfile.TemporaryDirectory() as folder:
            program = (sys.executable, str(ROOT / "benchmarks" / "peers" / "keras_job.py"), folder)
            measured.setdefault(KERAS, []).append(timed(program, Path(folder)))
    medians = {case: median(runs) for case, runs in sorted(measured.items())}
    parts = list(dict.fromkeys(part for case in medians.values() for part in case))
    print(f"\n{'seconds, median of ' + str(RUNS):<24}" + "".join(f"{part:>11}" for part in parts))
    for case, seconds in medians.items():
        print(f"{case:<24}" + "".join(f"{seconds.get(part, 0):>11.1f}" for part in parts))
    results.write("main_job", seconds=measured, medians=medians)


def copy(folder: Path) -> None:
    """Commits the project's files, and nothing that a run made, in a folder."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True)
    for name in filter(None, listed.stdout.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    person = ("-c", "user.name=benchmark", "-c", "user.email=benchmark@example.org")
    for command in (("init", "-q"), ("add", "-A"), (*person, "commit", "-qm", "Start")):
        subprocess.run(["git", *command], cwd=folder, check=True)


def timed(command: tuple[str, ...], folder: Path) -> dict[str, float]:
    """Seconds of a command: in all, of CPU, until its first stage, and of each stage with DVC's work."""
    environment = {**ENVIRONMENT, "PYTHONPATH": str(folder / "src"), "PYTHONUNBUFFERED": "1"}
    os.sync()
    before, started = _cpu(), time.monotonic()
    marks = [("start", started)]
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        lines = (RUNNING.search(line) for line in process.stdout or ())
        marks.extend((found[1], time.monotonic()) for found in lines if found)
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    marks = [*marks, ("", time.monotonic())] if len(marks) > 1 else []
    ends = [mark for _, mark in marks[1:]]
    parts = {name: end - begin for (name, begin), end in zip(marks[:-1], ends, strict=True)}
    return {"total": time.monotonic() - started, "cpu": _cpu() - before, **parts}


def _cpu() -> float:
    """CPU seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def median(runs: list[dict[str, float]]) -> dict[str, float]:
    """The median of each part over several runs."""
    return {part: statistics.median(run[part] for run in runs) for part in runs[0]}
