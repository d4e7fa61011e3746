"""Predictions of the scored model for each example of a split, as one NumPy archive."""

import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from perennial.base import files
from perennial.base.errors import DataError
from perennial.model.evaluation import slices
from perennial.model.evaluation.slices import Slices


@dataclass(frozen=True, kw_only=True)
class _Scored:
    """The scored split and model; one row per example, in the order of the manifest."""

    labels: NDArray[np.int64]  # [N]
    classes: tuple[str, ...]
    split: str
    data: str  # digest of the manifest
    split_digest: str  # of the images and labels of the split
    model: str  # digest of the weights
    slices: tuple[Slices, ...] = ()  # of the columns of a table of labels
    audit: NDArray[np.bool_] | None = None  # [N of the split], examples that no decision reads; None: none


def archived(**arrays: NDArray[Any]) -> bytes:
    """A NumPy archive; equal arrays give equal bytes.

    `np.savez_compressed` forces ZIP64 headers, which Python 3.11.4 writes otherwise than 3.11.3 does.
    """
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, array in arrays.items():
            member, entry = io.BytesIO(), zipfile.ZipInfo(f"{name}.npy")  # of 1980, as NumPy's are
            np.save(member, array, allow_pickle=False)
            archive.writestr(entry, member.getvalue(), zipfile.ZIP_DEFLATED)
    return content.getvalue()


@dataclass(frozen=True, kw_only=True)
class Predictions(_Scored):
    """The probabilities of every class."""

    probabilities: NDArray[np.float32]  # [N, classes], as the model gave them

    def write(self, file: Path) -> None:
        """Write a NumPy archive; equal predictions give equal bytes."""
        content = archived(
            labels=self.labels,
            probabilities=self.probabilities,
            predicted=self.probabilities.argmax(axis=1),
            classes=np.array(self.classes),
            split=np.array(self.split),
            data=np.array(self.data),
            split_digest=np.array(self.split_digest),
            model=np.array(self.model),
            **slices.arrays(self.slices),
            **({} if self.audit is None else {"audit": self.audit}),
        )
        files.write_bytes(file, content)

    def judged(self) -> tuple[Self, NDArray[np.int64]]:
        """The predictions on the examples that decisions read, and the numbers of these, [M]."""
        rows = _judged(self.audit, len(self.labels))
        of = tuple(each.at(rows) for each in self.slices)
        return replace(
            self, labels=self.labels[rows], probabilities=self.probabilities[rows], slices=of, audit=None
        ), rows


@dataclass(frozen=True, kw_only=True)
class TopPredictions(_Scored):
    """Predicted class of each example with its probability and that of the label: arrays [N].

    Without examples that no decision reads, if so read.
    """

    predicted: NDArray[np.int64]
    p: NDArray[np.float32]  # of the predicted class, 0..1
    p_true: NDArray[np.float32]  # of the label
    rows: NDArray[np.int64] | None = None  # [N], numbers of the examples in the split; None: all, in order
    every_label: NDArray[np.int64] | None = None  # of the split; None: `labels`

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The number of each example in its split, [N]."""
        return np.arange(len(self.labels)) if self.rows is None else self.rows

    @property
    def split_labels(self) -> NDArray[np.int64]:
        """The labels of all examples of the split."""
        return self.labels if self.every_label is None else self.every_label


def read(file: Path) -> Predictions:
    """Read what `Predictions.write` wrote."""
    with arrays(file) as found:
        labels, probabilities = found["labels"], found["probabilities"]
        classes = tuple(found["classes"].tolist())
        if probabilities.shape != (len(labels), len(classes)) or 0 in probabilities.shape:
            raise ValueError(f"probabilities of shape {probabilities.shape} for {len(classes)} classes")
        return Predictions(
            labels=labels,
            probabilities=probabilities,
            classes=classes,
            **{name: str(found[name]) for name in ("split", "data", "model", "split_digest")},
            slices=slices.of_arrays(found),
            audit=found.get("audit"),
        )


def read_top(file: Path, *, every: bool = False) -> TopPredictions:
    """Read the top predictions; `every`: also those on examples that no decision reads."""
    found = read(file)
    rows, predicted = np.arange(len(found.labels)), found.probabilities.argmax(axis=1)
    shared = {field.name: getattr(found, field.name) for field in fields(_Scored)}
    top = TopPredictions(
        **shared,
        predicted=predicted,
        p=found.probabilities[rows, predicted],
        p_true=found.probabilities[rows, found.labels],
    )
    if every or found.audit is None:
        return top
    kept = _judged(found.audit, len(rows))
    return replace(
        top, labels=top.labels[kept], predicted=predicted[kept], p=top.p[kept], p_true=top.p_true[kept],
        rows=kept, every_label=found.labels, slices=tuple(each.at(kept) for each in found.slices),
    )  # fmt: skip


def _judged(audit: NDArray[np.bool_] | None, count: int) -> NDArray[np.int64]:
    return np.arange(count) if audit is None else np.flatnonzero(~audit)


@contextmanager
def arrays(file: Path, stage: str = "evaluate") -> Iterator[Any]:
    """Open a NumPy archive that a stage wrote; each array is read when it is used."""
    try:
        # NumPy does not close a damaged file that it opened itself.
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as found:
            yield found
    except FileNotFoundError as error:
        raise DataError(f"{file} does not exist; `dvc repro {stage}` makes it") from error
    except (ValueError, LookupError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{file} holds no valid predictions: {error}; `dvc repro -f {stage}` rebuilds it"
        ) from error
