"""Pictures of scores and the tables that `dvc plots` draws."""

import csv
import io
from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from perennial.evaluation.calibration import Reliability

MOST = 30  # classes that a confusion matrix shows; more cannot be read
LONGEST = 24  # characters of a class's name in a picture


def most_confused(counts: NDArray[np.int64], names: Sequence[str]) -> tuple[NDArray[np.int64], list[str]]:
    """For each class its place in a confusion matrix that a person can read, and the names of the places.

    Of many classes those that most mistakes are about have a place of their own, in the order of the classes;
    all others share the last one.
    """
    if len(names) <= MOST:
        return np.arange(len(names)), list(names)
    mistakes = counts.sum(axis=0) + counts.sum(axis=1) - 2 * counts.diagonal()
    own = np.sort(np.argsort(-mistakes, kind="stable")[: MOST - 1])
    places = np.full(len(names), MOST - 1)
    places[own] = np.arange(MOST - 1)
    return places, [*(names[label] for label in own), f"({len(names) - MOST + 1} others)"]


def grouped(counts: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """A confusion matrix by the places of classes."""
    side = int(places.max()) + 1
    sums = np.zeros((side, side), np.int64)
    np.add.at(sums, (places[:, None], places[None, :]), counts)
    return sums


def confusion_csv(actual: Sequence[int], predicted: Sequence[int], names: Sequence[str]) -> bytes:
    """A line per example with its label's and its prediction's name, for DVC's confusion template."""
    rows = ((names[a], names[p]) for a, p in zip(actual, predicted, strict=True))
    return _csv(("actual", "predicted"), rows)


def confusion_png(counts: NDArray[np.int64], names: Sequence[str], title: str) -> bytes:
    """The confusion matrix as a picture: colour is the share of the row, numbers are examples."""
    side = 2.5 + 0.5 * len(names)
    figure = _figure(side, side)
    axes = figure.add_subplot()
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set(title=title, xlabel="predicted", ylabel="actual")
    short = [
        name if len(name) <= LONGEST else f"{name[: LONGEST // 2]}…{name[1 - LONGEST // 2 :]}" for name in names
    ]
    # A class may be called $.
    axes.set_xticks(range(len(names)), short, rotation=45, ha="right", parse_math=False)
    axes.set_yticks(range(len(names)), short, parse_math=False)
    for (row, column), count in np.ndenumerate(counts):
        if count:
            colour = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, str(count), ha="center", va="center", color=colour)
    return _png(figure)


def reliability_csv(reliability: Reliability) -> bytes:
    """A line for each interval of confidence that has examples, numbered from 1."""
    rows = zip(reliability.confidence, reliability.accuracy, reliability.examples, strict=True)
    numbered = ((number, *row) for number, row in enumerate(rows, 1) if row[2])
    return _csv(("bin", "confidence", "accuracy", "examples"), numbered)


def reliability_png(reliability: Reliability, title: str) -> bytes:
    """The reliability diagram: how often the model is right by how sure it is, above how many examples."""
    bins = len(reliability.examples)
    middles, width = (np.arange(bins) + 0.5) / bins, 0.94 / bins
    figure = _figure(5, 6)
    shares, examples = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    shares.bar(middles, np.nan_to_num(reliability.accuracy), width, color="tab:blue", label="accuracy")
    shares.plot([0, 1], [0, 1], color="black", linestyle="--", linewidth=1, label="as sure as right")
    shares.plot(reliability.confidence, reliability.accuracy, "o", color="tab:orange", label="mean confidence")
    shares.set(title=title, ylabel="accuracy", xlim=(0, 1), ylim=(0, 1.02))
    shares.legend(loc="upper left")
    examples.bar(middles, reliability.examples, width, color="tab:gray")
    examples.set(xlabel="confidence", ylabel="examples", yscale="log", ylim=(0.7, None))
    return _png(figure)


def _csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue().encode()


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _png(figure: Figure) -> bytes:
    content = io.BytesIO()
    # The software's version would be the only thing to differ between equal pictures.
    figure.savefig(content, format="png", metadata={"Software": None})
    return content.getvalue()
