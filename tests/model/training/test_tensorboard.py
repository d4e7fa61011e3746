"""Histograms, pictures and profiles: what they show, and that no step changes by them."""

import dataclasses
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import training
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

from perennial.base import documents
from perennial.base.config.training import TrainConfig
from perennial.data.preprocessing import ImageSpec
from perennial.model.models import MODELS
from perennial.model.training import tensorboard
from perennial.model.training.input import Batch
from perennial.model.training.losses import Objective
from perennial.model.training.tensorboard import EXAMPLES, EventWriter, Profile, Summaries
from perennial.model.training.train_step import Trainer
from perennial.model.training.triggers import Length, Triggers

LOOKS = {
    "model.dropout": 0.4, "train.max_steps": 6, "checkpoints.interval_steps": 2, "logging.every_steps": 2,
    "logging.histograms_every_steps": 2, "logging.images_every_steps": 3,
}  # fmt: skip
PIXELS = ImageSpec(
    preprocessing="standard", height=8, width=8, channels=1, image_size=8, grayscale=False, fast=True
)
LENGTH = Length(steps=50, steps_per_epoch=5, limit="steps")
CONFIG = TrainConfig(batch_size=6, optimizer="momentum")
CLASS_WEIGHTS = [1.0, 2.0, 3.0]
# Much is zero behind a rectifier, and normalization has statistics that a call in training changes.
NET = dataclasses.replace(MODELS["lenet"], weight_decay=0.01, decayed=("*/kernel",), head=("logits",))


def shown(folder: Path) -> EventAccumulator:
    """What TensorBoard makes of a folder."""
    return EventAccumulator(str(folder), size_guidance={"tensors": 0, "scalars": 0}).Reload()


def steps(found: EventAccumulator, name: str) -> list[int]:
    kind = found.Scalars if name in found.Tags()["scalars"] else found.Tensors
    return [event.step for event in kind(name)]


def buckets(found: EventAccumulator, name: str) -> np.ndarray:
    """Rows of lower edge, upper edge and count, of the first histogram of that name."""
    return tf.make_ndarray(found.Tensors(name)[0].tensor_proto)


def logs() -> Path:
    """Of the training in the folder that the test works in."""
    (folder,) = Path("runs/tensorboard").iterdir()
    return folder


def weights() -> str:
    return documents.read_json(Path("metrics/training.json"))["weights_sha256"]


def write_losses(folder: Path, values: dict[int, float], purge_step: int = 0) -> None:
    writer = EventWriter(folder, purge_step=purge_step)
    for step, value in values.items():
        writer.add_scalars(step, "train", {"loss": value})


def losses(folder: Path) -> dict[int, float]:
    return {event.step: event.value for event in shown(folder).Scalars("train/loss")}


