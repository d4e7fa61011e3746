"""Predictions of the scored model for each example of a split, as one NumPy archive."""

import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from perennial.base import files
from perennial.base.errors import DataError
from perennial.model.evaluation import slices as slicing
from perennial.model.evaluation.slices import Slices

Labels: TypeAlias = NDArray[Any]  # int64 [N], or int8 [N, classes] of 0 and 1


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
class Predictions:
    """Probabilities of every class for the examples of a split, in the order of the manifest: arrays [N].

    With several labels an image, `labels` and `predicted` are int8 [N, classes] of 0 and 1.
    """

    labels: Labels
    probabilities: NDArray[np.float32]  # [N, classes], as the model gave them
    classes: tuple[str, ...]
    split: str
    data: str  # digest of the manifest
    split_digest: str  # of the images and labels of the split
    model: str  # digest of the weights
    slices: tuple[Slices, ...] = ()  # of the columns of a table of labels
    thresholds: NDArray[np.float32] | None = None  # [classes], of several labels an image
    audit: NDArray[np.bool_] | None = None  # examples that no decision reads; None: none, or they are left out
    whole: Self | None = None  # the predictions that these are a part of

    @property
    def multilabel(self) -> bool:
        """Whether an image may have any number of labels."""
        return self.labels.ndim == 2

    @cached_property
    def predicted(self) -> Labels:
        """The most probable class of each example; of several labels, those at or above their thresholds."""
        if self.thresholds is not None:
            return (self.probabilities >= self.thresholds).astype(np.int8)
        found: Labels = self.probabilities.argmax(axis=1)
        return found

    @cached_property
    def p(self) -> NDArray[np.float32]:
        """The probability of the predicted class, 0..1."""
        found: NDArray[np.float32] = self.probabilities[np.arange(len(self.labels)), self.predicted]
        return found

    @cached_property
    def p_true(self) -> NDArray[np.float32]:
        """The probability of the label, 0..1."""
        found: NDArray[np.float32] = self.probabilities[np.arange(len(self.labels)), self.labels]
        return found

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether the prediction for each example is its label, or exactly its labels."""
        return right(self.predicted, self.labels)

    @property
    def split_labels(self) -> Labels:
        """The labels of all examples of the split."""
        return self.labels if self.whole is None else self.whole.labels

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The number of each example in its split."""
        if self.whole is None or self.whole.audit is None:
            return np.arange(len(self.labels))
        return np.flatnonzero(~self.whole.audit)

    def judged(self) -> Self:
        """The predictions on the examples that decisions read."""
        if self.audit is None:
            return self
        rows = np.flatnonzero(~self.audit)
        slices = tuple(each.at(rows) for each in self.slices)
        return replace(
            self, labels=self.labels[rows], probabilities=self.probabilities[rows], slices=slices, audit=None,
            whole=self,
        )  # fmt: skip

    def write(self, file: Path) -> None:
        """Write a NumPy archive; equal predictions give equal bytes."""
        names = ("labels", "probabilities", "predicted", "classes", "split", "data", "split_digest", "model")
        found = {name: np.asarray(getattr(self, name)) for name in names}
        further = {"thresholds": self.thresholds, **slicing.arrays(self.slices), "audit": self.audit}
        found |= {name: array for name, array in further.items() if array is not None}
        files.write_bytes(file, archived(**found))


def right(predicted: Labels, labels: Labels) -> NDArray[np.bool_]:
    """Whether each prediction is the label, or exactly the labels, [N]."""
    return np.asarray((predicted == labels).reshape(len(labels), -1).all(axis=1))


def read(file: Path) -> Predictions:
    """Read what `Predictions.write` wrote."""
    with arrays(file) as found:
        labels, probabilities = found["labels"], found["probabilities"]
        classes = tuple(found["classes"].tolist())
        if probabilities.shape != (len(labels), len(classes)) or 0 in probabilities.shape:
            raise ValueError(f"probabilities of shape {probabilities.shape} for {len(classes)} classes")
        thresholds = found.get("thresholds")
        shapes = (labels.shape, np.shape(thresholds))
        if labels.ndim == 2 and shapes != (probabilities.shape, (len(classes),)):
            raise ValueError(f"labels of shape {labels.shape} without as many probabilities and thresholds")
        return Predictions(
            labels=labels, probabilities=probabilities, classes=classes, split=str(found["split"]),
            data=str(found["data"]), split_digest=str(found["split_digest"]), model=str(found["model"]),
            slices=slicing.of_arrays(found), thresholds=thresholds, audit=found.get("audit"),
        )  # fmt: skip


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
