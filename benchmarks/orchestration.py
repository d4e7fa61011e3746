"""What Prefect adds to the pipeline: one `dvc repro`, the flow on a running server, a run of the deployment.

Each round makes a fresh copy of the project for each of them, and runs it twice: the second time nothing has
changed. Seconds are those of the whole command; the deployed run is `perennial run on-demand --watch`.

What a deployment adds does not depend on the length of the training, which is the same program in both, but the
noise does: on a shared machine it exceeds the target after two minutes. That pair has a short training.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from benchmarks import results
from benchmarks.main_job import copy
from benchmarks.timing import ENVIRONMENT, PERENNIAL, RUNS

LONG, SHORT = 1500, 300  # epochs of the digits; with the other stages 120 and 45 s on two cores
PORT = 24200
TARGETS = {"flow / dvc repro": 1.15, "deployed - flow": 15, "flow with nothing to do": 5}
MEASURED = (("dvc repro", LONG), ("flow", LONG), ("flow", SHORT), ("deployed", SHORT))
COMMANDS = {
    "dvc repro": (sys.executable, "-m", "dvc", "repro"),
    "flow": (sys.executable, "-m", "flows.retrain"),
    "deployed": (*PERENNIAL, "run", "on-demand", "--watch"),
}


def measure() -> None:
    """Measures, prints a table and writes the results."""
    measured: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, _server(Path(folder)) as url:
        for number in range(RUNS):
            for name, epochs in MEASURED[:: -1 if number % 2 else 1]:
                base = Path(folder, f"{name} {epochs} {number}")
                for case, seconds in _timed(name, epochs, base, url).items():
                    measured.setdefault(f"{name}, {epochs} epochs, {case}", []).append(seconds)
    median = {case: statistics.median(seconds) for case, seconds in sorted(measured.items())}
    found = {
        "flow / dvc repro": median[f"flow, {LONG} epochs, first"] / median[f"dvc repro, {LONG} epochs, first"],
        "deployed - flow": median[f"deployed, {SHORT} epochs, first"] - median[f"flow, {SHORT} epochs, first"],
        "flow with nothing to do": median[f"flow, {LONG} epochs, second"],
    }
    print(f"\n{'seconds, median of ' + str(RUNS)}")
    for case, value in median.items():
        print(f"  {case:<32}{value:>9.1f}")
    for case, value in found.items():
        print(f"  {case:<32}{value:>9.2f}   target {TARGETS[case]:g}")
    results.write("orchestration", seconds=measured, medians=median, found=found, targets=TARGETS)


def _timed(name: str, epochs: int, base: Path, url: str) -> dict[str, float]:
    """Seconds of a command in a fresh copy of the project, and again with nothing to do."""
    project, seconds = base / "project", {}
    environment = {
        **ENVIRONMENT,
        "PYTHONPATH": os.pathsep.join((str(project / "src"), str(project))),
        "PREFECT_API_URL": url,
        "PERENNIAL_HOME": str(base / "home"),
        "PERENNIAL_REPOSITORY": str(project),
        "HOME": str(base),
    }
    copy(project)
    (project / "dvc.lock").unlink()
    _run(project, environment, *PERENNIAL, "config", "--set", f"train.epochs={epochs}")
    for command in ("add .", "-c user.name=bench -c user.email=bench@localhost commit -qm start"):
        _run(project, environment, "git", *command.split())
    with _worker(project, environment) if name == "deployed" else nullcontext():
        for case in ("first", "second"):
            os.sync()
            started = time.monotonic()
            _run(project, environment, *COMMANDS[name])
            seconds[case] = time.monotonic() - started
    return seconds


def _run(folder: Path, environment: Mapping[str, str], *command: str) -> None:
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-3000:]}")


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    """A Prefect server with a database of its own; its address."""
    url = f"http://127.0.0.1:{PORT}/api"
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(PORT)]
    with _beside(command, folder, {**ENVIRONMENT, "PREFECT_HOME": str(folder / "server")}):
        while not _answers(f"{url}/health"):
            time.sleep(0.5)
        yield url


@contextmanager
def _worker(project: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """The deployments of a project, and a worker for them."""
    _run(project, environment, sys.executable, "-m", "tasks.deploy")
    command = [sys.executable, "-m", "tasks.worker", "--pool", "cpu"]
    with _beside(command, project, environment):
        time.sleep(15)  # until it looks for runs
        yield


@contextmanager
def _beside(command: list[str], folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """A program that runs during the block."""
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5):
            return True
    except (URLError, OSError):
        return False
