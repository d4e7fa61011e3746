"""Compare every format of an export with the predictions of the evaluated model.

Classes must be the same, except where two are tied. Of several labels an image, those must be the same whose
probability is further from its threshold than two compilations of the same arithmetic may differ.

Run as a program, this module takes a job and prints a result, both as JSON.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from perennial.base import documents
from perennial.base.config.fields import is_component
from perennial.base.devices import devices
from perennial.base.errors import PerennialError, QualityError
from perennial.base.parallel import child
from perennial.data.records import manifest, pipeline
from perennial.model.evaluation import predictions
from perennial.model.evaluation.predictions import Predictions
from perennial.model.export import loading, saved_model
from perennial.model.export.export_formats import FORMATS, format_named
from perennial.model.export.saved_model import CLASSIFY, CLASSIFY_BYTES, Outputs, Predict
from perennial.model.export_layout import CARD, EXTRA, LABELS

BATCH_BYTES = 64 << 20  # decoded images per batch: photographs are large before they are resized
DIFFERENCE = 1e-5  # between probabilities of two compilations of the same arithmetic
TIE = 2 * DIFFERENCE  # closer classes count as tied: each may be that far off
TIMED = 50  # examples to time, one by one
NO_MEMORY = "Failed to allocate memory"  # ONNX Runtime has no error class for it
Image = tuple[bytes, NDArray[np.uint8]]  # as stored; decoded [height, width, channels]


class Job(BaseModel):
    """The files to compare, and how."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    export: Path
    records: Path
    predictions: Path
    formats: tuple[str, ...]
    devices: str  # that scored the model
    channels: int  # of the images
    batch_size: int


class FormatReport(BaseModel):
    """Differences, size and speed of one format."""

    format: str
    bytes: int
    milliseconds: float  # per image, median
    difference: float  # largest, of a probability
    # Fraction of the examples that get the scored model's class; of several labels, of those that either gives.
    agreement: float
    examples: int


def compare_apart(job: Job, call: child.Call) -> tuple[FormatReport, ...]:
    """Let a process of this program, which loads only the export, compare; `call` calls it."""
    try:
        found = call(job.model_dump(mode="json"))
    except QualityError as error:
        raise QualityError(
            f"the export differs from the scored model: {error}; the old export was kept; if code or packages "
            "have changed since, `dvc repro -f evaluate` scores the model again"
        ) from error
    except PerennialError as error:
        raise type(error)(
            f"the export could not be compared with the scored model: {error}; the old export was kept"
        ) from error
    return tuple(map(FormatReport.model_validate, found))


def compare(job: Job) -> tuple[FormatReport, ...]:
    """Compare every format of an export with the scored model's predictions for each test example."""
    scored = predictions.read(job.predictions)
    _check_metadata(job.export, scored)
    kind, indices = devices.select(job.devices, key="evaluate.devices")
    devices.configure(kind, indices[:1])
    devices.disable_tf32()
    comparisons = [FormatComparison(backend, scored) for backend in backends(job.export, job.formats)]
    timed: list[Image] = []
    data = manifest.load(job.records)
    encoded = pipeline.encoded_images(job.records, data.splits["test"].shards)
    with pipeline.naming_shards(job.records, data):
        for images in batches(pipeline.stored_images(encoded, job.channels), job.batch_size):
            timed += images[: TIMED - len(timed)]
            for comparison in comparisons:
                comparison.add(images)
    return tuple(each.report(each.backend.milliseconds(timed)) for each in comparisons)


def _check_metadata(export: Path, scored: Predictions) -> None:
    """Check that the labels and the model card belong to the evaluated model."""
    if (export / LABELS).read_text(encoding="utf-8") != manifest.labels_text(list(scored.classes)):
        raise QualityError(f"{LABELS} of the export has other classes than the scored model")
    card = documents.read_json(export / CARD)
    facts = {"classes": list(scored.classes), "weights_sha256": scored.model, "scored_on": scored.data}
    for key, value in facts.items():
        if card.get(key) != value:
            raise QualityError(f"{CARD} of the export has {card.get(key)} as {key}, expected {value}")


@contextmanager
def format_errors(name: str, action: str) -> Iterator[None]:
    """Convert errors of a format in the block to a QualityError; errors of the machine pass through."""
    try:
        yield
    except Exception as error:
        if loading.is_of_machine(error):
            raise
        if NO_MEMORY in str(error):
            raise MemoryError(NO_MEMORY) from error
        cause, *_ = [*str(error).strip().splitlines(), type(error).__name__]
        raise _verdict(name, f"{action}: {cause}") from error


def _verdict(name: str, problem: str) -> QualityError:
    remedy = f"; {name} can be left out of export.formats" if name in FORMATS or is_component(name) else ""
    return QualityError(f"{name} {problem}{remedy}")


@dataclass(frozen=True)
class Backend:
    """A loaded format of an export, and its allowed differences."""

    name: str
    bytes: int
    predict: Predict
    difference: float  # largest allowed, of a probability
    agreement: float  # smallest allowed, as in `FormatReport`
    encoded: bool = False  # takes images as stored

    def outputs(self, images: Sequence[Image]) -> Outputs:
        """Predictions for images, which are batched by size; raises the runtime's errors."""
        groups = defaultdict(list)
        for index, (_, pixels) in enumerate(images):
            groups[None if self.encoded else pixels.shape].append(index)
        parts = [self._batch([images[index] for index in group]) for group in groups.values()]
        order = np.argsort([*chain.from_iterable(groups.values())])
        decided, probabilities = (np.concatenate(each)[order] for each in zip(*parts, strict=True))
        return decided, probabilities

    def milliseconds(self, images: Sequence[Image]) -> float:
        """Median time of a batch of one image, after a warm-up."""
        seconds = []
        with format_errors(self.name, "fails at an image alone"):
            self._batch(images[:1])
            for image in images:
                started = time.perf_counter()
                self._batch([image])
                seconds.append(time.perf_counter() - started)
        return 1000 * statistics.median(seconds)

    def _batch(self, images: Sequence[Image]) -> Outputs:
        encoded, decoded = zip(*images, strict=True)
        return self.predict(np.array(encoded, object) if self.encoded else np.stack(decoded))


