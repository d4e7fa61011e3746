"""How fast `perennial predict` answers files, beside Keras' `predict` of the same model on decoded images.

Ours reads, checks, decodes and resizes every photograph in its time; Keras has that behind it and is given
float32 arrays in memory. Both are measured warm, in processes of their own and in turns. What that leaves out
stands beside it: seconds to the first answer once TensorFlow is imported, and the whole command with its start.
"""

import json
import os
import statistics
import sys
import tarfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import data, projects, results
from benchmarks.timing import PERENNIAL, RUNS, run

TARGET = 0.9  # our images a second over those of Keras
FIRST_ANSWER_S = 2  # once TensorFlow is imported
PHOTOGRAPHS = 240


class Case(NamedTuple):
    """A network, and the side of the images that it gets."""

    model: str
    side: int


CASES = (Case("mobilenet_v2", 128), Case("mobilenet_v2", 224))


def measure() -> None:
    """Measures every case and writes the results."""
    measured = {}
    with projects.scratch() as folder:
        photographs = _photographs(folder / "photographs")
        for case in CASES:
            name = f"{case.model} {case.side}"
            export = folder / name.replace(" ", "_")
            run((*_program("export"), case.model, str(case.side), str(export)), folder)
            measured[name] = _compare(name, export, photographs)
    results.write(
        "predict",
        cases=measured,
        photographs=data.scaled(PHOTOGRAPHS),
        targets={"ratio": TARGET, "first_answer_s": FIRST_ANSWER_S},
        data=data.origins(),
    )


def _photographs(folder: Path) -> Path:
    """A folder with photographs of every class."""
    folder.mkdir()
    with tarfile.open(data.flowers() / "flower_photos.tgz") as archive:
        members = sorted((each for each in archive if each.name.endswith(".jpg")), key=lambda each: each.name)
        for member in members[:: len(members) // data.scaled(PHOTOGRAPHS)][: data.scaled(PHOTOGRAPHS)]:
            content = archive.extractfile(member)
            (folder / member.name.replace("/", "_")).write_bytes(content.read() if content else b"")
    return folder


def _compare(name: str, export: Path, photographs: Path) -> dict[str, Any]:
    """Every process of each round, and what follows from them."""
    measured: dict[str, list[dict[str, float]]] = {"perennial": [], "Keras predict": []}
    kinds = {"perennial": "ours", "Keras predict": "keras"}
    command_s = []
    for number in range(RUNS):
        for what, kind in list(kinds.items())[:: -1 if number % 2 else 1]:
            os.sync()
            printed = run((*_program(kind), str(export), str(photographs)), export.parent)
            measured[what].append(json.loads(printed.splitlines()[-1]))
        started = time.monotonic()
        printed = run((*PERENNIAL, "predict", str(photographs), "--model", str(export), "--csv"), export.parent)
        command_s.append(time.monotonic() - started)
        require_answers(len(printed.splitlines()) - 1, sum(1 for _ in photographs.iterdir()))
    ours, keras = measured.values()
    ratios, processor = (
        [own[key] / theirs[key] for own, theirs in zip(ours, keras, strict=True)]
        for key in ("images_per_second", "processor_s_per_image")
    )
    found = {
        "measured": measured,
        "command_s": command_s,
        "ratios": ratios,
        "median_ratio": statistics.median(ratios),
        "median_processor_ratio": statistics.median(processor),
    }
    show(name, found)
    return found


def require_answers(answers: int, images: int) -> None:
    """Refuses to time a command that did not answer every photograph."""
    if answers != images:
        raise RuntimeError(f"perennial predict gave {answers} answers to {images} photographs; nothing is kept")


def _program(kind: str) -> tuple[str, ...]:
    return sys.executable, "-m", "benchmarks.predicting", kind


def show(name: str, found: dict[str, Any]) -> None:
    """Prints what was measured of a case, beside the targets."""
    columns = ("images/s", "CPU ms/image", "import s", "load s", "first s", "target s", "ratio", "target")
    print(f"\npredict, {name}\n{'':<16}" + "".join(f"{column:>14}" for column in columns))
    for what, runs in found["measured"].items():
        rate, used, *start = (
            statistics.median(each[key] for each in runs)
            for key in ("images_per_second", "processor_s_per_image", "import_s", "load_s", "first_answer_s")
        )
        line = f"  {what:<14}{rate:>14.1f}{used * 1000:>14.1f}" + "".join(f"{each:>14.1f}" for each in start)
        judged = f"{FIRST_ANSWER_S:>14.1f}{found['median_ratio']:>14.2f}{TARGET:>14}"
        print(line + (judged if what == "perennial" else ""))
    command = statistics.median(found["command_s"])
    print(f"  the whole command, start and import included: {command:.1f} s", flush=True)
