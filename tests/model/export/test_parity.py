"""Parity of exports with the predictions of the scored model."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from unittest.mock import Mock

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import softmax
from support import scoring
from support.predicted import predictions
from support.scoring import CLASSES, GREY, World

from perennial.base import files
from perennial.base.errors import DataError, PerennialError, QualityError
from perennial.base.parallel import child
from perennial.data.records import manifest
from perennial.model.evaluation.predictions import Predictions
from perennial.model.export import parity, saved_model
from perennial.model.export.export_formats import FORMATS
from perennial.model.export.parity import Backend, FormatComparison, FormatReport, Job
from perennial.model.export_layout import EXTRA

EXAMPLES = 30
PROGRAM = parity.__name__


class Scored(NamedTuple):
    """A model with its predictions, and an export of it."""

    world: World
    job: Job


def write_assets(
    assets: Path,
    world: World,
    records: Path,
    labels: tuple[str, ...] = CLASSES,
    card: tuple[str, ...] = CLASSES,
) -> None:
    card_content = {
        "classes": list(card),
        "weights_sha256": world.description.weights_sha256,
        "scored_on": manifest.digest(records),
    }
    files.write_bytes(assets / "labels.txt", manifest.labels_text(list(labels)).encode())
    files.write_json(assets / "model_card.json", card_content)


def write_export(folder: Path, world: World, records: Path) -> None:
    assets = folder.with_name("assets")
    write_assets(assets, world, records)
    folder.mkdir()
    saved_model.save(folder, world.model, world.description, tuple(sorted(assets.iterdir())))


def scored(folder: Path, world: World) -> Scored:
    scoring.write_records(folder / "records", world, {"test": EXAMPLES})
    pixels = world.description.pixels
    logits = world.model(pixels.evaluation(world.images[:EXAMPLES]), training=False).numpy()
    assert len(set(logits.argmax(axis=1).tolist())) > 1
    facts = {"data": manifest.digest(folder / "records"), "model": world.description.weights_sha256}
    found = predictions(world.labels[:EXAMPLES], softmax(logits, axis=1), CLASSES, **facts)
    found.write(folder / "predictions.npz")
    write_export(folder / "export", world, folder / "records")
    return Scored(world, job_of(folder, pixels.channels))


def job_of(folder: Path, channels: int) -> Job:
    """The comparison of the export in a folder."""
    return Job(
        export=folder / "export", records=folder / "records", predictions=folder / "predictions.npz",
        formats=(), devices="auto", channels=channels, batch_size=7,
    )  # fmt: skip


@pytest.fixture(scope="module")
def grey(tmp_path_factory: pytest.TempPathFactory) -> Scored:
    return scored(tmp_path_factory.mktemp("grey"), scoring.world(EXAMPLES))


def test_an_export_of_mnist_cnn_agrees(grey: Scored) -> None:
    found = parity.compare(grey.job)
    assert [each.format for each in found] == ["SavedModel", "SavedModel, classify_bytes"]
    for each in found:
        assert each.difference <= 1e-5
        assert (each.agreement, each.examples) == (1.0, EXAMPLES)
        assert each.bytes > 10_000
        assert each.milliseconds > 0


CAUGHT = r"SavedModel .*example \d+ .*[\d.e-]+ of \w+, expected [\d.e-]+"


def test_another_scaling_is_caught(grey: Scored, tmp_path: Path) -> None:
    pixels = GREY.model_copy(update={"preprocessing": "lenet"})
    description = grey.world.description.model_copy(update={"pixels": pixels})
    write_export(tmp_path / "export", replace(grey.world, description=description), grey.job.records)
    with pytest.raises(QualityError, match=CAUGHT):
        parity.compare(grey.job.model_copy(update={"export": tmp_path / "export"}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": (*CLASSES[1::-1], *CLASSES[2:])}, r"labels\.txt .*has other classes"),
        ({"card": CLASSES[::-1]}, r"model_card\.json .*\['nine', .* as classes, expected \['zero'"),
    ],
    ids=["labels", "card"],
)
def test_labels_in_another_order_are_caught(grey, tmp_path, changes, message) -> None:
    assets = shutil.copytree(grey.job.export, tmp_path / "export") / "assets"
    write_assets(assets, grey.world, grey.job.records, **changes)
    with pytest.raises(QualityError, match=message):
        parity.compare(grey.job.model_copy(update={"export": tmp_path / "export"}))


def test_missing_predictions_are_a_data_error(grey: Scored, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="dvc repro evaluate"):
        parity.compare(grey.job.model_copy(update={"predictions": tmp_path / "none.npz"}))


SCORED = predictions([0, 1, 1], [[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]])


def judged(
    probabilities: object, difference: float = 0.5, agreement: float = 1.0, scored: Predictions = SCORED
) -> FormatReport:
    """The report on a format with these probabilities."""
    answers = np.array(probabilities, np.float32)
    compared = FormatComparison(Backend("format", 1, lambda _: next(parts), difference, agreement), scored)
    parts = iter([(part.argmax(axis=1), part) for part in (answers[:1], answers[1:])])
    for count in (1, len(answers) - 1):
        compared.add([(b"", np.zeros((1, 1, 1), np.uint8))] * count)
    return compared.report(1.0)


def test_a_format_within_its_bounds_is_reported() -> None:
    found = judged([[0.75, 0.25], [0.5, 0.5], [0.5, 0.5]], difference=0.25, agreement=0.6)
    assert (found.difference, found.agreement, found.examples) == (0.25, pytest.approx(2 / 3), 3)


@pytest.mark.parametrize(
    ("probabilities", "difference", "message"),
    [
        ([[0.75, 0.25], [0.5, 0.5], [0.125, 0.75]], 0.1, r"example 2 .* of cat, expected 0\.25 .*; 1 of 3"),
        ([[0.75, 0.25], [0.5, 0.5], [np.nan, 0.75]], 0.1, r"example 2 .* of cat, expected 0\.25 .*; 1 of 3"),
        ([[0.75, 0.5], [0.25, 0.5], [0.25, 0.875]], 0.1, r"example 0 .* of dog, expected 0\.25 .*; 3 of 3"),
        ([[0.75, 0.25], [0.5, 0.5], [0.625, 0.375]], 0.5, r"1 of 3 test examples another class .* 100\.0%"),
        ([[0.25, 0.75], [0.5, 0.5], [0.25, 0.75]], 0.5, "1 of 3 test examples another class"),
        ([[0.75, 0.25], [0.5, 0.5]], 0.5, "2 test examples, expected 3"),
        ([[0.75, 0.25]] * 4, 0.5, r"^format predicts 4 test examples or more, with 2 .*, expected 3 with 2"),
        ([[0.5, 0.25, 0.25]] * 3, 0.5, "1 test examples or more, with 3 .*, expected 3 with 2"),
    ],
)  # fmt: skip
def test_what_a_format_gives_otherwise_is_named_with_the_example(probabilities, difference, message) -> None:
    with pytest.raises(QualityError, match=message):
        judged(probabilities, difference)


def test_tied_classes_count_as_equal() -> None:
    assert judged([[0.75, 0.25], [0.4999, 0.5001], [0.25, 0.75]]).agreement == 1.0


def test_classes_that_the_allowed_difference_may_swap_count_as_equal() -> None:
    scored = replace(SCORED, probabilities=np.array([[0.500001, 0.499999]] * 3, np.float32))
    assert judged([[0.4999985, 0.5000015]] * 3, difference=parity.DIFFERENCE, scored=scored).agreement == 1.0
    apart = replace(scored, probabilities=np.array([[0.50002, 0.49998]] * 3, np.float32))
    with pytest.raises(QualityError, match="another class"):
        judged([[0.4999985, 0.5000015]] * 3, scored=apart)


def test_probabilities_that_contradict_the_class_are_caught() -> None:
    probabilities = np.array([[0.75, 0.25], [0.5, 0.5], [1.0, 0.0]], np.float32)
    answers = (np.array([0, 0, 1]), probabilities)
    backend = Backend("tflite_int8", 1, lambda _: answers, 1.0, 0.97)
    compared = FormatComparison(backend, SCORED)
    compared.add(BLANK)
    with pytest.raises(QualityError, match="1 of 3 test examples another class"):
        compared.report(1.0)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (EXTRA / FORMATS["tflite_float32"].file, r"^tflite_float32 does not load: .*export\.formats"),
        ("saved_model.pb", r"^SavedModel does not load: (?!.*export\.formats)"),
    ],
    ids=["another format", "the SavedModel"],
)
def test_a_format_that_does_not_load_is_named(grey, tmp_path, file, message) -> None:
    export = shutil.copytree(grey.job.export, tmp_path / "export")
    files.write_bytes(export / file, b"none")
    with pytest.raises(QualityError, match=message):
        parity.compare(grey.job.model_copy(update={"export": export, "formats": ("tflite_float32",)}))


def apart(job: Job, log: Path, program: str = PROGRAM) -> tuple[FormatReport, ...]:
    with child.started(program, log) as compare:
        return parity.compare_apart(job, compare)


def test_what_the_process_finds_is_returned_and_a_difference_is_a_verdict() -> None:
    report = judged(SCORED.probabilities)
    job = job_of(Path("folder"), 1)
    call = Mock(return_value=[report.model_dump()])
    assert parity.compare_apart(job, call) == (report,)
    assert Job(**call.call_args.args[0]) == job
    call.side_effect = QualityError("onnx gives another class")
    with pytest.raises(QualityError, match=r"gives another class; the old export was kept.*repro -f evaluate"):
        parity.compare_apart(job, call)


@pytest.mark.usefixtures("forked")
def test_a_failed_comparison_is_not_a_verdict(grey: Scored, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"npz does not exist.*the old export was kept"):
        apart(grey.job.model_copy(update={"predictions": tmp_path / "none.npz"}), tmp_path / "log")


def test_batches_end_at_a_number_of_images_or_bytes() -> None:
    images = [(b"", np.zeros((side, 1, 1), np.uint8)) for side in (10, 10, 9, 30, 1, 1, 1, 1)]
    assert [len(batch) for batch in parity.batches(images, 3, max_bytes=20)] == [2, 2, 3, 1]


@pytest.mark.usefixtures("forked")
def test_a_process_that_dies_is_reported_with_its_log(grey: Scored, tmp_path: Path) -> None:
    with pytest.raises(
        PerennialError, match=r"perennial\.no_such_module ended with code 1.*export was kept"
    ) as caught:
        apart(grey.job, tmp_path / "log", program="perennial.no_such_module")
    assert type(caught.value) is PerennialError
    assert str(tmp_path / "log") in str(caught.value)
    assert "No module named" in (tmp_path / "log").read_text()


BLANK = [(b"", np.full((1, 1, 1), number, np.uint8)) for number in range(3)]
EVEN = replace(SCORED, labels=np.zeros(3, np.int64), probabilities=np.full((3, 2), 0.5, np.float32))


def failing(name: str, fails: Callable[[list[int]], bool], error: Exception) -> FormatComparison:
    """A format that raises for batches with such images, and predicts correctly otherwise."""

    def predict(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if fails(images.ravel().tolist()):
            raise error
        return np.zeros(len(images), np.int64), EVEN.probabilities[: len(images)]

    return FormatComparison(Backend(name, 1, predict, 0.5, 1.0), EVEN)


def test_an_error_of_a_format_names_the_format_and_the_examples() -> None:
    compared = failing("tflite_int8", lambda numbers: 2 in numbers, RuntimeError("node 13 (DIV)\nand more"))
    compared.add(BLANK[:1])
    named = r"^tflite_int8 fails at test examples 1 to 2: node 13 \(DIV\); .*export\.formats"
    with pytest.raises(QualityError, match=named):
        compared.add(BLANK[1:])


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (MemoryError(), MemoryError),
        (RuntimeError("6: Failed to allocate memory for requested buffer"), MemoryError),
        (OSError(28, "No space left on device"), OSError),
        (tf.errors.ResourceExhaustedError(None, None, "OOM"), tf.errors.ResourceExhaustedError),
    ],
    ids=["memory", "ONNX Runtime's memory", "disk", "device"],
)
def test_an_error_of_the_machine_is_not_a_verdict(raised: Exception, error: type[Exception]) -> None:
    with pytest.raises(error):
        failing("onnx", lambda numbers: 1 in numbers, raised).add(BLANK)


@pytest.mark.parametrize("encoded", [False, True])
def test_images_of_one_size_go_together_and_answers_come_in_their_order(encoded) -> None:
    asked: list[int] = []

    def predict(given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        asked.append(len(given))
        assert all(each.endswith(b"\0") if encoded else True for each in given)
        numbers = np.array([int(each[:1]) if encoded else each.flat[0] for each in given])
        return numbers, numbers[:, None] / 8

    images = [(b"%d\0" % n, np.full((1 + n % 2, 1, 1), n, np.uint8)) for n in range(5)]
    decided, probabilities = Backend("x", 1, predict, 0.5, 1.0, encoded).outputs(images)
    assert (decided.tolist(), probabilities[:, 0].tolist()) == ([*range(5)], [n / 8 for n in range(5)])
    assert asked == ([5] if encoded else [3, 2])


def test_the_time_is_the_median_of_single_images_after_a_warm_up(monkeypatch) -> None:
    asked: list[int] = []
    backend = Backend("x", 1, lambda images: asked.append(len(images)), 0.5, 1.0)
    monkeypatch.setattr(parity.time, "perf_counter", iter((0, 1, 10, 12, 20, 25)).__next__)
    assert (backend.milliseconds(BLANK), asked) == (2000, [1] * 4)


def test_a_format_that_fails_at_a_single_image_is_named() -> None:
    backend = Backend("onnx", 1, lambda images: {2: ()}[len(images)], 0.5, 1.0)
    with pytest.raises(QualityError, match=r"^onnx .*alone: 1; .*export\.formats"):
        backend.milliseconds(BLANK)


@pytest.mark.parametrize(("name", "optional"), [("onnx", True), ("SavedModel", False)])
def test_only_an_optional_format_can_be_left_out(name: str, optional: bool) -> None:
    with pytest.raises(QualityError, match=rf"^{name} .* 0 test examples, expected 3") as caught:
        failing(name, lambda _: False, ValueError()).report(1.0)
    assert str(caught.value).endswith("can be left out of export.formats" if optional else "expected 3")