def backends(export: Path, formats: Sequence[str]) -> list[Backend]:
    """Load an export: both signatures of the SavedModel, then the other formats."""
    with format_errors("SavedModel", "does not load"):
        loaded = loading.load(export)
    own = (path for path in export.rglob("*") if EXTRA not in path.relative_to(export).parents)
    size = sum(path.stat().st_size for path in own if path.is_file())
    decoded, encoded = (saved_model.signature(loaded, name) for name in (CLASSIFY, CLASSIFY_BYTES))
    found = [
        Backend("SavedModel", size, decoded, DIFFERENCE, 1.0),
        Backend("SavedModel, classify_bytes", size, encoded, DIFFERENCE, 1.0, encoded=True),
    ]
    for name in formats:
        chosen = format_named(name)
        file, bounds = export / EXTRA / chosen.file, (chosen.difference, chosen.agreement)
        with format_errors(name, "does not load"):
            predict = chosen.load(file)
        found.append(Backend(name, file.stat().st_size, predict, *bounds))
    return found


def batches(images: Iterable[Image], size: int, max_bytes: int = BATCH_BYTES) -> Iterator[list[Image]]:
    """Group images into batches of at most `size` images and about `max_bytes` of pixels."""
    batch: list[Image] = []
    for image in images:
        batch.append(image)
        if len(batch) == size or sum(pixels.nbytes for _, pixels in batch) >= max_bytes:
            yield batch
            batch = []
    if batch:
        yield batch


class FormatComparison:
    """One format's predictions compared with the scored model's, in the order of the test split."""

    def __init__(self, backend: Backend, scored: Predictions) -> None:
        self.backend, self._scored = backend, scored
        self._seen, self._far, self._other, self._compared = 0, 0, 0, 0
        self._largest, self._largest_text = 0.0, ""

    def add(self, images: Sequence[Image]) -> None:
        """Predict the next images."""
        first, names = self._seen, self._scored.classes
        with format_errors(self.backend.name, f"fails at test examples {first} to {first + len(images) - 1}"):
            decided, probabilities = self.backend.outputs(images)
        self._seen += len(probabilities)
        expected = self._scored.probabilities[first : self._seen]
        if probabilities.shape != expected.shape:
            raise _verdict(
                self.backend.name,
                f"predicts {self._seen} test examples or more, with {probabilities.shape[1]} probabilities "
                f"each, expected {len(self._scored.labels)} with {expected.shape[1]}",
            )
        differences = np.nan_to_num(np.abs(probabilities - expected), nan=np.inf)
        self._far += int((differences > self.backend.difference).any(axis=1).sum())
        row, label = np.unravel_index(int(differences.argmax()), differences.shape)
        if differences[row, label] > self._largest:
            self._largest = float(differences[row, label])
            self._largest_text = (
                f"test example {first + row} the probability {probabilities[row, label]:.9g} of "
                f"{names[label]}, expected {expected[row, label]:.9g} as from the scored model"
            )
        # Also if the classes or labels of one example and its probabilities contradict each other.
        other = self._differ(decided, expected) | self._differ(decided, probabilities)
        self._other += int(other.sum())
        if (thresholds := self._scored.thresholds) is None:
            self._compared += len(other)
        else:
            self._compared += int((other | (decided > 0) | (expected >= thresholds)).sum())

    def _differ(self, decided: NDArray[np.int64], probabilities: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Where classes [N] or labels [N, classes] are not those of probabilities, ties apart."""
        if (thresholds := self._scored.thresholds) is None:
            own = probabilities[np.arange(len(decided)), decided]
            return np.asarray(probabilities.max(axis=1) - own > TIE)
        above = probabilities - thresholds
        return np.asarray(((decided > 0) != (above >= 0)) & (np.abs(above) > DIFFERENCE))

    def report(self, milliseconds: float) -> FormatReport:
        """Report on a format that is within its limits."""
        backend, examples = self.backend, len(self._scored.labels)
        several = self._scored.multilabel
        agreement, problem = 1 - self._other / max(self._compared, 1), ""
        if self._seen != examples:
            problem = f"predicts {self._seen} test examples, expected {examples}"
        elif self._far:
            problem = (
                f"gives {self._largest_text}, at most {backend.difference:g} apart; {self._far} of "
                f"{examples} examples are further"
            )
        elif agreement < backend.agreement:
            problem = (
                f"gives {self._other} of {self._compared} "
                f"{'labels' if several else 'test examples'} another {'value' if several else 'class'} than "
                f"the scored model; at least {backend.agreement:.1%} must be the same"
            )
        if problem:
            raise _verdict(backend.name, problem)
        return FormatReport(
            format=backend.name,
            bytes=backend.bytes,
            milliseconds=milliseconds,
            difference=self._largest,
            agreement=agreement,
            examples=examples,
        )


def main(job: dict[str, Any]) -> list[dict[str, Any]]:
    """`compare` as a program."""
    try:
        return [report.model_dump() for report in compare(Job.model_validate(job))]
    except tf.errors.OpError as error:
        raise PerennialError(str(error)) from error
