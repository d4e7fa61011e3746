"""How often the gate promotes candidates that differ on traffic and on the source's images, by `gate.traffic`.

Each night draws a test split: 2,000 images of the source, of ten classes, and random labels of traffic. Of
equally good models, 3 % of the images are won and 3 % are lost; a gain adds to one of these shares. The gate's
own code compares and decides, once by the test split alone and once with a gain on validation first: 2,000
other images of the source, none of traffic. NIGHTS (default 2000) sets the number of nights of each cell; equal
candidates get ten times as many.
"""

import os
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import results

NIGHTS = int(os.environ.get("NIGHTS", "2000"))
SOURCE, CLASSES = 2000, 10
CHURN = 0.03  # share of the images that only one of two equally good models gets right
SIZES = (100, 300, 1000)  # random labels of traffic in the test split
MODES: tuple[Literal["protects", "decides"] | None, ...] = (None, "protects", "decides")


class Candidate(NamedTuple):
    """By how much a candidate is better, 0..1."""

    traffic: float
    source: float


CANDIDATES = {
    "useful": (Candidate(0.1, -0.002), Candidate(0.05, 0.0), Candidate(0.05, 0.01), Candidate(0.02, 0.02),
               Candidate(0.0, 0.02)),
    "equal": (Candidate(0.0, 0.0),),
    "harmful": (Candidate(-0.05, 0.02), Candidate(-0.07, 0.02), Candidate(-0.1, 0.02), Candidate(-0.1, 0.04),
                Candidate(0.1, -0.1)),
}  # fmt: skip


def measure() -> None:
    """By candidate and number of labels: the share of nights on which each rule promotes."""
    rows = []
    for kind, candidates in CANDIDATES.items():
        for candidate in candidates:
            for labels in SIZES:
                shares = promoted(candidate, labels, NIGHTS * (10 if kind == "equal" else 1))
                rows.append({"kind": kind, **candidate._asdict(), "labels": labels, "promoted": shares})
                print(rows[-1], flush=True)
    results.write("traffic_gate", rows=rows, nights=NIGHTS)


def promoted(candidate: Candidate, labels: int, nights: int) -> dict[str, dict[str, float]]:
    """The share of nights with a promotion, by the test split `alone` and with validation `first`."""
    # The same nights for each rule; a seed of its own for each cell.
    seed = [round(1000 * (1 + gain)) for gain in candidate] + [labels]
    random = np.random.default_rng(seed)
    found = {way: dict.fromkeys(map(str, MODES), 0) for way in ("alone", "first")}
    decide, of_traffic = _gate(labels), np.arange(SOURCE + labels) >= SOURCE
    for _ in range(nights):
        gains = np.where(of_traffic, candidate.traffic, candidate.source)
        ours, theirs = drawn(gains, random)
        validated = [float(side.mean()) for side in drawn(np.full(SOURCE, candidate.source), random)]
        for way, scores in (("alone", None), ("first", validated)):
            for mode, passed in decide(ours, theirs, scores).items():
                found[way][mode] += passed
    return {way: {mode: count / nights for mode, count in counts.items()} for way, counts in found.items()}


def drawn(gains: NDArray[np.float64], random: np.random.Generator) -> tuple[NDArray[np.bool_], ...]:
    """Whether the candidate and the champion are right, [N] each, with these expected gains [N]."""
    won, lost = CHURN + np.maximum(gains, 0), CHURN + np.maximum(-gains, 0)
    draw = random.random(len(gains))
    return (draw >= lost, (draw < lost) | (draw >= lost + won))


def _gate(labels: int) -> Any:
    """The rules of the gate, by mode, on two models that are right or wrong on each test example."""
    from perennial.base.config.release import GateConfig  # noqa: PLC0415 - only this subject needs them
    from perennial.model.evaluation import comparison  # noqa: PLC0415
    from perennial.model.evaluation.predictions import Predictions, find_slices  # noqa: PLC0415
    from perennial.release.gate import champion_rules  # noqa: PLC0415

    truth, names = np.arange(SOURCE + labels) % CLASSES, tuple(map(str, range(CLASSES)))
    columns = find_slices(["traffic"], [("",)] * SOURCE + [("random",)] * labels)
    limits = {str(mode): GateConfig(min_accuracy=0.0, traffic=mode) for mode in MODES}
    one_hot = np.eye(CLASSES, dtype=np.float32)

    def scored(right: NDArray[np.bool_], model: str) -> Predictions:
        return Predictions(
            labels=truth, probabilities=one_hot[np.where(right, truth, (truth + 1) % CLASSES)], classes=names,
            split="test", data="d", split_digest="t", model=model, slices=columns,
        )  # fmt: skip

    def decided(ours: NDArray[np.bool_], theirs: NDArray[np.bool_], scores: list[float] | None) -> Any:
        mine, other = scores or (None, None)
        champion = comparison.Champion.of(scored(theirs, "old"), commit="c", version="v", validation=other)
        predictions = scored(ours, "new")
        metrics = SimpleNamespace(model="new", score_name="accuracy")
        candidate: Any = SimpleNamespace(metrics=metrics, validation=mine, predictions=predictions)
        compared = comparison.compare(predictions, champion)
        return {
            mode: all(
                each.check.passed
                for each in champion_rules.against_champion(candidate, champion, compared, limit)
            )
            for mode, limit in limits.items()
        }

    return decided
