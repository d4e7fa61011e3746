"""A training that keeps to the answers of a version: whose answers they are, and what becomes of them."""

import contextlib
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import log_softmax
from support import tagged, training
from support.training import PLAIN, TEACHER, Outcome, run, teach

from perennial.base.errors import ConfigError, DataError
from perennial.base.project.pins import PinnedTeacher, WeightsPin
from perennial.data.records import manifest, pipeline
from perennial.model.models import model_folder
from perennial.model.training import losses, teacher
from perennial.model.training.teacher import CERTAIN

TAUGHT = {"train.teacher": "champion", "train.teacher_focus": 1.0}
LEARNS = {"train.optimizer": "adam", "train.learning_rate": 0.003}


@pytest.fixture(scope="module")
def school(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of the digits, and a teacher that learned them for 60 steps."""
    folder = shutil.copytree(digits, tmp_path_factory.mktemp("school"), dirs_exist_ok=True)
    with contextlib.chdir(folder):
        taught = run({**LEARNS, "train.max_steps": 60})
        teach(taught.config.paths.model)
        shutil.move(taught.config.paths.model, "first")
        shutil.rmtree(".work")
    return folder


@pytest.fixture
def pupil(school: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of them, which the test works in."""
    shutil.copytree(school, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answers(outcome: Outcome) -> np.ndarray:
    return np.load(outcome.folder / teacher.FILE)


def said(outcome: Outcome) -> tf.Tensor:
    """The probabilities that the teacher's export gives the training images."""
    records = outcome.config.paths.records
    data, export = manifest.load(records), tf.saved_model.load(str(TEACHER))
    given = [pipeline.encoded(records, each, data.label_columns)[1] for each in data.splits["train"].shards]
    return export.signatures["classify_bytes"](image=tf.constant(np.concatenate(given)))["probabilities"]


def test_the_answers_are_those_of_the_export_to_undistorted_images(pupil: Path) -> None:
    outcome = run({**TAUGHT, "train.augmentation.erasing": 0.9})
    np.testing.assert_allclose(np.exp(answers(outcome)), said(outcome), atol=1e-6)
    assert outcome.record["teacher"] == "v0.0.1"
    found, records = answers(outcome), outcome.config.paths.records
    for damaged in (b"", b"no array"):
        (outcome.folder / teacher.FILE).write_bytes(damaged)
        again = teacher.answers(TEACHER, records, manifest.load(records), pipeline.LabelMap(0), outcome.folder)
        np.testing.assert_array_equal(again, found)


def test_a_pupil_answers_as_its_teacher_does(pupil: Path) -> None:
    """With all of the loss the distance, it learns the answers and not the labels."""
    network, description = model_folder.load(pupil / "first")
    network.get_layer("logits").bias.assign([9.0] + [0.0] * 9)  # a teacher that says 0 most often
    changed = description.model_copy(update={"weights_sha256": model_folder.weights_sha256(network)})
    model_folder.save(pupil / "biased", network, changed)
    teach(pupil / "biased")
    values = {**TAUGHT, **LEARNS, "train.teacher_weight": 1.0, "train.max_steps": 90}
    taught = run(values)
    free, _ = model_folder.load(taught.config.paths.model)
    records = taught.config.paths.records
    images = np.stack([
        tf.io.decode_png(each).numpy()
        for shard in manifest.load(records).splits["train"].shards
        for each in pipeline.encoded(records, shard)[1]
    ])  # fmt: skip
    chosen = np.argmax(free(description.pixels.evaluation(images)), axis=1)
    says = answers(taught).argmax(axis=1)
    assert 0.3 < (says == 0).mean() < 0.9  # 10 % of the digits are
    assert (chosen == says).mean() > 0.8


def outputs(folder: Path) -> dict[str, bytes]:
    """What a training made, but for logs."""
    files = [file for each in (".work/train/*/steps.csv", "m*/**/*") for file in folder.glob(each)]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files if file.is_file()}


def test_a_resumed_training_keeps_its_answers_and_its_end(
    pupil: Path, caplog: pytest.LogCaptureFixture
) -> None:
    values = {
        **TAUGHT, "train.max_steps": 6, "train.steps_between_evals": 2, "train.optimizer": "adam",
        "train.augmentation.mixup": 0.2, "checkpoints.interval_steps": 3,
    }  # fmt: skip
    run(values)
    unbroken = outputs(pupil)
    training.rewind(3)
    for made in ("models", "metrics"):
        shutil.rmtree(made)
    caplog.clear()
    with caplog.at_level("INFO"):
        run(values)
    assert "resumed from step 3" in caplog.text
    assert "the teacher answered" not in caplog.text  # the first start did
    assert outputs(pupil) == unbroken


def test_another_teacher_is_another_training_and_without_a_champion_there_is_none(pupil: Path) -> None:
    first = run(TAUGHT)
    teach(first.config.paths.model)
    assert run(TAUGHT).folder != first.folder
    shutil.rmtree(TEACHER)
    WeightsPin(teacher=PinnedTeacher(path="champion")).write()
    alone = run(TAUGHT)
    WeightsPin().write()
    assert run({"train.teacher_focus": 1.0}).folder == alone.folder  # the same training
    assert not (alone.folder / teacher.FILE).exists()


@pytest.mark.parametrize(
    ("prepare", "kind", "message"),
    [
        (lambda: WeightsPin().write(), ConfigError, 'train.teacher is "champion", but pins/weights.json pins'),
        (lambda: shutil.rmtree(TEACHER), DataError, r"is not the copy of v0\.0\.1 .* `perennial initialize`"),
        (lambda: teach(Path("first"), task="multilabel"), ConfigError, "is multilabel, but .* are multiclass"),
        (lambda: teach(Path("first"), classes=[*"abcdefghij"]), ConfigError, "of the classes, but a, b, c"),
    ],
    ids=["not pinned", "not copied", "another task", "other classes"],
)
def test_what_cannot_teach_is_refused(pupil: Path, prepare, kind, message) -> None:
    prepare()
    with pytest.raises(kind, match=message):
        run(TAUGHT)


def test_images_that_the_teacher_does_not_take_are_refused(pupil: Path) -> None:
    pixels = model_folder.load(pupil / "first")[1].pixels
    teach(Path("first"), pixels=pixels.model_copy(update={"height": 9, "width": 9, "image_size": 8}))
    refused = r"does not take .*train.* record 0 .*\[8,8,1\] .*set train\.teacher: null$"
    with pytest.raises(ConfigError, match=refused):
        run(TAUGHT)


def test_a_teacher_of_several_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tagged.write(tmp_path / "tagged", train=60, validation=20, test=20)
    training.prepare(tmp_path, tagged.VALUES)
    values = {**PLAIN, **tagged.VALUES, "train.max_steps": 3}
    taught = run(values)
    teach(taught.config.paths.model)
    shutil.rmtree("models")
    found = answers(run({**values, **TAUGHT}))
    np.testing.assert_allclose(tf.sigmoid(found), said(taught), atol=1e-6)


P = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]], np.float32)


