"""The most memory that convert and validate hold, all processes together, on MNIST's size and ten times it.

Every 50 ms the proportional set sizes (a page that n processes share counts 1/n in each) of the stage's
process and all below it are added up.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import data, projects, results
from benchmarks.timing import ENVIRONMENT, PERENNIAL, RUNS

SAMPLE_S = 0.05
SIZES = {"70,000": (60_000, 10_000), "700,000": (600_000, 100_000)}
STAGES = ("convert", "validate")
TARGET_MB = 50  # the two sizes may differ by so much


def measure() -> None:
    """Measures both stages on both sizes, in turns, and writes the results."""
    peaks: dict[str, dict[str, list[float]]] = {stage: {size: [] for size in SIZES} for stage in STAGES}
    with projects.scratch() as folder:
        for size, (train, test) in SIZES.items():
            projects.downloaded(folder / size, "mnist", data.mnist(train, test))
        for number in range(RUNS):
            for size in list(SIZES)[:: -1 if number % 2 else 1]:
                for stage in STAGES:
                    peaks[stage][size].append(peak((*PERENNIAL, stage), folder / size))
                records = projects.records(folder / size)
                assert projects.count_validated(folder / size) == projects.count_records(records)
    medians = {
        stage: {size: statistics.median(runs) for size, runs in sizes.items()} for stage, sizes in peaks.items()
    }
    small, large = SIZES
    grown = {stage: sizes[large] - sizes[small] for stage, sizes in medians.items()}
    print(
        f"\n{'peak memory, MB':<18}{small + ' images':>18}{large + ' images':>18}{'grown by':>10}{'target':>8}"
    )
    for stage, sizes in medians.items():
        columns = f"{sizes[small]:>18.0f}{sizes[large]:>18.0f}{grown[stage]:>10.0f}{TARGET_MB:>8}"
        print(f"  {stage:<16}{columns}")
    results.write("memory", peak_mb=peaks, medians=medians, grown_mb=grown, target_grown_mb=TARGET_MB)


def peak(command: tuple[str, ...], folder: Path) -> float:
    """The largest sum of proportional set sizes, MB, that a process and those below it were seen with."""
    most = 0
    with subprocess.Popen(
        command, cwd=folder, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        while process.poll() is None:
            most = max(most, sum(proportional_kb(each) for each in below(process.pid)))
            time.sleep(SAMPLE_S)
        said = process.stderr.read() if process.stderr else ""
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}:\n{said[-2000:]}")
    return most * 1024 / 1e6


def below(root: int) -> Iterator[int]:
    """A process and its descendants."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name before the last bracket may hold spaces; the parent is the second field after it.
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
        children.setdefault(parent, []).append(int(status.parent.name))
    queue = [root]
    while queue:
        process = queue.pop()
        yield process
        queue += children.get(process, [])


def proportional_kb(process: int) -> int:
    """The proportional set size of a process; 0 where it has ended."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
