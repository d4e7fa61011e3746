"""Processor time of an image of the training input on photographs, beside other programs in the same rounds.

Ours, benchmarks/rates.py, does everything that a training does. benchmarks/peers/*_photographs.py only decode
and distort; those of tf.data share a process. Ours delivers bytes, distorted but for their colors, which the
training step adds (`in the step`).
"""

import json
import os
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import data, peers, projects
from benchmarks.timing import RUNS, SLOW_RUNS, run

SECONDS = 0.7  # of each measurement, after the first batches
MAX_SIDE = 598  # to which `perennial start` reduces photographs for 299 pixels


class Case(NamedTuple):
    """A preprocessing of photographs, and ours over a peer at most."""

    preprocessing: str
    size: int
    fast: bool = True
    limit: float | None = None
    of: tuple[str, str] | None = None  # peer and its case


CASES = {
    "inception": Case("inception", 299, limit=0.8, of=("crop", "inception")),
    "slow": Case("inception", 299, fast=False, limit=2.5, of=("crop", "inception")),
    "vgg": Case("vgg", 224, limit=3.2, of=("decode", "plain")),
    "standard": Case("standard", 224),
    "plain": Case("plain", 224),
    "evaluation": Case("inception", 299, limit=1.1, of=("full", "evaluation")),
}
# The cases of each peer: decoding is the same in all, and only two crop before they decode.
PEERS = {
    "decode": ("plain",),
    "full": tuple(CASES),
    "crop": ("inception", "slow"),
    "keras": tuple(CASES),
    "pillow": tuple(CASES),
}
TF_DATA = ("decode", "full", "crop", "keras")
OF_LARGE = {"full": ("evaluation",), "crop": ("inception",)}
LIMIT_OF_REDUCED = 1.5  # times small photographs


def measure(folder: Path) -> dict[str, Any]:
    """Measures every case on photographs of about 500 x 375 pixels, of 12 megapixels, and of these reduced."""
    large, reduced = data.large_photographs(), {"dataset.max_side": MAX_SIDE}
    some = ("inception", "evaluation")
    few = min(RUNS, SLOW_RUNS)
    measured = {
        "small": _rounds(projects.converted(folder / "small", "flowers", data.flowers()), tuple(CASES), PEERS),
        "12 megapixels": _rounds(projects.converted(folder / "large", "flowers", large), some, OF_LARGE, few),
        "12 megapixels, reduced": _rounds(
            projects.converted(folder / "reduced", "flowers", large, reduced), some, {}
        ),
    }
    for name, found in measured.items():
        _print(name, found)
    over = {
        case: measured["12 megapixels, reduced"]["medians"]["perennial"][case]
        / measured["small"]["medians"]["perennial"][case]
        for case in some
    }
    shown = ", ".join(f"{case} {ratio:.2f}" for case, ratio in over.items())
    print(f"\nreduced over small photographs, at most {LIMIT_OF_REDUCED}: {shown}", flush=True)
    return {**measured, "reduced_over_small": over}


def _rounds(
    project: Path, cases: tuple[str, ...], programs: Mapping[str, tuple[str, ...]], runs: int = RUNS
) -> dict[str, Any]:
    """Milliseconds of processor time an image in each round, their medians, and ratios to ours."""
    rounds: dict[str, list[dict[str, Any]]] = {}
    asked = {"perennial": cases, **programs}
    commands = _commands(project, asked)
    for number in range(runs):
        for program in list(commands)[:: -1 if number % 2 else 1]:
            os.sync()
            printed = json.loads(run(commands[program], project).splitlines()[-1])
            found: dict[str, dict[str, Any]] = {}
            for name, measured in printed.items():
                under, _, case = name.rpartition("/")
                found.setdefault(under or program, {})[case] = measured
            for each, measured in found.items():
                rounds.setdefault(each, []).append(measured)
    milliseconds = {
        program: {case: [1000 * each[case]["processor_seconds"] for each in found] for case in asked[program]}
        for program, found in rounds.items()
    }
    return {
        "milliseconds": milliseconds,
        "medians": {
            program: {case: statistics.median(values) for case, values in found.items()}
            for program, found in milliseconds.items()
        },
        "images_per_second": {
            program: {case: statistics.median(each[case]["rate"] for each in found) for case in asked[program]}
            for program, found in rounds.items()
        },
        "in_the_step": {
            case: 1000 * statistics.median(each[case]["step_seconds"] for each in rounds["perennial"])
            for case in cases
        },
        "over_peer": {
            case: statistics.median(
                ours / theirs
                for ours, theirs in zip(
                    milliseconds["perennial"][case], milliseconds[of[0]][of[1]], strict=True
                )
            )
            for case in cases
            if (of := CASES[case].of) is not None and of[1] in asked.get(of[0], ())
        },
    }


def _commands(project: Path, asked: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The processes of a round."""
    records = projects.records(project)
    commands = {"perennial": (sys.executable, "-m", "benchmarks.rates", "photographs", *asked["perennial"])}
    in_tf = [f"{program}/{case}" for program in TF_DATA for case in asked.get(program, ())]
    if in_tf:
        commands["tf.data"] = tuple(peers.command("tfdata_photographs", records, SECONDS, *in_tf))
    if "pillow" in asked:
        commands["pillow"] = tuple(peers.command("pillow_photographs", records, SECONDS, *asked["pillow"]))
    return commands


def _print(name: str, found: dict[str, Any]) -> None:
    medians = found["medians"]
    print(f"\nphotographs, {name}: ms of processor time an image\n{'':<12}", end="")
    print(
        "".join(f"{program:>11}" for program in medians)
        + f"{'in step':>9}{'images/s':>10}{'ratio':>7}{'limit':>7}"
    )
    for case, own in medians["perennial"].items():
        columns = "".join(
            f"{values[case]:>11.2f}" if case in values else f"{'':>11}" for values in medians.values()
        )
        columns += f"{found['in_the_step'][case]:>9.2f}{found['images_per_second']['perennial'][case]:>10,.0f}"
        ratio, chosen = found["over_peer"].get(case), CASES[case]
        if ratio is not None and chosen.of is not None:
            with_step = ratio * (own + found["in_the_step"][case]) / own
            columns += (
                f"{ratio:>7.2f}{chosen.limit:>7}  of {' '.join(chosen.of)}; {with_step:.2f} with the step"
            )
        print(f"  {case:<10}{columns}", flush=True)
