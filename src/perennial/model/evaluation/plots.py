"""Plots of a run as PNG or SVG: training curves, confusion matrix and reliability diagram."""

import io
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from perennial.base.errors import printable
from perennial.model.evaluation.diagnostics import Matrix, Reliability

Values = NDArray[np.float64]
Curve = dict[str, Values]  # values by column

# A page that embeds an SVG maps each to a CSS variable of this name, for light and dark themes.
COLORS = {
    "ink": "#1a1f24",
    "soft": "#5d6770",
    "line": "#e2e4e6",
    "accent": "#2f6db5",
    "second": "#d08a1d",
    "bad": "#c2352b",
    "on-colour": "#ffffff",
    "on-middle": "#10151a",
}
STYLE: dict[Any, object] = {
    "svg.fonttype": "none",  # text stays text: small, and in the page's font
    "text.parse_math": False,  # a class may be called $
    "font.size": 10,
    "text.color": COLORS["ink"],
    "axes.labelcolor": COLORS["soft"],
    "axes.edgecolor": COLORS["line"],
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titlepad": 10,
    **{f"{axis}tick.{which}.size": 0 for axis in "xy" for which in ("major", "minor")},
    **{f"{axis}tick.color": COLORS["line"] for axis in "xy"},
    **{f"{axis}tick.labelcolor": COLORS["soft"] for axis in "xy"},
    **{f"{axis}tick.labelsize": 9.5 for axis in "xy"},
    "grid.color": COLORS["line"],
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "legend.handlelength": 1.2,
}
FONT = "DejaVu Sans"  # comes with Matplotlib
WIDTH, HEIGHT = 4.2, 2.6  # inches
DPI = 160
FEW_CLASSES = 12  # have room for larger marks
FEW_EXAMPLES = 20  # bins with fewer have an uncertain accuracy
LOG_RATIO = 20  # of the largest to the smallest value, above which an axis is logarithmic
LINES = (("bad", "-"), ("second", "-"), ("accent", "-"), ("bad", ":"), ("second", ":"), ("accent", ":"))
MOST_POINTS = 500  # of a curve
NAME_LENGTH, NAME_END = 15, 5  # characters of a class name, and those kept of its end
PERCENT = FuncFormatter(lambda share, _: f"{100 * share:.4g} %")
COUNT = EngFormatter(sep="")
PLAIN = FuncFormatter(lambda value, _: f"{value:.4g}")


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A figure that can be written as PNG or SVG; equal plots give equal bytes."""

    name: str  # prefix of the ids in the SVG
    description: str  # for screen readers
    draw: Callable[[Figure], None]
    width: float = WIDTH  # inches
    height: float = HEIGHT
    title: str | None = None

    def png(self) -> bytes:
        """The figure on white."""
        content = io.BytesIO()
        with mpl.rc_context({**STYLE, "font.family": FONT}):
            # Matplotlib's version would make equal pictures differ.
            self._figure().savefig(content, format="png", dpi=DPI, metadata={"Software": None})
        return content.getvalue()

    def svg(self) -> str:
        """The figure as an `<svg>` element with a transparent background, in `COLORS`."""
        content = io.StringIO()
        with mpl.rc_context({**STYLE, "svg.hashsalt": self.name}), warnings.catch_warnings():
            # The page's font has the characters that Matplotlib's font lacks.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            figure = self._figure()
            for number, artist in enumerate(figure.findobj()):
                artist.set_gid(f"{self.name}-{number}")  # ids are unique on a page with several figures
            metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
            figure.savefig(content, format="svg", transparent=True, metadata=metadata)
        text = content.getvalue()
        return text[text.index("<svg") :].strip()

    def _figure(self) -> Figure:
        figure = Figure(figsize=(self.width, self.height), layout="constrained")
        FigureCanvasAgg(figure)
        self.draw(figure)
        if self.title:
            figure.suptitle(self.title, fontsize=9.5)
        return figure


def without_glyph(names: Iterable[str]) -> str:
    """The characters of some names that Matplotlib's own font lacks, such as those of CJK names, sorted.

    Fonts of the machine are not used: equal inputs give equal pictures everywhere.
    """
    own = font_manager.get_font(font_manager.findfont(FONT, fallback_to_default=True))
    missing = {ord(mark) for name in names for mark in printable(name)} - own.get_charmap().keys()
    return "".join(map(chr, sorted(missing)))


def loss(training: Curve | None, validation: Curve | None) -> Plot:
    """Loss by step."""
    shown = {name: curve for name, curve in (("training", training), ("validation", validation)) if curve}
    ends = ", ".join(f"{name} ends at {curve['loss'][-1]:.4g}" for name, curve in shown.items())
    return Plot(
        name="loss",
        description=f"Loss by step: {ends}",
        draw=lambda figure: _draw_loss(figure.add_subplot(), training, validation),
    )


def accuracy(validation: Curve, threshold: float | None) -> Plot:
    """The main score on validation by step, with the threshold that ends the training, 0..1."""
    name, values = _main(validation)
    return Plot(
        name="accuracy",
        description=f"{name} on validation by step: best {values.max():.2%}, last {values[-1]:.2%}",
        draw=lambda figure: _draw_accuracy(figure.add_subplot(), validation, threshold),
    )


def learning_rate(training: Curve) -> Plot:
    """Learning rate by step."""
    rates = training["learning_rate"]

    def draw(figure: Figure) -> None:
        axes = _curve_axes(figure.add_subplot(), "Learning rate")
        axes.plot(training["step"], rates, color=COLORS["accent"])
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(PLAIN)

    text = f"Learning rate by step: from {rates[0]:.3g} to {rates[-1]:.3g}"
    return Plot(name="learning-rate", description=text, draw=draw)


def curves(training: Curve | None, validation: Curve | None, threshold: float | None) -> Plot:
    """Loss and accuracy by step, side by side."""

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        _draw_loss(left, training, validation)
        if validation:
            _draw_accuracy(right, validation, threshold)
        else:
            right.set_visible(False)

    return Plot(
        name="curves", description="Loss and accuracy by step", draw=draw, width=2 * WIDTH, height=1.2 * HEIGHT
    )


def confusion(matrix: Matrix, *, title: str | None = None, undrawn: str = "") -> Plot:
    """Confusion matrix: numbers are examples, color is the share of the true class's examples."""
    counts, size = matrix.counts, len(matrix.names)
    few, right, total = size <= FEW_CLASSES, int(np.trace(counts)), int(counts.sum())
    side = 1.05 * WIDTH if few else 1.7 + 0.28 * size
    labels = [
        class_label(name, int(np.argmax(matrix.row_of == row)), undrawn)
        for row, name in enumerate(matrix.names)
    ]

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot(aspect="equal", xlim=(-0.5, size - 0.5), ylim=(size - 0.5, -0.5))
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        for row, column in np.argwhere(counts):
            share = float(shares[row, column])
            _draw_cell(axes, int(row), int(column), int(counts[row, column]), share, 8.5 if few else 8)
        axes.set_xticks(range(size), labels, **({"rotation": 45, "ha": "right"} if few else {"rotation": 90}))
        axes.set_yticks(range(size), labels)
        axes.set(xlabel="predicted", ylabel="true class")
        axes.spines[:].set_visible(False)
        edges = np.arange(size + 1) - 0.5
        axes.hlines(edges, -0.5, size - 0.5, color=COLORS["line"], lw=0.6, zorder=0)
        axes.vlines(edges, -0.5, size - 0.5, color=COLORS["line"], lw=0.6, zorder=0)

    text = f"Confusion matrix of {size} classes: {right:,} of {total:,} examples on the diagonal"
    return Plot(name="confusion", description=text, draw=draw, width=side, height=side, title=title)


