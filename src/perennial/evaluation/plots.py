"""Pictures of scores and the tables that `dvc plots` draws."""

import csv
import io
from collections.abc import Sequence

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray


def confusion_csv(actual: Sequence[int], predicted: Sequence[int], names: Sequence[str]) -> bytes:
    """A line per example with its label's and its prediction's name, for DVC's confusion template."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("actual", "predicted"))
    writer.writerows((names[a], names[p]) for a, p in zip(actual, predicted, strict=True))
    return text.getvalue().encode()


def confusion_png(counts: NDArray[np.int64], names: Sequence[str], title: str) -> bytes:
    """The confusion matrix as a picture: colour is the share of the row, numbers are examples."""
    side = 2.5 + 0.5 * len(names)
    figure = Figure(figsize=(side, side), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set(title=title, xlabel="predicted", ylabel="actual")
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right")
    axes.set_yticks(range(len(names)), names)
    for (row, column), count in np.ndenumerate(counts):
        if count:
            colour = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, str(count), ha="center", va="center", color=colour)
    content = io.BytesIO()
    # The software's version would be the only thing to differ between equal pictures.
    figure.savefig(content, format="png", metadata={"Software": None})
    return content.getvalue()
