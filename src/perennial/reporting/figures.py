"""What the report draws: the course of the training, the confusions, how sure the model may be."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from perennial.evaluation.calibration import Reliability
from perennial.reporting.drawing import (
    ACCENT,
    BAD,
    INK,
    LINE,
    ON_COLOUR,
    ON_MIDDLE,
    SECOND,
    SOFT,
    WIDTH,
    drawn,
    short,
)

Table = dict[str, NDArray[np.float64]]  # values by column
HEIGHT = 2.6  # inches
FEW_CLASSES = 12  # have room for larger marks
WIDE_RANGE = 20  # largest over smallest value, from which on an axis is logarithmic
LEAST_PLAIN = 1e-6
FEW = 20  # examples whose share that is right says little
PERCENT = FuncFormatter(lambda share, _: f"{100 * share:.4g} %")
PLAIN = FuncFormatter(lambda value, _: _plain(value))
COUNT = EngFormatter(sep="")


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """Which classes were taken for which."""

    counts: NDArray[np.int64]  # examples by class and prediction, [names, names]
    names: tuple[str, ...]


def loss(training: Table | None, validation: Table | None) -> str:
    """The loss of training and validation by update."""
    shown = {name: curve for name, curve in (("training", training), ("validation", validation)) if curve}

    def draw(figure: Figure) -> None:
        axes = _axes(figure, "Loss")
        if training:
            smooth = _smooth(training)
            axes.plot(training["step"], training["loss"], color=SECOND, lw=0.8, alpha=0.35)
            axes.plot(smooth["step"], smooth["loss"], color=SECOND, label="training")
        if validation:
            axes.plot(
                validation["step"], validation["loss"], color=ACCENT, marker="o", ms=3.5, label="validation"
            )
        axes.legend()
        logarithmic_where_wide(axes)

    ends = ", ".join(f"{name} ends at {curve['loss'][-1]:.4g}" for name, curve in shown.items())
    return drawn(draw, "loss", f"Loss by update: {ends}", HEIGHT)


def accuracy(validation: Table, threshold: float | None) -> str:
    """Accuracy on validation by update, with the accuracy that ends the training, 0..1."""
    values = validation["accuracy"]

    def draw(figure: Figure) -> None:
        axes = _axes(figure, "Accuracy on validation")
        axes.plot(validation["step"], values, marker="o", ms=3.5, color=ACCENT)
        if threshold is not None:
            axes.axhline(threshold, color=SOFT, lw=1.2, ls=(0, (4, 3)))
            axes.annotate(
                f"stops at {100 * threshold:.4g} %",
                (0.01, threshold),
                xycoords=("axes fraction", "data"),
                xytext=(0, -4),
                textcoords="offset points",
                ha="left",
                va="top",
                color=SOFT,
                fontsize=9,
            )
        # Where all values are near to each other, matplotlib takes room on both sides, beyond all of 1.
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, 0), min(high, 1.005))
        axes.yaxis.set_major_formatter(PERCENT)

    text = f"Accuracy on validation by update: best {values.max():.2%}, last {values[-1]:.2%}"
    return drawn(draw, "accuracy", text, HEIGHT)


def learning_rate(training: Table) -> str:
    """The learning rate by update."""

    def draw(figure: Figure) -> None:
        axes = _axes(figure, "Learning rate")
        axes.plot(training["step"], training["learning_rate"], color=ACCENT)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(PLAIN)

    rates = training["learning_rate"]
    text = f"Learning rate by update: from {rates[0]:.3g} to {rates[-1]:.3g}"
    return drawn(draw, "learning-rate", text, HEIGHT)


def confusion(matrix: Matrix) -> str:
    """Examples by class and prediction; colour is the share of the class's examples."""
    counts, size = matrix.counts, len(matrix.names)
    side = 1.05 * WIDTH if size <= FEW_CLASSES else 1.7 + 0.28 * size

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot(aspect="equal", xlim=(-0.5, size - 0.5), ylim=(size - 0.5, -0.5))
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        for row, column in np.argwhere(counts):
            _cell(axes, int(row), int(column), int(counts[row, column]), float(shares[row, column]), size)
        labels = [short(name) for name in matrix.names]
        slanted = {"rotation": 45, "ha": "right"} if size <= FEW_CLASSES else {"rotation": 90}
        axes.set_xticks(range(size), labels, **slanted)
        axes.set_yticks(range(size), labels)
        axes.set(xlabel="predicted", ylabel="true class")
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        edges = np.arange(size + 1) - 0.5
        axes.hlines(edges, -0.5, size - 0.5, color=LINE, lw=0.6, zorder=0)
        axes.vlines(edges, -0.5, size - 0.5, color=LINE, lw=0.6, zorder=0)

    right, total = int(np.trace(counts)), int(counts.sum())
    text = f"Confusion matrix of {size} classes: {right:,} of {total:,} examples on the diagonal"
    return drawn(draw, "confusion", text, side, side)