def reliability(found: Reliability, *, title: str | None = None, several: bool = False) -> Plot:
    """Reliability diagram: accuracy by probability of the predicted class, above the number of examples.

    `several`: with several labels an image, the share of images that have a label by its probability.
    """
    share, of = ("share with the label", "a label") if several else ("accuracy", "the predicted class")
    bins, filled = len(found.examples), found.examples > 0
    left, examples = np.arange(bins)[filled] / bins, found.examples[filled]
    right, mean = found.accuracy[filled], found.confidence[filled]

    def draw(figure: Figure) -> None:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        alphas = np.where(examples < FEW_EXAMPLES, 0.25, 0.65)
        for x, y, alpha in zip(left, right, alphas, strict=True):
            upper.bar(x, y, 1 / bins, align="edge", color=COLORS["accent"], alpha=alpha, lw=0)
        upper.plot((0, 1), (0, 1), color=COLORS["soft"], lw=1.2, ls=(0, (4, 3)), label="perfectly calibrated")
        upper.hlines(mean, left, left + 1 / bins, color=COLORS["bad"], lw=2.2, label="mean probability")
        upper.set(ylim=(0, 1.03), xlim=(0, 1), ylabel=share)
        upper.legend(loc="lower left", bbox_to_anchor=(-0.02, 1), ncols=2)
        lower.bar(left, examples, 1 / bins, align="edge", color=COLORS["second"], alpha=0.75, lw=0, log=True)
        lower.set(xlabel=f"probability of {of}", ylabel="examples", ylim=(0.7, None))
        for axes, axis in ((upper, upper.yaxis), (lower, lower.xaxis)):
            axes.grid(axis="y")
            axis.set_major_formatter(PERCENT)
        lower.yaxis.set_major_formatter(COUNT)
        lower.yaxis.set_minor_formatter(NullFormatter())

    top = f"in the highest bin, of mean probability {mean[-1]:.2%}, {share} is {right[-1]:.2%}"
    text = f"Reliability diagram of {examples.sum():,.0f} examples: {top}"
    return Plot(name="reliability", description=text, draw=draw, height=1.55 * HEIGHT, title=title)