def test_a_class_that_the_teacher_does_not_know_is_as_labelled() -> None:
    """The classes of the model are b, new, a; the teacher also knows one that is gone."""
    labels = np.array([1, 2])
    found = teacher.aligned(P, ["a", "gone", "b"], ["b", "new", "a"], labels)
    assert found[0].tolist() == [-CERTAIN, CERTAIN, -CERTAIN]  # its label is new
    assert found[1] == pytest.approx([np.log(0.8), -CERTAIN, np.log(0.1)])
    assert teacher.aligned(np.array([[1, 1e-20]], np.float32), "ab", "ab", labels[:1])[0, 1] < -46
    several = teacher.aligned(
        P, ["a", "gone", "b"], ["b", "new", "a"], np.array([[1, 1, 0], [0, 0, 1]], np.uint8)
    )
    odds = np.log(P / (1 - P))
    assert several == pytest.approx(
        np.array([[odds[0, 2], CERTAIN, odds[0, 0]], [odds[1, 2], -CERTAIN, odds[1, 0]]]), rel=1e-5
    )


def test_answers_that_are_certain_give_finite_losses() -> None:
    sure = tf.constant([[CERTAIN, -CERTAIN], [-CERTAIN, CERTAIN]])
    logits = tf.constant([[2.0, -1.0], [2.0, -1.0]])
    one = losses.distance(logits, sure, temperature=1.0, several=False).numpy()
    assert one == pytest.approx(-np.diag(log_softmax([[2.0, -1.0], [2.0, -1.0]], axis=1)), rel=1e-5)
    each = losses.distance(logits, sure, temperature=1.0, several=True).numpy()
    p = 1 / (1 + np.exp([-2.0, 1.0]))
    assert each == pytest.approx([-np.log([p[0], 1 - p[1]]).mean(), -np.log([1 - p[0], p[1]]).mean()], rel=1e-5)
