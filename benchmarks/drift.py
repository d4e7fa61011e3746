"""Drift without labels: how often the monitor is wrong about traffic without drift, and what it finds.

CIFAR10_IMAGES names the images: {train,test}/<class>/*.jpg. fast_cnn learns eight of the ten classes from
18,000 images; 2,000 validation images are the export's reference. Windows are drawn from 27,200 images of these
classes that the project does not have (benchmarks/drift_pools.py), as they are, changed, or mixed with the
classes that the model does not know. False alarms are counted with the export's reference, and with
new random references: the error of a single one is the same for all windows.

Beside it are the asymptotic threshold of before (benchmarks/drift_before.py), a domain classifier (logistic
regression on the penultimate values of half of the window and as many other images; a binomial test on the
other half) and Alibi-Detect's MMDDrift (200 permutations) on the same windows. WINDOWS (default 1000) is the
number of windows without drift of each size. ALIBI (default 10) is that of each drift for Alibi-Detect, which
takes 2 s a window.
"""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import drift_pools, peers, projects, results
from benchmarks.drift_before import Before
from benchmarks.drift_pools import CHANGES
from benchmarks.timing import PERENNIAL, run
from perennial.base.project.stage_table import STAGES

WINDOWS, ALIBI = int(os.environ.get("WINDOWS", "1000")), int(os.environ.get("ALIBI", "10"))
SIZES = (50, 200, 500)
SIZE = 200  # of the windows that the others get, too
REFERENCES, OF_REFERENCE = 100, 2000  # that are drawn at random, and the images of each
FOUND, CLASSIFIED = 100, 100  # windows of a drift: ours, and the domain classifier's
PLENTY = 2  # class that comes more often
OWN: dict[str, Any] = {
    "dataset.name": "image_folder",
    "validate.severity.near_duplicate": "ignore",
    "validate.severity.duplicate_across_splits": "warn",
    "checkpoints.interval_s": 600,
    "train.max_steps": 600,
    "train.schedule.warmup_steps": 72,
}
Pools = dict[str, NDArray[Any]]
Features = NDArray[np.floating]  # [N, 256]
Draw = Callable[[np.random.Generator, int], list[tuple[str, NDArray[np.int64]]]]  # parts of a window


def measure() -> None:
    """Measures, prints a table and writes the results."""
    named = os.environ.get("CIFAR10_IMAGES")
    if not named:
        print("drift: skipped, since CIFAR10_IMAGES names no folder of CIFAR-10's images")
        return
    with projects.scratch() as folder:
        project, pools = _project(folder, Path(named)), folder / "pools.npz"
        print(run((*PERENNIAL[:1], "-m", "benchmarks.drift_pools", str(project), named, str(pools)), folder))
        accuracy = json.loads((project / "metrics" / "metrics.json").read_text(encoding="utf-8"))["accuracy"]
        with np.load(pools) as loaded:
            compare(project / "models" / "export", dict(loaded), accuracy)


def compare(export: Path, pools: Pools, accuracy: float) -> None:
    """Draws windows of the pools, and writes the results."""
    from perennial.model.export import reference  # noqa: PLC0415 - only this subject needs it

    own = reference.unpacked(reference.load(export).features)
    false = {str(size): _false_alarms(own, pools, size) for size in SIZES}
    for size, found in false.items():
        print(f"drift: windows of {size} without drift: {found}", flush=True)
    drifts = _drifts(pools)
    rows: dict[str, dict[str, Any]] = {}
    for name, draw in drifts.items():
        rows[name] = {
            "found": {str(size): _found(own, pools, draw, size) for size in SIZES},
            "before": {str(size): _found(own, pools, draw, size, before=True) for size in SIZES},
            "windows until the alarm": _delay(own, pools, draw, SIZE),
            "domain classifier": _classified(pools, draw, SIZE),
            "accuracy": _accuracy(pools, draw),
        }
        print(f"drift: {name}: {rows[name]}", flush=True)
    alibi, versions = _alibi(pools, drifts)
    for name, rate in alibi.items():
        rows[name]["Alibi-Detect"] = rate
    results.write(
        "drift", false_alarms=false, drifts=rows, windows=WINDOWS, references=REFERENCES, found_of=FOUND,
        classified_of=CLASSIFIED, alibi_of=ALIBI, size=SIZE, test_accuracy=accuracy, peer_versions=versions,
    )  # fmt: skip