def precision_recall(
    labels: NDArray[np.int8], probabilities: NDArray[np.float32], names: Sequence[str],
    *, title: str | None = None, undrawn: str = "",
) -> Plot:  # fmt: skip
    """Precision over recall of each class, both arrays [N, classes]; those of the least areas have a color."""
    curves = {
        name: _precisions(own != 0, p)
        for name, own, p in zip(names, labels.T, probabilities.T, strict=True)
        if own.any()
    }
    areas = {name: float((np.diff(found[0]) * found[1][1:]).sum()) for name, found in curves.items()}
    worst = sorted(areas, key=areas.__getitem__)[: len(LINES)]

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot(xlim=(0, 1), ylim=(0, 1.03), xlabel="recall", ylabel="precision")
        for name in [each for each in curves if each not in worst]:
            axes.step(*curves[name], color=COLORS["soft"], lw=0.7, alpha=0.5)
        for name, (color, style) in zip(worst, LINES, strict=False):
            label = f"{class_label(name, names.index(name), undrawn)} {areas[name]:.2f}"
            axes.step(*curves[name], color=COLORS[color], ls=style, lw=1.5, label=label)
        axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1), ncols=2)
        axes.grid(axis="y")
        axes.xaxis.set_major_formatter(PERCENT)
        axes.yaxis.set_major_formatter(PERCENT)

    text = f"Precision over recall of {len(curves)} classes; the least areas: "
    text += ", ".join(f"{name} {areas[name]:.2f}" for name in worst)
    return Plot(name="precision-recall", description=text, draw=draw, height=1.55 * HEIGHT, title=title)


def _precisions(own: NDArray[np.bool_], probabilities: NDArray[np.float32]) -> tuple[Values, Values]:
    """Recall and precision from each probability on, the highest first, after a recall of 0."""
    order = np.argsort(-probabilities, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(probabilities[order])), len(own) - 1)
    hits = np.cumsum(own[order])[ends]
    places = np.unique(np.linspace(0, len(ends) - 1, min(len(ends), MOST_POINTS)).astype(int))
    recall, precision = (hits / own.sum())[places], (hits / (ends + 1))[places]
    return np.append(0, recall), np.append(precision[0], precision)


