"""Predictions of the scored model for each example of a split, as one NumPy archive."""

import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from perennial.base import files
from perennial.base.errors import DataError
from perennial.model.evaluation import slices
from perennial.model.evaluation.slices import Slices

PADDED_BYTES, CHARACTER_BYTES = 64 << 20, 4  # of the class names: NumPy pads each to the longest
BLOCK_BYTES = 1 << 24  # of probabilities that `read_top` holds in memory at once


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
            classes=_packed(self.classes),
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
        return Predictions(**_scored(found), probabilities=found["probabilities"])


def read_top(file: Path, *, every: bool = False) -> TopPredictions:
    """Read a file of predictions without holding all probabilities in memory.

    `every`: also those on examples that no decision reads.
    """
    with arrays(file) as found:
        scored = _scored(found)
        labels, shape = scored["labels"], (len(scored["labels"]), len(scored["classes"]))
        predicted = np.empty(len(labels), np.int64)
        p, p_true, row = np.empty(len(labels), np.float32), np.empty(len(labels), np.float32), 0
        for block in _blocks(file, shape):
            rows, part = slice(row, row := row + len(block)), np.arange(len(block))
            predicted[rows] = block.argmax(axis=1)
            p[rows], p_true[rows] = block[part, predicted[rows]], block[part, labels[rows]]
    found_all = TopPredictions(**scored, predicted=predicted, p=p, p_true=p_true)
    if every or found_all.audit is None:
        return found_all
    kept = _judged(found_all.audit, len(labels))
    return replace(
        found_all, labels=labels[kept], predicted=predicted[kept], p=p[kept], p_true=p_true[kept], rows=kept,
        every_label=labels, slices=tuple(each.at(kept) for each in found_all.slices),
    )  # fmt: skip


def _judged(audit: NDArray[np.bool_] | None, count: int) -> NDArray[np.int64]:
    return np.arange(count) if audit is None else np.flatnonzero(~audit)


def _scored(found: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `_Scored` in an archive."""
    return {
        "labels": found["labels"],
        "classes": _unpacked(found["classes"]),
        **{name: str(found[name]) for name in ("split", "data", "model", "split_digest")},
        "slices": slices.of_arrays(found),
        "audit": found.get("audit"),
    }


def _packed(names: Sequence[str]) -> NDArray[Any]:
    """Names as an array of texts, or as JSON in bytes where NumPy would pad them to a large array."""
    if len(names) * max(map(len, names), default=0) * CHARACTER_BYTES <= PADDED_BYTES:
        return np.array(names)
    return np.frombuffer(json.dumps(list(names), ensure_ascii=False).encode(), np.uint8)


def _unpacked(names: NDArray[Any]) -> tuple[str, ...]:
    """The names that `_packed` made an array of."""
    return tuple(json.loads(names.tobytes()) if names.dtype == np.uint8 else names.tolist())


def _blocks(file: Path, shape: tuple[int, int]) -> Iterator[NDArray[np.float32]]:
    """Yield the probabilities, some rows at a time."""
    with zipfile.ZipFile(file) as archive, archive.open("probabilities.npy") as stream:
        np.lib.format.read_magic(stream)
        found, fortran, kind = np.lib.format.read_array_header_1_0(stream)
        if found != shape or fortran or 0 in shape:
            raise ValueError(f"probabilities of shape {found}, expected {shape}")
        rows = max(1, BLOCK_BYTES // (shape[1] * kind.itemsize))
        for start in range(0, shape[0], rows):
            count = min(rows, shape[0] - start)
            yield np.frombuffer(stream.read(count * shape[1] * kind.itemsize), kind).reshape(count, shape[1])


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
