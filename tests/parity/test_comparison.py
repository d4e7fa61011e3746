"""Exports against what the scored model said of each test example: which agree, and which must not pass.

mobilenet_v2, and a process of its own for each model, only with FAULTS=all: a test of the stage has one too.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import softmax
from support import scoring
from support.scoring import CLASSES, CROPPED, GREY, World

from perennial import files
from perennial.config.optimization import AveragesConfig
from perennial.errors import DataError, PerennialError, QualityError
from perennial.evaluation.predictions import Predictions
from perennial.formats import EXTRA, FORMATS
from perennial.models import servable
from perennial.parity import asking, comparison, new_process
from perennial.parity.asking import Asked
from perennial.parity.comparison import Job
from perennial.preprocessing import ImageSpec
from perennial.records import manifest
from perennial.training.train_step import Averages

EXAMPLES = 30
THOROUGH = os.environ.get("FAULTS") == "all"
RESIZED = ImageSpec(
    preprocessing="inception", height=40, width=40, channels=3, image_size=32, grayscale=False, fast=True
)


@dataclass(frozen=True)
class Scored:
    """A model whose answers were written down, and an export of it."""

    world: World
    job: Job

    def exported(
        self, folder: Path, *, pixels: ImageSpec | None = None, classes: tuple[str, ...] = CLASSES
    ) -> Job:
        """The job with another export: of the model as it is now, with this preprocessing and these labels."""
        description = self.world.description.model_copy(
            update={"pixels": pixels or self.world.description.pixels}
        )
        write_export(folder / "export", replace(self.world, description=description), self.job.records, classes)
        return self.job.model_copy(update={"export": folder / "export"})


def write_export(
    folder: Path,
    world: World,
    records: Path,
    labels: tuple[str, ...] = CLASSES,
    card: tuple[str, ...] = CLASSES,
) -> None:
    told = {
        "classes": list(card),
        "weights_sha256": world.description.weights_sha256,
        "scored_on": manifest.digest(records),
    }
    assets = folder.with_name("assets")
    files.write_bytes(assets / "labels.txt", manifest.labels_text(list(labels)).encode())
    files.write_json(assets / "model_card.json", told)
    folder.mkdir()
    servable.save(folder, world.model, world.description, tuple(sorted(assets.iterdir())))


def scored(folder: Path, world: World) -> Scored:
    scoring.write_records(folder / "records", world, {"test": EXAMPLES})
    pixels = world.description.pixels
    logits = world.model(pixels.evaluation(world.images[:EXAMPLES]), training=False).numpy()
    assert len(set(logits.argmax(axis=1).tolist())) > 1
    Predictions(
        labels=world.labels[:EXAMPLES],
        probabilities=softmax(logits, axis=1),
        classes=CLASSES,
        split="test",
        data=manifest.digest(folder / "records"),
        model=world.description.weights_sha256,
    ).write(folder / "predictions.npz")
    write_export(folder / "export", world, folder / "records")
    job = Job(
        export=folder / "export",
        records=folder / "records",
        predictions=folder / "predictions.npz",
        formats=(),
        devices="auto",
        channels=pixels.channels,
        batch_size=7,
    )
    return Scored(world, job)


def spread(world: World) -> World:
    """The model with answers of very different sureness, which deep untrained ones do not give."""
    kernel = world.model.weights[-2]
    kernel.assign(kernel.numpy() * 2 / world.logits.std())
    return world


@pytest.fixture(scope="module")
def grey(tmp_path_factory: pytest.TempPathFactory) -> Scored:
    """mnist_cnn."""
    return scored(tmp_path_factory.mktemp("grey"), scoring.world(EXAMPLES))


@pytest.fixture(scope="module")
def averaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Scored, Averages]]:
    """cifar10_tutorial on the middle of images, after some updates: scored and exported with averages."""
    world = scoring.world(EXAMPLES, "cifar10_tutorial", CROPPED)
    averages = Averages(world.model, AveragesConfig(decay=0.5, dynamic=False))
    ready, weights = CROPPED.evaluation(world.images), world.model.trainable_variables
    for step in range(3):
        with tf.GradientTape() as tape:
            logits = world.model(ready, training=False)
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(world.labels, logits)
        for weight, gradient in zip(
            weights, tape.gradient(loss, [each.value for each in weights]), strict=True
        ):
            weight.assign_sub(0.001 * gradient)
        averages.update(tf.constant(step))
    with averages.swapped():
        yield scored(tmp_path_factory.mktemp("averaged"), world), averages


def require_all_agree(job: Job) -> None:
    found = new_process.compare(job, job.export.with_name("log")) if THOROUGH else comparison.compare(job)
    assert [each.form for each in found] == ["SavedModel", "SavedModel, classify_bytes"]
    for each in found:
        assert each.difference <= 1e-5
        assert (each.agreement, each.examples) == (1.0, EXAMPLES)
        assert each.bytes > 10_000
        assert each.milliseconds > 0


def test_an_export_of_mnist_cnn_agrees(grey: Scored) -> None:
    require_all_agree(grey.job)


def test_an_export_of_cifar10_tutorial_with_averages_and_crop_agrees(averaged: tuple[Scored, Averages]) -> None:
    require_all_agree(averaged[0].job)


@pytest.mark.skipif(not THOROUGH, reason="only with FAULTS=all")
def test_an_export_of_mobilenet_v2_agrees(tmp_path: Path) -> None:
    require_all_agree(scored(tmp_path, spread(scoring.world(EXAMPLES, "mobilenet_v2", RESIZED))).job)


CAUGHT = r"SavedModel gives test example \d+ the probability [\d.e-]+ of \w+, expected [\d.e-]+ as from the"


def test_averages_that_were_left_out_are_caught(averaged: tuple[Scored, Averages], tmp_path: Path) -> None:
    whole, averages = averaged
    averages.restore()
    job = whole.exported(tmp_path)
    averages._assign(averages.variables)
    with pytest.raises(QualityError, match=CAUGHT):
        comparison.compare(job)


def test_another_scaling_is_caught(grey: Scored, tmp_path: Path) -> None:
    job = grey.exported(tmp_path, pixels=GREY.model_copy(update={"preprocessing": "lenet"}))
    with pytest.raises(QualityError, match=CAUGHT):
        comparison.compare(job)


def test_a_crop_in_another_place_is_caught(averaged: tuple[Scored, Averages], tmp_path: Path) -> None:
    job = averaged[0].exported(tmp_path, pixels=CROPPED.model_copy(update={"preprocessing": "standard"}))
    with pytest.raises(QualityError, match=CAUGHT):
        comparison.compare(job)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        (
            {"labels": (*CLASSES[1::-1], *CLASSES[2:])},
            "labels.txt of the export has 0:one in line 1, expected 0:zero",
        ),
        ({"labels": CLASSES[:9]}, "labels.txt of the export has nothing in line 10, expected 9:nine"),
        (
            {"card": CLASSES[::-1]},
            r"model_card.json of the export has \['nine', .* as classes, expected \['zero'",
        ),
    ],
    ids=["labels", "too few labels", "card"],
)
def test_labels_in_another_order_are_caught(
    grey: Scored, tmp_path: Path, told: dict[str, tuple[str, ...]], message: str
) -> None:
    write_export(tmp_path / "export", grey.world, grey.job.records, **told)
    with pytest.raises(QualityError, match=message):
        comparison.compare(grey.job.model_copy(update={"export": tmp_path / "export"}))


def test_predictions_that_are_none_are_no_measure(grey: Scored, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist; `dvc repro evaluate` makes it"):
        comparison.compare(grey.job.model_copy(update={"predictions": tmp_path / "none.npz"}))


SAID = Predictions(
    labels=np.array([0, 1, 1]),
    probabilities=np.array([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]], np.float32),
    classes=("cat", "dog"),
    split="test",
    data="d",
    model="m",
)


def judged(probabilities: object, difference: float = 0.5, agreement: float = 1.0) -> comparison.Found:
    """What is found where the export answers this."""
    answers = np.array(probabilities, np.float32)
    way = Asked(
        form="form", bytes=1, answer=lambda _: (answers.argmax(axis=1), answers), difference=difference,
        agreement=agreement,
    )  # fmt: skip
    compared = comparison.Comparison(way, SAID)
    compared.add([(b"", np.zeros((1, 1, 1), np.uint8))] * len(answers))
    return compared.found(1.0)


def test_a_form_within_its_bounds_is_told_of() -> None:
    found = judged([[0.75, 0.25], [0.5, 0.5], [0.5, 0.5]], agreement=0.6)
    assert (found.difference, found.agreement, found.examples) == (0.25, pytest.approx(2 / 3), 3)


@pytest.mark.parametrize("wrong", [0.125, np.nan])
def test_the_example_with_the_largest_difference_is_named(wrong: float) -> None:
    with pytest.raises(
        QualityError, match=r"example 2 the probability .* of cat, expected 0.25 .*; 1 of 3 examples"
    ):
        judged([[0.75, 0.25], [0.5, 0.5], [wrong, 0.75]], difference=0.1)


def test_the_first_example_with_another_class_is_named() -> None:
    with pytest.raises(
        QualityError, match=r"1 of 3 .*, first example 2: cat, expected dog; at least 100.0% must"
    ):
        judged([[0.75, 0.25], [0.5, 0.5], [0.625, 0.375]])


def test_classes_that_tie_have_no_order() -> None:
    assert judged([[0.75, 0.25], [0.4999, 0.5001], [0.25, 0.75]]).agreement == 1.0


def test_an_answer_too_few_is_caught() -> None:
    with pytest.raises(QualityError, match="answers 2 test examples, expected 3"):
        judged([[0.75, 0.25], [0.5, 0.5]])


@pytest.mark.parametrize("answers", [[[0.75, 0.25]] * 4, [[0.5, 0.25, 0.25]] * 3])
def test_an_answer_or_a_class_too_many_is_caught(answers: list[list[float]]) -> None:
    with pytest.raises(QualityError, match=r"with \d probabilities each, expected 3 with 2"):
        judged(answers)


def test_a_form_that_does_not_load_is_named(grey: Scored, tmp_path: Path) -> None:
    job = grey.exported(tmp_path).model_copy(update={"formats": ("tflite_float32",)})
    files.write_bytes(job.export / EXTRA / FORMATS["tflite_float32"].file, b"none")
    with pytest.raises(
        QualityError, match=r"^tflite_float32 does not load: .*; tflite_float32 can be left out"
    ):
        comparison.compare(job)


def test_what_keeps_from_comparing_is_no_verdict(grey: Scored, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"could not be compared .* does not exist; .*; the old export was kept"
    ):
        new_process.compare(
            grey.job.model_copy(update={"predictions": tmp_path / "none.npz"}), tmp_path / "log"
        )


def test_many_images_are_asked_about_in_parts_that_memory_bears(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "BATCH_BYTES", 20)
    images = [(b"", np.zeros((side, 1, 1), np.uint8)) for side in (9, 9, 9, 30, 1, 1, 1, 1)]
    assert [len(batch) for batch in asking.batches(images, 3)] == [3, 1, 3, 1]


def test_a_process_that_ends_before_it_has_an_answer_is_told_of(
    grey: Scored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_process, "PROGRAM", "perennial.no_such_module")
    with pytest.raises(
        PerennialError, match=f"ended with code 1, .* is in {tmp_path / 'log'}; the old export was"
    ):
        new_process.compare(grey.job, tmp_path / "log")
    assert "No module named" in (tmp_path / "log").read_text()
