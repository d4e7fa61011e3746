"""Pictures for those who show no page: files of their own, on white."""

import io

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from perennial.reporting.figures import PERCENT, Table, logarithmic_where_wide

SIZE, DPI = (9.6, 3.6), 100  # inches, pixels an inch


def curves(training: Table | None, validation: Table | None) -> bytes:
    """Loss and accuracy by update, side by side, as PNG; equal curves give equal bytes."""
    figure = Figure(figsize=SIZE, dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    loss, accuracy = figure.subplots(1, 2)
    if training:
        loss.plot(training["step"], training["loss"], color="tab:orange", lw=1, label="training")
    if validation:
        loss.plot(validation["step"], validation["loss"], "o-", color="tab:blue", ms=3.5, label="validation")
        accuracy.plot(validation["step"], validation["accuracy"], "o-", color="tab:blue", ms=3.5)
        accuracy.yaxis.set_major_formatter(PERCENT)
    loss.legend(frameon=False)
    logarithmic_where_wide(loss)
    _labelled(loss, "Loss")
    _labelled(accuracy, "Accuracy on validation")
    content = io.BytesIO()
    # The software's version would be the only thing to differ between equal pictures.
    figure.savefig(content, format="png", metadata={"Software": None})
    return content.getvalue()


def _labelled(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left")
    axes.set_xlabel("update")
    axes.grid(axis="y", color="0.9")
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