def class_label(name: str, number: int, undrawn: str) -> str:
    """A short name of a class; its number, such as `#7`, if the name has a character of `undrawn`."""
    return f"#{number}" if set(undrawn) & set(printable(name)) else short_label(name)


def short_label(name: str) -> str:
    """A class name of at most 15 characters, control characters escaped."""
    shown = printable(name)
    if len(shown) <= NAME_LENGTH:
        return shown
    return f"{shown[: NAME_LENGTH - NAME_END - 1]}…{shown[-NAME_END:]}"


def _draw_loss(axes: Axes, training: Curve | None, validation: Curve | None) -> None:
    _curve_axes(axes, "Loss")
    if training:
        steps, values = training["step"], training["loss"]
        window = max(1, len(steps) // 40)
        weights = np.full(window, 1 / window)
        means = [np.convolve(column, weights, "valid") for column in (steps, values)]
        axes.plot(steps, values, color=COLORS["second"], lw=0.8, alpha=0.35)
        axes.plot(*means, color=COLORS["second"], label="training")
    if validation:
        style = {"color": COLORS["accent"], "marker": "o", "ms": 3.5, "label": "validation"}
        axes.plot(validation["step"], validation["loss"], **style)  # type: ignore[arg-type]
    axes.legend()
    values = np.concatenate([np.asarray(line.get_ydata(), float) for line in axes.lines] or [np.ones(1)])
    values = values[np.isfinite(values)]
    # A loss that falls to a hundredth is a flat line on a linear axis.
    if len(values) and values.min() > 0 and values.max() > LOG_RATIO * values.min():
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(PLAIN)
        axes.yaxis.set_minor_formatter(NullFormatter())


def _draw_accuracy(axes: Axes, validation: Curve, threshold: float | None) -> None:
    name, values = _main(validation)
    _curve_axes(axes, f"{name} on validation")
    axes.plot(validation["step"], values, marker="o", ms=3.5, color=COLORS["accent"])
    if threshold is not None:
        axes.axhline(threshold, color=COLORS["soft"], lw=1.2, ls=(0, (4, 3)))
        axes.annotate(
            f"stops at {100 * threshold:.4g} %", (0.01, threshold), xycoords=("axes fraction", "data"),
            xytext=(0, -4), textcoords="offset points", va="top", color=COLORS["soft"], fontsize=9,
        )  # fmt: skip
    # Matplotlib's margins would reach below 0 and above 1.
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, 0), min(high, 1.005))
    axes.yaxis.set_major_formatter(PERCENT)


def _main(validation: Curve) -> tuple[str, Values]:
    return ("mAP", validation["map"]) if "map" in validation else ("Accuracy", validation["accuracy"])


def _curve_axes(axes: Axes, title: str) -> Axes:
    axes.set(title=title, xlabel="step")
    axes.grid(axis="y")
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(COUNT)
    return axes


def _draw_cell(axes: Axes, row: int, column: int, count: int, share: float, fontsize: float) -> None:
    right = row == column
    strength = 0.08 + 0.92 * (share if right else share**0.5)  # the root makes rare mistakes visible
    color = COLORS["accent" if right else "bad"]
    # Not part of the layout, which would measure each: cells lie within the axes.
    place = (column - 0.5, row - 0.5)
    axes.add_artist(Rectangle(place, 1, 1, facecolor=color, alpha=strength, lw=0, in_layout=False))
    on = "ink" if strength < 0.55 else "on-middle" if strength < 0.88 else "on-colour"
    text = f"{count}" if count < 10_000 else EngFormatter(places=0, sep="")(count)
    axes.text(column, row, text, ha="center", va="center", fontsize=fontsize, color=COLORS[on], in_layout=False)