class TestAnEventFile:
    def test_drops_the_steps_that_a_resumed_training_repeats(self, tmp_path: Path) -> None:
        write_losses(tmp_path, dict.fromkeys(range(1, 31), 1.0))
        for first, last in ((20, 25), (25, 28)):  # two resumes, from steps 19 and 24
            write_losses(tmp_path, dict.fromkeys(range(first, last + 1), float(first)), purge_step=first)
        assert [event.step for event in shown(tmp_path).Scalars("train/loss")] == list(range(1, 29))
        assert list(losses(tmp_path).values()) == [1] * 19 + [20] * 5 + [25] * 4

    def test_shows_what_a_kill_left(self, tmp_path: Path) -> None:
        write_losses(tmp_path, {1: 1.0, 2: 1.0, 3: 1.0})
        (file,) = tmp_path.iterdir()
        file.write_bytes(file.read_bytes()[:-5])
        write_losses(tmp_path, {3: 2.0}, purge_step=3)
        assert losses(tmp_path) == {1: 1, 2: 1, 3: 2}

    def test_of_a_training_from_step_0_replaces_older_ones(self, tmp_path: Path) -> None:
        for value in (1.0, 2.0):
            write_losses(tmp_path, {1: value})
        assert (len(list(tmp_path.iterdir())), losses(tmp_path)) == (1, {1: 2.0})

    @pytest.mark.parametrize(
        ("values", "low", "high", "counts"),
        [
            (np.arange(-1, 60), -1, 59, [2] * 29 + [3]),
            ([np.nan, 1, np.inf, 2, -np.inf], 1, 2, [1] + [0] * 28 + [1]),  # only what is finite
        ],
    )
    def test_has_histograms_of_the_values_between_the_least_and_the_largest(
        self, tmp_path: Path, values, low: float, high: float, counts: list[int]
    ) -> None:
        EventWriter(tmp_path, purge_step=0).add(7, [tensorboard.histogram("a", np.array(values, np.float32))])
        table = buckets(shown(tmp_path), "a")
        assert (table[0, 0], table[-1, 1], table[:, 2].tolist()) == (low, high, counts)

    @pytest.mark.parametrize("value", [0.0, 1.0, -3e38, 1e-45])
    def test_has_histograms_of_one_value(self, tmp_path: Path, value: float) -> None:
        found = tensorboard.histogram("a", np.full(9, value, np.float32))
        EventWriter(tmp_path, purge_step=0).add(7, [found])
        ((lower, upper, count),) = [row for row in buckets(shown(tmp_path), "a") if row[2]]
        assert lower <= np.float32(value) <= upper
        assert count == 9

    def test_has_pictures(self, tmp_path: Path) -> None:
        images = np.random.default_rng(0).random((3, 5, 4, 3), np.float32)
        EventWriter(tmp_path, purge_step=0).add(7, [tensorboard.pictures("a", tf.constant(images))])
        width, height, *encoded = tf.make_ndarray(shown(tmp_path).Tensors("a")[0].tensor_proto)
        assert (width, height) == (b"4", b"5")
        decoded = np.stack([tf.io.decode_png(each) for each in encoded])
        np.testing.assert_allclose(decoded / 255, images, atol=1 / 255)


def build() -> keras.Model:
    """A small net whose activations are easy to compute again."""
    keras.utils.set_random_seed(1)
    x = image = keras.Input((8, 8, 1), name="image")
    x = keras.layers.Conv2D(4, 3, activation="relu", name="conv")(x)
    x = keras.layers.BatchNormalization(name="norm")(x)
    x = keras.layers.Flatten(name="flat")(x)
    return keras.Model(image, keras.layers.Dense(3, name="logits")(x), name="small")


@pytest.fixture(scope="module")
def trainer() -> Trainer:
    return Trainer(
        NET, build, PIXELS, CONFIG, tf.distribute.OneDeviceStrategy("CPU"),
        length=LENGTH, examples=30, class_weights=CLASS_WEIGHTS,
    )  # fmt: skip


def batch_after(step: int) -> Batch:
    """Six random images, of the step."""
    random = np.random.default_rng(step)
    return Batch(
        tf.constant(random.integers(0, 256, (6, 8, 8, 1), np.uint8)),
        tf.constant([0, 1, 2, 0, 1, 2], tf.int64),
        tf.constant(random.integers(0, 99, (6, 2), np.int32)),
        tf.range(6),
    )


def summaries(folder: Path, **intervals: int) -> Summaries:
    def copied() -> tuple[keras.Model, Objective]:
        model = build()
        for weight in model.weights:  # as if another seed had made it
            weight.assign(weight + 1)
        return model, Objective(model, NET, CONFIG, CLASS_WEIGHTS)

    when = Triggers(length=LENGTH, eval_steps=10, **intervals)
    made = Summaries(when, CONFIG, PIXELS, batch_after, copied, folder)
    made.resume(0)
    return made


EVERY = {"histogram_steps": 10, "image_steps": 20}


