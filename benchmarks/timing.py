"""Whole processes, timed in turns: the programs of a case alternate, so that a slow minute falls on all."""

import ctypes
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RUNS = int(os.environ.get("RUNS", "5"))
SLOW_S, SLOW_RUNS = 10, 2  # peers whose runs take longer, and their rounds: they are far from ours
SCALE = float(os.environ.get("SCALE", "1"))
BECOME_SUBREAPER = 36  # prctl(2)
PERENNIAL = (sys.executable, "-m", "perennial")
ENVIRONMENT = {
    # As people run it: a process that starts once more finds its bytecode.
    **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
    "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
    "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH")))),
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


@dataclass(frozen=True, kw_only=True)
class Program:
    """A process to time. `verify` gets what it printed; it raises AssertionError if the work was not done."""

    name: str
    command: Sequence[str]
    folder: Path  # where it is started
    outputs: Sequence[Path] = ()  # removed before each run
    verify: Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Case:
    """Programs that do the same work, ours first."""

    name: str
    programs: Sequence[Program]
    targets: Mapping[str, float]  # peer: its seconds over ours, at least
    one_core: bool = False
    megabytes: float | None = None  # that every program reads
    start: Program | None = None  # ours with next to nothing to read


def compare(case: Case) -> dict[str, Any]:
    """The seconds of every run, their medians, and the ratio to ours in each round; prints them as a table."""
    measured = alternate([*case.programs, *([case.start] if case.start else [])], one_core=case.one_core)
    wall = {name: [seconds for seconds, _ in runs] for name, runs in measured.items()}
    medians = {name: statistics.median(runs) for name, runs in wall.items()}
    ours, *peers = (program.name for program in case.programs)
    ratios = {
        name: [theirs / own for theirs, own in zip(wall[name], wall[ours], strict=False)] for name in peers
    }
    result: dict[str, Any] = {
        "seconds": wall,
        "processor_seconds": {name: [used for _, used in runs] for name, runs in measured.items()},
        "medians": medians,
        "ratios": ratios,
        "median_ratios": {name: statistics.median(each) for name, each in ratios.items()},
        "targets": dict(case.targets),
        "megabytes_written": {each.name: _written(each) for each in case.programs if each.outputs},
    }
    if case.megabytes:
        rates = {name: case.megabytes / medians[name] for name in (ours, *peers)}
        result |= {"megabytes": case.megabytes, "megabytes_per_second": rates}
        if case.start:
            past = case.megabytes / (medians[ours] - medians[case.start.name])
            result["megabytes_per_second_past_start"] = past
    _print(case.name, result)
    return result


def alternate(programs: Sequence[Program], *, one_core: bool = False) -> dict[str, list[tuple[float, float]]]:
    """Wall and processor seconds of each program in each round; every other round goes backwards.

    Slow ones, except for the first program, have no more than SLOW_RUNS rounds.
    """
    measured: dict[str, list[tuple[float, float]]] = {program.name: [] for program in programs}
    for number in range(RUNS):
        for program in list(programs)[:: -1 if number % 2 else 1]:
            slow = program is not programs[0] and any(seconds > SLOW_S for seconds, _ in measured[program.name])
            if slow and number >= SLOW_RUNS:
                continue
            measured[program.name].append(timed(program, one_core=one_core))
    return measured


def timed(program: Program, *, one_core: bool = False) -> tuple[float, float]:
    """Wall and processor seconds of one run, start-up included; its work is verified after the clock stops."""
    for output in program.outputs:
        shutil.rmtree(output) if output.is_dir() else output.unlink(missing_ok=True)
    os.sync()  # what the program before left to be written is not this one's load
    ctypes.CDLL(None).prctl(BECOME_SUBREAPER, 1, 0, 0, 0)
    before, started = processor_seconds(), time.monotonic()
    printed = run(program.command, program.folder, one_core=one_core)
    seconds = time.monotonic() - started
    _wait_for_orphans()
    used = processor_seconds() - before
    try:
        program.verify(printed)
    except AssertionError as error:
        sys.exit(f"{program.name} did not do the work: {error}")
    return seconds, used


def unadopted(command: Sequence[str]) -> int:
    """Start a program that stays while others are timed, which waits for all children; returns its process."""
    ctypes.CDLL(None).prctl(BECOME_SUBREAPER, 0, 0, 0, 0)
    start = "import subprocess, sys; print(subprocess.Popen(sys.argv[1:], stdout=2).pid)"
    started = subprocess.run(
        [sys.executable, "-c", start, *command],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return int(started.stdout)


def _wait_for_orphans() -> None:
    """Wait for processes that outlive the program, as Python's workers do by a moment, so that they count."""
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def run(command: Sequence[str], folder: Path, *, one_core: bool = False) -> str:
    """What a program prints; ends the benchmark where it fails."""
    cores = os.sched_getaffinity(0)
    if one_core:
        os.sched_setaffinity(0, {min(cores)})  # its children inherit it
    try:
        done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    finally:
        os.sched_setaffinity(0, cores)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def _written(program: Program) -> float:
    """Megabytes in all files that its last run left."""
    files = (file for output in program.outputs for file in (output, *output.rglob("*")) if file.is_file())
    return sum(file.stat().st_size for file in files) / 1e6


def processor_seconds() -> float:
    """Of all children that ended, and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _print(title: str, result: Mapping[str, Any]) -> None:
    further = (
        ("MB/s", "megabytes_per_second", ".0f"),
        ("ratio", "median_ratios", ".2f"),
        ("target", "targets", "g"),
        ("MB out", "megabytes_written", ".1f"),
    )
    columns = ("median s", "min", "max", *(column for column, _, _ in further))
    print(f"\n{title}\n{'':<28}" + "".join(f"{column:>9}" for column in columns))
    for name, runs in result["seconds"].items():
        values = [f"{seconds:.2f}" for seconds in (result["medians"][name], min(runs), max(runs))]
        for _, key, form in further:
            values.append(f"{result[key][name]:{form}}" if name in result.get(key, ()) else "")
        print(f"  {name:<26}" + "".join(f"{value:>9}" for value in values), flush=True)
