"""How long the main job takes from nothing and with nothing to do, under both runners.

Each round makes a fresh copy of the project and runs `dvc repro` and the flow, alternately first.
"""

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import results
from benchmarks.timing import ENVIRONMENT, ROOT, RUNS

RUNNERS = {
    "dvc repro": (sys.executable, "-m", "dvc", "repro"),
    "flow": (sys.executable, "-m", "flows.retrain"),
}
RUNNING = re.compile(r"Running stage '(\w+)'")


def measure() -> None:
    """Measures, prints a table and writes the results."""
    measured: dict[str, list[dict[str, float]]] = {}
    for number in range(RUNS):
        for runner in list(RUNNERS)[:: 1 if number % 2 else -1]:
            with tempfile.TemporaryDirectory() as folder:
                copy(Path(folder))
                for case in ("first", "second"):
                    measured.setdefault(f"{runner}, {case}", []).append(timed(RUNNERS[runner], Path(folder)))
    medians = {case: median(runs) for case, runs in sorted(measured.items())}
    parts = list(dict.fromkeys(part for case in medians.values() for part in case))
    print(f"\n{'seconds, median of ' + str(RUNS):<22}" + "".join(f"{part:>11}" for part in parts))
    for case, seconds in medians.items():
        print(f"{case:<22}" + "".join(f"{seconds.get(part, 0):>11.1f}" for part in parts))
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
    """Seconds of a command: in all, until its first stage, and of each stage with what DVC does around it."""
    environment = {**ENVIRONMENT, "PYTHONPATH": str(folder / "src"), "PYTHONUNBUFFERED": "1"}
    os.sync()
    started = time.monotonic()
    marks = [("start", started)]
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        lines = (RUNNING.search(line) for line in process.stdout or ())
        marks.extend((found[1], time.monotonic()) for found in lines if found)
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    marks.append(("", time.monotonic()))
    ends = [mark for _, mark in marks[1:]]
    parts = {name: end - begin for (name, begin), end in zip(marks[:-1], ends, strict=True)}
    return {"total": marks[-1][1] - started, **parts}


def median(runs: list[dict[str, float]]) -> dict[str, float]:
    """The median of each part over several runs."""
    return {part: statistics.median(run[part] for run in runs) for part in runs[0]}
