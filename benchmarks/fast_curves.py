"""Draw how fast the preset fast_cifar10 learns beside cifar10_tutorial: `python -m benchmarks.fast_curves`.

It reads fast.json and race.json in benchmarks/results, which `make bench SUBJECTS=fast` writes, and writes the
picture of docs/reference/measurements.md.
"""

import json
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from benchmarks.timing import ROOT
from perennial.model.evaluation.plots import COLORS, COUNT, PERCENT, WIDTH, Plot

RESULTS = ROOT / "benchmarks" / "results"
RACES = {
    "fast_cifar10": (COLORS["bad"], "fast_cifar10, shortened to 80 %"),
    "cifar10_tutorial": (COLORS["second"], "cifar10_tutorial"),
}
PICTURE = ROOT / "docs" / "images" / "fast_cifar10.png"


def curves(measured: dict[str, Any], raced: dict[str, Any]) -> Plot:
    """Validation accuracy by images seen: each seed of the fast recipe, and the tutorial's network."""

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot(xscale="log", xlabel="images seen", ylabel="validation accuracy")
        runs = measured["trainings"]
        for number, run in enumerate(runs):
            label = f"fast_cifar10, {len(runs)} seeds" if number == 0 else None
            images, accuracies = zip(*run["validation"], strict=True)
            axes.plot(images, accuracies, color=COLORS["accent"], lw=1, marker="o", ms=2.5, label=label)
        for preset, race in raced["races"].items():
            *_, images, accuracies = zip(*race["evaluations"], strict=True)
            color, label = RACES[preset]
            axes.plot(images, accuracies, color=color, lw=1.4, marker="o", ms=2.5, label=label)
        axes.axhline(raced["reached"], color=COLORS["soft"], lw=0.8, ls=(0, (4, 3)))
        axes.grid(axis="y")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(COUNT)
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(PERCENT)
        axes.legend()

    return Plot(
        name="fast-cifar10", description="Validation accuracy by images seen", draw=draw,
        width=1.5 * WIDTH, height=0.8 * WIDTH,
    )  # fmt: skip


if __name__ == "__main__":
    found = (json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")) for name in ("fast", "race"))
    PICTURE.write_bytes(curves(*found).png())
    print(f"{PICTURE.relative_to(ROOT)} written")