def _project(folder: Path, images: Path) -> Path:
    """A project with an export, trained on some of the images."""
    for file, place in drift_pools.chosen(images):
        (folder / "images" / place).mkdir(parents=True, exist_ok=True)
        (folder / "images" / place / file.name).symlink_to(file.resolve())
    own = {**projects.preset("fast_cifar10"), **OWN, "dataset.path": str(folder / "images")}
    project = projects.converted(folder / "project", "image_folder", folder / "images", own)
    run((*PERENNIAL, "pin", "weights"), project)
    for stage in list(STAGES)[list(STAGES).index("convert") + 1 : list(STAGES).index("champion")]:
        run((*PERENNIAL, stage), project)
    return project


def _drifts(pools: Pools) -> dict[str, Draw]:
    """How windows of each drift are drawn, by name."""
    labels = pools["held out/labels"]
    plenty, others = np.flatnonzero(labels == PLENTY), np.flatnonzero(labels != PLENTY)

    def mixed(share: float, name: str, of: NDArray[np.int64], rest: NDArray[np.int64]) -> Draw:
        def draw(random: np.random.Generator, size: int) -> list[tuple[str, NDArray[np.int64]]]:
            many = int(random.binomial(size, share))
            return [
                (name, random.choice(of, many, replace=False)),
                ("held out", random.choice(rest, size - many, replace=False)),
            ]

        return draw

    new, held = np.arange(len(pools["new/labels"])), np.arange(len(labels))
    return {
        "none": mixed(0.0, "new", new, held),
        **{name: mixed(1.0, name, np.arange(len(pools[f"{name}/labels"])), held) for name in CHANGES},
        **{f"{share} % of new classes": mixed(share / 100, "new", new, held) for share in (5, 10, 20)},
        "a class twice as often": mixed(0.25, "held out", plenty, others),
        "a class four times as often": mixed(0.5, "held out", plenty, others),
    }


def _values(pools: Pools, kind: str, parts: list[tuple[str, NDArray[np.int64]]]) -> NDArray[Any]:
    return np.concatenate([pools[f"{name}/{kind}"][which] for name, which in parts])


