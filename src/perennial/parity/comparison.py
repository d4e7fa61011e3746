"""Whether an export answers as the model that was scored, asked by a process that has nothing but the export.

Run as a program it takes a job and prints a report, both as JSON.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from perennial import files
from perennial.errors import PerennialError, QualityError
from perennial.evaluation import predictions
from perennial.evaluation.predictions import Predictions
from perennial.parity import asking, verdicts
from perennial.parity.asking import Answers, Asked, Image
from perennial.records import manifest, pipeline
from perennial.runtime import devices, process

TIE = 1e-6  # probabilities that are nearer to each other are in no order
TIMED = 50  # examples that are asked for one by one, to time them
LABELS, CARD = Path("assets") / manifest.LABELS_FILE, Path("assets") / "model_card.json"


class Job(BaseModel):
    """What is to be compared with what."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    export: Path
    records: Path
    predictions: Path
    formats: tuple[str, ...]
    devices: str  # that the model was scored on
    channels: int  # of the images
    batch_size: int


class Found(BaseModel):
    """How near a form of the export is, and what it costs."""

    form: str
    bytes: int
    milliseconds: float  # an image, median
    difference: float  # the largest of a probability
    agreement: float  # share of the examples that get the scored model's class
    examples: int


class Report(BaseModel):
    """What a comparison found, what is wrong with the export, or why there is no comparison."""

    found: tuple[Found, ...] = ()
    wrong: str | None = None
    failed: tuple[int, str] | None = None  # exit code and message


def compare(job: Job) -> tuple[Found, ...]:
    """How near every form of an export is to what the scored model said of each example of the test split.

    Raises:
        QualityError: one is not near enough, or labels or card say something else; names the example.
    """
    said = predictions.read(job.predictions)
    _require_told(job.export, said)
    kind, numbers = devices.select(job.devices, key="evaluate.devices")
    devices.configure(kind, numbers[:1])
    devices.disable_tf32()
    ways = asking.ways(job.export, job.formats)
    comparisons = [Comparison(way, said) for way in ways]
    timed: list[Image] = []
    encoded = pipeline.encoded_images(job.records, manifest.load(job.records).splits["test"].shards)
    for images in asking.batches(pipeline.stored_images(encoded, job.channels), job.batch_size):
        timed = timed or images[:TIMED]
        for comparison in comparisons:
            comparison.add(images)
    return tuple(
        comparison.found(way.milliseconds(timed)) for way, comparison in zip(ways, comparisons, strict=True)
    )


def _require_told(export: Path, said: Predictions) -> None:
    """Refuses labels, or a card, of another model than the one that was scored."""
    labels = (export / LABELS).read_text(encoding="utf-8").splitlines()
    expected = manifest.labels_text(list(said.classes)).splitlines()
    if labels != expected:
        pairs = enumerate(zip(labels, expected, strict=False))
        place = next(
            (number for number, (one, other) in pairs if one != other), min(len(labels), len(expected))
        )
        one, other = (each[place] if place < len(each) else "nothing" for each in (labels, expected))
        raise QualityError(f"{LABELS} of the export has {one} in line {place + 1}, expected {other}")
    card = files.read_json(export / CARD)
    scored = {"classes": list(said.classes), "weights_sha256": said.model, "scored_on": said.data}
    for key, value in scored.items():
        if card[key] != value:
            raise QualityError(f"{CARD} of the export has {card[key]} as {key}, expected {value}")


class Comparison:
    """A form's answers beside the scored model's, image by image in the order of the split."""

    def __init__(self, way: Asked, said: Predictions) -> None:
        self._way, self._said = way, said
        self._seen, self._far, self._other = 0, 0, 0
        self._worst, self._told_worst, self._told_first_other = 0.0, "", ""

    def add(self, images: Sequence[Image]) -> None:
        """Asks about the next images.

        Raises:
            QualityError: there are more of them, or other classes, than the scored model has answered, or
                there is no answer to one.
        """
        classes, probabilities = self._answers(images, self._seen)
        expected = self._said.probabilities[self._seen : self._seen + len(images)]
        if probabilities.shape != expected.shape:
            raise verdicts.against(
                self._way.form,
                f"answers {self._seen + len(probabilities)} test examples or more, with "
                f"{probabilities.shape[1]} probabilities each, expected {len(self._said.labels)} with "
                f"{expected.shape[1]}",
            )
        self._measure(probabilities, expected)
        rows = np.arange(len(expected))
        same = expected.max(axis=1) - expected[rows, classes] <= TIE
        if not same.all() and not self._other:
            first = int(same.argmin())
            names = (self._said.classes[label] for label in (classes[first], expected[first].argmax()))
            self._told_first_other = "example {}: {}, expected {}".format(self._seen + first, *names)
        self._other += int((~same).sum())
        self._seen += len(images)

    def _answers(self, images: Sequence[Image], first: int) -> Answers:
        """The answers, or else the first example that has none; or all, where each has one alone."""
        last = first + len(images) - 1
        place = f"test example {first}" if first == last else f"test examples {first} to {last} at once"
        try:
            with verdicts.judging(self._way.form, f"fails at {place}"):
                return self._way.answers(images)
        except QualityError:
            if first < last:
                for number, image in enumerate(images, first):
                    self._answers([image], number)
            raise

    def _measure(self, probabilities: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
        differences = np.nan_to_num(np.abs(probabilities - expected), nan=np.inf)
        self._far += int((differences > self._way.difference).any(axis=1).sum())
        row, label = np.unravel_index(int(differences.argmax()), differences.shape)
        if differences[row, label] > self._worst:
            self._worst = float(differences[row, label])
            self._told_worst = (
                f"test example {self._seen + row} the probability {probabilities[row, label]:.9g} of "
                f"{self._said.classes[label]}, expected {expected[row, label]:.9g} as from the scored model"
            )

    def found(self, milliseconds: float) -> Found:
        """What is to be told of a form that is near enough.

        Raises:
            QualityError: it is not, or was not asked about every example.
        """
        way, examples = self._way, len(self._said.labels)
        if self._seen != examples:
            raise verdicts.against(way.form, f"answers {self._seen} test examples, expected {examples}")
        if self._far:
            raise verdicts.against(
                way.form,
                f"gives {self._told_worst}, at most {way.difference:g} apart; {self._far} of "
                f"{examples} examples are further",
            )
        agreement = 1 - self._other / examples
        if agreement < way.agreement:
            raise verdicts.against(
                way.form,
                f"gives {self._other} of {examples} test examples another class than the scored "
                f"model, first {self._told_first_other}; at least {way.agreement:.1%} must be the same",
            )
        return Found(
            form=way.form,
            bytes=way.bytes,
            milliseconds=milliseconds,
            difference=self._worst,
            agreement=agreement,
            examples=examples,
        )


def main(job: str, owner: str) -> None:
    """Prints the report on a job, for a process that this one does not outlive."""
    process.die_with(int(owner))
    try:
        report = Report(found=compare(Job.model_validate_json(job)))
    except QualityError as error:
        report = Report(wrong=str(error))
    except (PerennialError, OSError, tf.errors.OpError) as error:
        code = error.exit_code if isinstance(error, PerennialError) else PerennialError.exit_code
        report = Report(failed=(code, str(error)))
    sys.stdout.write(f"\n{report.model_dump_json()}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
