"""Predictions of the scored model for each example of a split, as one NumPy archive, and slices of them."""

import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from perennial.base import files
from perennial.base.errors import DataError, printable
from perennial.model.evaluation import intervals

MOST = 50  # values of a column that gives slices; one with more, such as a date, tells examples apart
ABSENT = "(none)"  # the value of examples whose field is empty
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
class Slices:
    """The examples with equal values in a further column of a table of labels, such as those of one site."""

    column: str
    values: tuple[str, ...]  # in alphabetical order
    of: NDArray[np.int64]  # [N], index of each example's value

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the slices, such as `site: north`."""
        return tuple(f"{self.column}: {value}" for value in self.values)

    def at(self, rows: NDArray[np.int64]) -> Self:
        """The same slices of some of the examples."""
        return replace(self, of=self.of[rows])


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
        further = {"thresholds": self.thresholds, **self._slice_arrays(), "audit": self.audit}
        found |= {name: array for name, array in further.items() if array is not None}
        files.write_bytes(file, archived(**found))

    def _slice_arrays(self) -> dict[str, NDArray[Any]]:
        if not self.slices:
            return {}
        names = json.dumps([[each.column, *each.values] for each in self.slices], ensure_ascii=False)
        return {
            "slices": np.stack([each.of for each in self.slices], axis=1),  # [N, columns]
            "slice_names": np.frombuffer(names.encode("utf-8", "surrogateescape"), np.uint8),
        }


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
        names = json.loads(found["slice_names"].tobytes()) if "slices" in found else []
        slices = tuple(
            Slices(column=column, values=tuple(values), of=of)
            for (column, *values), of in zip(names, found["slices"].T if names else (), strict=True)
        )
        return Predictions(
            labels=labels, probabilities=probabilities, classes=classes, split=str(found["split"]),
            data=str(found["data"]), split_digest=str(found["split_digest"]), model=str(found["model"]),
            slices=slices, thresholds=thresholds, audit=found.get("audit"),
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


def find_slices(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[Slices, ...]:
    """The slices of each column that has from 2 to 50 values; `rows` has the values of each example."""
    found = []
    for number, column in enumerate(columns):
        texts = [printable(row[number]) or ABSENT for row in rows]
        values = tuple(sorted(set(texts)))
        if 2 <= len(values) <= MOST:
            index = {value: place for place, value in enumerate(values)}
            of = np.array([index[text] for text in texts], np.int64)
            found.append(Slices(column=printable(column), values=values, of=of))
    return tuple(found)


def slice_scores(slices: Sequence[Slices], correct: NDArray[np.bool_], level: float) -> dict[str, Any]:
    """JSON of each slice's examples and accuracy with its interval (Wilson), by column and value."""
    found = {}
    for each in slices:
        counts = np.bincount(each.of, minlength=len(each.values)).tolist()
        hits = np.bincount(each.of[correct], minlength=len(each.values)).tolist()
        rows = zip(each.values, hits, counts, strict=True)
        found[each.column] = {value: _score(hit, count, level) for value, hit, count in rows if count}
    return found


def _score(hits: int, examples: int, level: float) -> dict[str, Any]:
    """JSON of an accuracy with its interval (Wilson)."""
    low, high = intervals.wilson(hits, examples, level)
    return {"examples": examples, "accuracy": hits / examples, "low": low, "high": high}
