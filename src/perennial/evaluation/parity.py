"""Whether an export answers as the model that was scored, asked by a process that has nothing but the export.

Run as a program it takes a job and prints a report, both as JSON.
"""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
from pydantic import BaseModel, ConfigDict

from perennial import accelerators, files, process
from perennial.errors import PerennialError, QualityError
from perennial.evaluation import asking, predictions
from perennial.evaluation.asking import Asked
from perennial.evaluation.predictions import Predictions
from perennial.records import manifest, stored

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
    """What a comparison found, or what is wrong."""

    found: tuple[Found, ...] = ()
    wrong: str | None = None


def compare(job: Job) -> tuple[Found, ...]:
    """How near every form of an export is to what the scored model said of each example of the test split.

    Raises:
        QualityError: one is not near enough, or labels or card say something else; names the example.
    """
    said = predictions.read(job.predictions)
    _require_told(job.export, said)
    kind, numbers = accelerators.asked(job.devices, key="evaluate.devices")
    accelerators.set_up(kind, numbers[:1])
    ways = asking.ways(job.export, job.formats)
    encoded = stored.encoded_images(job.records, manifest.load(job.records).splits["test"].shards)
    for batch in encoded.batch(job.batch_size):
        images = asking.images(batch, job.channels)
        for way in ways:
            way.ask(images)
    timed = asking.images(encoded.take(TIMED), job.channels)
    return tuple(_judged(way, said, way.milliseconds(timed)) for way in ways)


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


def _judged(way: Asked, said: Predictions, milliseconds: float) -> Found:
    """What is to be told of a form that is near enough.

    Raises:
        QualityError: it is not.
    """
    (classes, probabilities), expected = way.said(), said.probabilities
    if probabilities.shape != expected.shape:
        raise QualityError(
            f"{way.form} answers {len(probabilities)} test examples with {probabilities.shape[1]} "
            f"probabilities each, expected {len(expected)} with {expected.shape[1]}"
        )
    differences = np.abs(probabilities - expected)
    worst, label = np.unravel_index(int(differences.argmax()), differences.shape)
    if not differences[worst, label] <= way.difference:  # nor is NaN
        far = int((~(differences <= way.difference)).any(axis=1).sum())
        raise QualityError(
            f"{way.form} gives test example {worst} the probability {probabilities[worst, label]:.9g} of "
            f"{said.classes[label]}, expected {expected[worst, label]:.9g} as from the scored model, at most "
            f"{way.difference:g} apart; {far} of {len(expected)} examples are further"
        )
    rows = np.arange(len(expected))
    same = expected.max(axis=1) - expected[rows, classes] <= TIE
    agreement = float(same.mean())
    if agreement < way.agreement:
        first = int(same.argmin())
        raise QualityError(
            f"{way.form} gives {int((~same).sum())} of {len(expected)} test examples another class than the "
            f"scored model, first example {first}: {said.classes[classes[first]]}, expected "
            f"{said.classes[int(expected[first].argmax())]}; at least {way.agreement:.1%} must be the same"
        )
    return Found(
        form=way.form,
        bytes=way.bytes,
        milliseconds=milliseconds,
        difference=float(differences.max()),
        agreement=agreement,
        examples=len(expected),
    )


def main(job: str, owner: str) -> None:
    """Prints the report on a job, for a process that this one does not outlive."""
    process.die_with(int(owner))
    try:
        report = Report(found=compare(Job.model_validate_json(job)))
    except (PerennialError, OSError, ValueError, LookupError, tf.errors.OpError) as error:
        report = Report(wrong=str(error))
    sys.stdout.write(f"\n{report.model_dump_json()}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