@pytest.fixture(scope="module")
def look(trainer: Trainer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a look after 20 steps, which left the model as it was."""
    folder, before = tmp_path_factory.mktemp("look"), [weight.numpy() for weight in trainer.model.weights]
    summaries(folder, **EVERY).write(20, trainer)
    for weight, expected in zip(trainer.model.weights, before, strict=True):
        np.testing.assert_array_equal(weight.numpy(), expected)
    return folder


class TestALook:
    def test_shows_every_weight(self, look: Path, trainer: Trainer) -> None:
        found = shown(look / "layers")
        for weight in trainer.model.weights:
            table = buckets(found, f"weights/{weight.path}")
            assert table[:, 2].sum() == weight.numpy().size
            assert table[0, 0] <= weight.numpy().min() <= weight.numpy().max() <= table[-1, 1]

    def test_shows_the_gradients_of_the_objective(self, look: Path, trainer: Trainer) -> None:
        found, batch = shown(look / "layers"), batch_after(0)
        model = keras.models.clone_model(trainer.model)  # a call in training changes statistics
        model.set_weights(trainer.model.get_weights())
        weights = model.trainable_variables
        with tf.GradientTape() as tape:
            logits = model(PIXELS.training(batch.images, batch.keys), training=True)
            chosen = tf.gather(tf.nn.log_softmax(logits), batch.labels, batch_dims=1)
            kernels = [weight for weight in weights if weight.path.endswith("kernel")]
            penalty = 0.01 / 2 * tf.add_n([tf.reduce_sum(kernel**2) for kernel in kernels])
            objective = tf.reduce_mean(-chosen * (CLASS_WEIGHTS * 2)) + penalty
        for weight, gradient in zip(weights, tape.gradient(objective, weights), strict=True):
            if weight.path != "conv/bias":  # normalization takes it away: its gradient is 0 but for rounding
                table, values = buckets(found, f"gradients/{weight.path}"), gradient.numpy()
                expected = [values.min(), values.max(), values.size]
                seen = [table[0, 0], table[-1, 1], table[:, 2].sum()]
                np.testing.assert_allclose(seen, expected, rtol=1e-4)

    def test_shows_the_activations_of_every_layer_and_how_many_are_zero(self, look, trainer) -> None:
        found, batch = shown(look / "layers"), batch_after(0)
        rectified = trainer.model.get_layer("conv")(PIXELS.training(batch.images, batch.keys)).numpy()
        (sparsity,) = found.Scalars("sparsity/conv")
        assert sparsity.value == pytest.approx(np.mean(rectified == 0))
        assert 0 < sparsity.value < 1
        table = buckets(found, "activations/conv")
        np.testing.assert_allclose(table[-1, 1], rectified.max(), rtol=1e-5)
        assert table[:, 2].sum() == rectified.size
        names = {name.partition("/")[2] for name in found.Tags()["tensors"] if name.startswith("activations/")}
        assert names == {"conv", "norm", "flat", "logits"}

    def test_shows_what_the_next_step_is_given(self, look: Path) -> None:
        (event,) = shown(look / "images").Tensors("model_input")
        _, _, *encoded = tf.make_ndarray(event.tensor_proto)
        batch = batch_after(20)
        for picture, image in zip(encoded, PIXELS.training(batch.images, batch.keys).numpy(), strict=True):
            expected = (image - image.min()) / (image.max() - image.min()) * 255
            np.testing.assert_allclose(tf.io.decode_png(picture), expected, atol=1)

    def test_shows_only_the_gradients_of_weights_that_are_trained(self, trainer, tmp_path, monkeypatch) -> None:
        (phase,) = trainer.phases
        monkeypatch.setattr(trainer, "phases", [dataclasses.replace(phase, trainable=("logits",))])
        summaries(tmp_path, **EVERY).write(0, trainer)
        names = [name for name in shown(tmp_path / "layers").Tags()["tensors"] if "gradients" in name]
        assert names == ["gradients/logits/kernel", "gradients/logits/bias"]


class TestWhenALookIsDue:
    def test_it_is_once_and_again_from_the_step_of_a_resumed_training_on(self, trainer, tmp_path) -> None:
        made = summaries(tmp_path, **EVERY)
        assert [step for step in range(41) if made.due(step)] == [0, 10, 20, 30, 40]
        for step in (0, 10, 20):
            made.write(step, trainer)
            assert not made.due(step)
        made.resume(10)
        assert steps(shown(tmp_path / "layers"), "weights/conv/kernel") == [0]
        made.write(10, trainer)
        assert steps(shown(tmp_path / "layers"), "weights/conv/kernel") == [0, 10]
        assert steps(shown(tmp_path / "images"), "model_input") == [0]


class TestAProfile:
    def found(self, folder: Path) -> list[Path]:
        return list(folder.rglob("*.xplane.pb"))

    def profiled(self, file: Path) -> list[int]:
        """The numbers of the steps in a profile."""
        planes = XSpace.FromString(file.read_bytes()).planes
        (host,) = (plane for plane in planes if plane.name == "/host:CPU")
        (name,) = (number for number, known in host.event_metadata.items() if known.name == "step")
        events = [event for line in host.lines for event in line.events if event.metadata_id == name]
        stats = [stat for event in events for stat in event.stats]
        return [stat.int64_value for stat in stats if host.stat_metadata[stat.metadata_id].name == "step_num"]

    def run(self, profile: Profile, first: int, last: int) -> None:
        for step in range(first - 1, last):
            with profile.recording(step):
                tf.matmul(tf.ones([9, 9]), tf.ones([9, 9]))

    def test_is_of_the_steps_that_were_asked_for_and_made_again_by_a_training_that_resumes_before_its_end(
        self, tmp_path: Path
    ) -> None:
        profile = Profile(range(2, 4), tmp_path / "logs")
        self.run(profile, 1, 3)
        assert not self.found(tmp_path)
        self.run(profile, 4, 6)
        (file,) = self.found(tmp_path)
        assert self.profiled(file) == [3, 4]
        profile.resume(4)
        assert self.found(tmp_path)
        profile.resume(3)
        assert not self.found(tmp_path)

    def test_is_written_when_the_training_ends_early(self, tmp_path: Path) -> None:
        profile = Profile(range(2, 4), tmp_path / "logs")
        self.run(profile, 1, 3)
        profile.stop()
        assert self.found(tmp_path)


@pytest.fixture(scope="module")
def looked_into(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which one with looks and a profile has run."""
    folder = training.prepare(tmp_path_factory.mktemp("digits"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        training.run({**LOOKS, "logging.profile_from_step": 3, "logging.profile_steps": 2})
    return folder


class TestATraining:
    @pytest.fixture(autouse=True)
    def _here(self, looked_into: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        shutil.copytree(looked_into, tmp_path, dirs_exist_ok=True)
        monkeypatch.chdir(tmp_path)

    def require_all_shown(self) -> None:
        found = shown(logs())
        assert (steps(found, "train/loss"), steps(found, "validation/loss")) == ([2, 4, 6], [6])
        assert steps(shown(logs() / "layers"), "gradients/conv1/kernel") == [0, 2, 4, 6]
        assert steps(shown(logs() / "images"), "model_input") == [0, 3, 6]
        names = {"loss", "aux_loss", "l2_loss", "total_loss", "train_accuracy"}
        assert {f"train/{name}" for name in names} <= set(found.Tags()["scalars"])
        assert list(logs().glob("profile/plugins/profile/*/*.xplane.pb"))

    @pytest.mark.slow
    def test_ends_with_the_weights_it_would_have_without_looks(self) -> None:
        looked_into = weights()
        training.run({"model.dropout": 0.4, "train.max_steps": 6}, clean=True)
        assert weights() == looked_into

    @pytest.mark.slow
    def test_drops_units_in_a_look_at_a_part_of_a_batch_as_in_a_step(self) -> None:
        found = shown(logs() / "layers")
        assert buckets(found, "activations/logits")[:, 2].sum() == EXAMPLES * 10
        before, after = (found.Scalars(f"sparsity/{layer}")[0].value for layer in ("dense", "dropout"))
        assert after == pytest.approx(1 - 0.6 * (1 - before), abs=0.02)

    @pytest.mark.slow
    def test_that_resumes_shows_each_step_once(self) -> None:
        self.require_all_shown()
        unbroken = weights()
        (newest,) = Path(".work/train").glob("*/step-000000006")
        shutil.rmtree(newest)
        training.run(LOOKS)
        assert weights() == unbroken
        self.require_all_shown()
