"""`make bench`: how long the main job takes from nothing and with nothing to do, under both runners.

Each round makes a fresh copy of the project and runs `dvc repro` and the flow, alternately first. RUNS sets the
number of rounds; results go to benchmarks/results/main_job.json.
"""

import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUNNERS = {
    "dvc repro": [sys.executable, "-m", "dvc", "repro"],
    "flow": [sys.executable, "-m", "flows.retrain"],
}
PACKAGES = ("tensorflow", "keras", "prefect", "dvc")
RUNNING = re.compile(r"Running stage '(\w+)'")


def main() -> None:
    """Measures, prints a table and writes the results."""
    rounds = int(os.environ.get("RUNS", "3"))
    measured: dict[str, list[dict[str, float]]] = {}
    for number in range(rounds):
        for runner in list(RUNNERS)[:: 1 if number % 2 else -1]:
            with tempfile.TemporaryDirectory() as folder:
                copy(Path(folder))
                for case in ("first", "second"):
                    measured.setdefault(f"{runner}, {case}", []).append(timed(RUNNERS[runner], Path(folder)))
    medians = {case: median(runs) for case, runs in sorted(measured.items())}
    parts = list(dict.fromkeys(part for case in medians.values() for part in case))
    print(f"{'seconds, median of ' + str(rounds):<22}" + "".join(f"{part:>11}" for part in parts))
    for case, seconds in medians.items():
        print(f"{case:<22}" + "".join(f"{seconds.get(part, 0):>11.1f}" for part in parts))
    result = {
        "machine": {"processor": processor(), "cores": os.cpu_count(), "python": platform.python_version()},
        "versions": {package: version(package) for package in PACKAGES},
        "runs": measured,
        "medians": medians,
    }
    file = ROOT / "benchmarks" / "results" / "main_job.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(result, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def copy(folder: Path) -> None:
    """Puts the project's files, and nothing that a run made, into a folder."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True)
    for name in filter(None, listed.stdout.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)


def timed(command: list[str], folder: Path) -> dict[str, float]:
    """Seconds of a command: in all, until its first stage, and of each stage with what DVC does around it."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(folder / "src"), "PYTHONUNBUFFERED": "1"}
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


def processor() -> str:
    """The processor's name, where Linux tells it."""
    info = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", info.read_text()) if info.exists() else []
    return names[0] if names else platform.processor()


if __name__ == "__main__":
    main()