def reliability(found: Reliability) -> str:
    """How often the model is right by how sure it is, and how many examples that are."""
    bins, filled = len(found.examples), found.examples > 0
    left, examples = np.arange(bins)[filled] / bins, found.examples[filled]
    right, sure = found.accuracy[filled], found.confidence[filled]

    def draw(figure: Figure) -> None:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        for x, y, count in zip(left, right, examples, strict=True):
            upper.bar(x, y, 1 / bins, align="edge", color=ACCENT, alpha=0.25 if count < FEW else 0.65, lw=0)
        upper.plot((0, 1), (0, 1), color=SOFT, lw=1.2, ls=(0, (4, 3)), label="right as often as sure")
        upper.hlines(sure, left, left + 1 / bins, color=BAD, lw=2.2, label="mean probability")
        upper.set(ylim=(0, 1.03), xlim=(0, 1), ylabel="share that is right")
        upper.legend(loc="lower left", bbox_to_anchor=(-0.02, 1), ncols=2)
        lower.bar(left, examples, 1 / bins, align="edge", color=SECOND, alpha=0.75, lw=0, log=True)
        lower.set(xlabel="probability of the predicted class", ylabel="examples", ylim=(0.7, None))
        for axes in (upper, lower):
            axes.grid(axis="y")
            axes.tick_params(which="both", length=0)
        for axis in (upper.yaxis, lower.xaxis):
            axis.set_major_formatter(PERCENT)
        lower.yaxis.set_major_formatter(COUNT)
        lower.yaxis.set_minor_formatter(NullFormatter())

    top = f"where it is surest, by {sure[-1]:.2%} in the mean, it is right in {right[-1]:.2%}"
    text = f"Reliability diagram of {examples.sum():,.0f} examples: {top}"
    return drawn(draw, "reliability", text, 1.55 * HEIGHT)


def logarithmic_where_wide(axes: Axes) -> None:
    """A loss that falls to a hundredth is a flat line on a linear axis."""
    values = np.concatenate([np.asarray(line.get_ydata(), float) for line in axes.lines] or [np.ones(1)])
    values = values[np.isfinite(values)]
    if len(values) and values.min() > 0 and values.max() > WIDE_RANGE * values.min():
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(PLAIN)
        axes.yaxis.set_minor_formatter(NullFormatter())


def _plain(value: float) -> str:
    """A number of four digits without an exponent, unless it is very small."""
    if 0 < abs(value) < LEAST_PLAIN:
        return f"{value:.4g}"
    return np.format_float_positional(value, precision=4, fractional=False, trim="-")


def _cell(axes: Axes, row: int, column: int, count: int, share: float, size: int) -> None:
    """A cell of the matrix; few mistakes are seen as well, so theirs are drawn by the root of their share."""
    right = row == column
    strength = 0.08 + 0.92 * (share if right else share**0.5)
    corner = (column - 0.5, row - 0.5)
    axes.add_patch(Rectangle(corner, 1, 1, facecolor=ACCENT if right else BAD, alpha=strength, lw=0))
    axes.text(
        column, row, f"{count}" if count < 10_000 else EngFormatter(places=0, sep="")(count), ha="center",
        va="center", fontsize=8.5 if size <= FEW_CLASSES else 8, color=_on(strength),
    )  # fmt: skip


def _on(strength: float) -> str:
    """The colour of text that stands out from a cell, on a light page and on a dark one."""
    return INK if strength < 0.55 else ON_MIDDLE if strength < 0.88 else ON_COLOUR


def _axes(figure: Figure, title: str) -> Axes:
    axes = figure.add_subplot()
    axes.set_title(title)
    axes.set_xlabel("update")
    axes.grid(axis="y")
    axes.tick_params(which="both", length=0)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(COUNT)
    return axes


def _smooth(curve: Table) -> Table:
    """The running mean of the losses, over a fortieth of the curve."""
    window = max(1, len(curve["step"]) // 40)
    weights = np.full(window, 1 / window)
    return {name: np.convolve(curve[name], weights, "valid") for name in ("step", "loss")}