def _false_alarms(own: Features, pools: Pools, size: int) -> dict[str, float]:
    """Shares of windows without drift beyond the threshold, and of windows at which an alarm lasts."""
    from perennial.live.monitor.windows import ENOUGH, LEVEL, OF_LAST  # noqa: PLC0415

    features, random = pools["held out/features"], np.random.default_rng(size)

    def beyond(known: Features, of: NDArray[np.int64], count: int) -> list[bool]:
        return [_drifted(features[random.choice(of, size, replace=False)], known) for _ in range(count)]

    def alarms(drifted: list[bool]) -> float:
        return float(np.mean(np.convolve(drifted, np.ones(OF_LAST), "valid") >= ENOUGH))

    of_own = beyond(own, np.arange(len(features)), WINDOWS)
    of_each = list[list[bool]]()
    for _ in range(REFERENCES):
        order = random.permutation(len(features))
        of_each.append(
            beyond(features[order[:OF_REFERENCE]], order[OF_REFERENCE:], max(WINDOWS // REFERENCES, OF_LAST))
        )
    return {
        "level": LEVEL,
        "windows": float(np.mean(of_own)),
        "alarms": alarms(of_own),
        "windows of drawn references": float(np.mean(of_each)),
        "alarms of drawn references": float(np.mean([alarms(each) for each in of_each])),
        "windows of the worst reference": float(np.mean(of_each, axis=1).max()),
    }


def _drifted(window: Features, known: Features) -> bool:
    """Whether a window is beyond the threshold."""
    from perennial.live.monitor.windows import LEVEL  # noqa: PLC0415
    from perennial.model.export import reference  # noqa: PLC0415

    return reference.distance(window, known, LEVEL).p_value <= LEVEL


def _found(own: Features, pools: Pools, draw: Draw, size: int, *, before: bool = False) -> float:
    """The share of windows with a drift that are beyond the threshold, or the one of before."""
    from perennial.live.monitor.windows import LEVEL  # noqa: PLC0415

    if before:
        random, peer = np.random.default_rng(1), Before(own, size, LEVEL)
        windows = [_values(pools, "features", draw(random, size)) for _ in range(FOUND)]
        return float(np.mean([peer.drifted(each) for each in windows]))
    return float(np.mean(list(_beyond(own, pools, draw, size, FOUND))))


def _beyond(own: Features, pools: Pools, draw: Draw, size: int, count: int) -> Iterator[bool]:
    random = np.random.default_rng(1)
    for _ in range(count):
        yield _drifted(_values(pools, "features", draw(random, size)), own)


def _delay(own: Features, pools: Pools, draw: Draw, size: int) -> float | None:
    """Windows of a drift until the alarm, on average; None if most of 30 in a row raise none."""
    from perennial.live.monitor.windows import ENOUGH, OF_LAST  # noqa: PLC0415

    beyond = np.array(list(_beyond(own, pools, draw, size, FOUND)))
    delays = list[int]()
    for row in beyond[: len(beyond) // 30 * 30].reshape(-1, 30):
        alarms = [at for at in range(1, 30) if row[max(at - OF_LAST + 1, 0) : at + 1].sum() >= ENOUGH]
        delays.append(alarms[0] + 1 if alarms else 31)
    return float(np.mean(delays)) if np.median(delays) <= 30 else None


def _classified(pools: Pools, draw: Draw, size: int) -> float:
    """The share of windows that a domain classifier tells from other images, at the same level."""
    from scipy.stats import binomtest  # noqa: PLC0415
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

    from perennial.live.monitor.windows import LEVEL  # noqa: PLC0415

    random, known = np.random.default_rng(2), pools["held out/penultimate"]
    found = 0
    for _ in range(CLASSIFIED):
        window = random.permutation(_values(pools, "penultimate", draw(random, size)))
        before = known[random.choice(len(known), size, replace=False)]
        half = size // 2
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
        model.fit(np.concatenate([before[:half], window[:half]]), np.repeat([0, 1], half))
        right = model.predict(np.concatenate([before[half:], window[half:]])) == np.repeat([0, 1], half)
        found += binomtest(int(right.sum()), len(right), alternative="greater").pvalue <= LEVEL
    return found / CLASSIFIED


def _accuracy(pools: Pools, draw: Draw) -> float:
    """The share of right predictions: drift that costs nothing is drift, too."""
    parts = draw(np.random.default_rng(3), 2000)
    return float(np.mean(_values(pools, "predicted", parts) == _values(pools, "labels", parts)))


def _alibi(pools: Pools, drifts: dict[str, Draw]) -> tuple[dict[str, float], dict[str, str]]:
    """The shares of windows that Alibi-Detect finds, and its versions."""
    random = np.random.default_rng(4)
    known = pools["held out/penultimate"]
    arrays = {"reference": known[random.choice(len(known), 1000, replace=False)]}
    for name, draw in drifts.items():
        windows = [_values(pools, "penultimate", draw(random, SIZE)) for _ in range(ALIBI)]
        arrays[name] = np.stack(windows)
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "windows.npz", allow_pickle=False, **arrays)
        command = peers.command("alibi_windows", Path(folder) / "windows.npz", lock="drift")
        found: dict[str, float] = json.loads(run(command, Path(folder)).splitlines()[-1])
    return found, peers.versions("alibi-detect", "tensorflow-cpu", lock="drift")
