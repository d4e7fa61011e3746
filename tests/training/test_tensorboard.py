"""Histograms, pictures and profiles: what they show, and that no update changes by them."""

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

from perennial import files
from perennial.models import MODELS
from perennial.preprocessing import ImageSpec
from perennial.training import tensorboard
from perennial.training.input import Batch
from perennial.training.losses import Objective
from perennial.training.tensorboard import EXAMPLES, EventWriter, Profile, Summaries, Value
from perennial.training.train_step import Trainer
from perennial.training.triggers import Length, Triggers

LOOKS = {
    "model.dropout": 0.4,
    "train.max_steps": 6,
    "checkpoints.interval_steps": 2,
    "logging.every_steps": 2,
    "logging.histograms_every_steps": 2,
    "logging.images_every_steps": 3,
}
PIXELS = ImageSpec(
    preprocessing="standard", height=8, width=8, channels=1, image_size=8, grayscale=False, fast=True
)
LENGTH = Length(steps=50, steps_per_epoch=5, limit="steps")
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
    """Their digest."""
    digest: str = files.read_json(Path("metrics/training.json"))["weights_sha256"]
    return digest


class TestAnEventFile:
    def shown(self, folder: Path, *values: Value) -> EventAccumulator:
        EventWriter(folder, purge_step=0).add(7, values)
        return shown(folder)

    def test_drops_the_steps_that_a_resumed_training_repeats(self, tmp_path: Path) -> None:
        for first, last in ((1, 30), (20, 25), (25, 28)):  # two resumes, from steps 19 and 24
            writer = EventWriter(tmp_path, purge_step=first if first > 1 else 0)
            for step in range(first, last + 1):
                writer.add_scalars(step, "train", {"loss": float(first)})
        found = [(event.step, event.value) for event in shown(tmp_path).Scalars("train/loss")]
        assert [step for step, _ in found] == list(range(1, 29))
        assert [value for _, value in found] == [1] * 19 + [20] * 5 + [25] * 4

    def test_shows_what_a_kill_left(self, tmp_path: Path) -> None:
        writer = EventWriter(tmp_path, purge_step=0)
        for step in (1, 2, 3):
            writer.add_scalars(step, "train", {"loss": 1.0})
        (file,) = tmp_path.iterdir()
        file.write_bytes(file.read_bytes()[:-5])
        EventWriter(tmp_path, purge_step=3).add_scalars(3, "train", {"loss": 2.0})
        assert steps(shown(tmp_path), "train/loss") == [1, 2, 3]

    def test_of_a_training_from_step_0_replaces_older_ones(self, tmp_path: Path) -> None:
        for value in (1.0, 2.0):
            EventWriter(tmp_path, purge_step=0).add_scalars(1, "train", {"loss": value})
        assert len(list(tmp_path.iterdir())) == 1
        assert shown(tmp_path).Scalars("train/loss")[0].value == 2.0

    def test_has_the_points_of_curves(self, tmp_path: Path) -> None:
        (point,) = self.shown(tmp_path, tensorboard.scalar("train/loss", 0.1)).Scalars("train/loss")
        assert (point.step, point.value) == (7, pytest.approx(0.1))

    def test_has_histograms_of_the_values_between_the_least_and_the_largest(self, tmp_path: Path) -> None:
        values = np.arange(-1, 60, dtype=np.float32)
        table = buckets(self.shown(tmp_path, tensorboard.histogram("a", values)), "a")
        assert table[0, 0] == -1
        assert table[-1, 1] == 59
        assert table[:, 2].tolist() == [2] * 29 + [3]

    @pytest.mark.parametrize("value", [0.0, 1.0, -3e38, 1e-45])
    def test_has_histograms_of_one_value(self, tmp_path: Path, value: float) -> None:
        found = self.shown(tmp_path, tensorboard.histogram("a", np.full(9, value, np.float32)))
        ((lower, upper, count),) = [row for row in buckets(found, "a") if row[2]]
        assert lower <= np.float32(value) <= upper
        assert count == 9

    def test_has_nothing_of_values_that_are_not_finite(self, tmp_path: Path) -> None:
        values = np.array([np.nan, 1, np.inf, 2, -np.inf], np.float32)
        table = buckets(self.shown(tmp_path, tensorboard.histogram("a", values)), "a")
        assert (table[0, 0], table[-1, 1], table[:, 2].sum()) == (1, 2, 2)

    def test_has_pictures(self, tmp_path: Path) -> None:
        images = np.random.default_rng(0).random((3, 5, 4, 3), np.float32)
        found = self.shown(tmp_path, tensorboard.pictures("a", tf.constant(images)))
        width, height, *encoded = tf.make_ndarray(found.Tensors("a")[0].tensor_proto)
        assert (width, height) == (b"4", b"5")
        decoded = np.stack([tf.io.decode_png(each) for each in encoded])
        np.testing.assert_allclose(decoded / 255, images, atol=1 / 255)


@pytest.fixture
def config(load):
    return load(
        **{
            "model.name": "lenet",
            "train.batch_size": 6,
            "train.optimizer": "momentum",
            "logging.histograms_every_steps": 10,
            "logging.images_every_steps": 20,
        }
    )


def build() -> keras.Model:
    """A small net whose activations are easy to compute again."""
    keras.utils.set_random_seed(1)
    x = image = keras.Input((8, 8, 1), name="image")
    x = keras.layers.Conv2D(4, 3, activation="relu", name="conv")(x)
    x = keras.layers.BatchNormalization(name="norm")(x)
    x = keras.layers.Flatten(name="flat")(x)
    return keras.Model(image, keras.layers.Dense(3, name="logits")(x), name="small")


@pytest.fixture
def trainer(config) -> Trainer:
    return Trainer(
        NET, build, PIXELS, config.train, tf.distribute.OneDeviceStrategy("CPU"),
        length=LENGTH, examples=30, class_weights=[1.0, 2.0, 3.0],
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


@pytest.fixture
def summaries(config, trainer: Trainer, tmp_path: Path) -> Summaries:
    def copied() -> tuple[keras.Model, Objective]:
        model = build()
        for weight in model.weights:  # as if another seed had made it
            weight.assign(weight + 1)
        return model, Objective(model, NET, config.train, [1.0, 2.0, 3.0])

    when = Triggers.configured(config, LENGTH)
    made = Summaries(when, config.train, PIXELS, batch_after, copied, tmp_path / "logs")
    made.resume(0)
    return made


class TestALook:
    def test_leaves_the_model_as_it_is(self, summaries: Summaries, trainer: Trainer) -> None:
        before = [weight.numpy() for weight in trainer.model.weights]
        summaries.write(0, trainer)
        for weight, expected in zip(trainer.model.weights, before, strict=True):
            np.testing.assert_array_equal(weight.numpy(), expected)

    def test_shows_every_weight(self, summaries: Summaries, trainer: Trainer, tmp_path: Path) -> None:
        summaries.write(0, trainer)
        found = shown(tmp_path / "logs" / "layers")
        for weight in trainer.model.weights:
            table = buckets(found, f"weights/{weight.path}")
            assert table[:, 2].sum() == weight.numpy().size
            assert table[0, 0] <= weight.numpy().min() <= weight.numpy().max() <= table[-1, 1]

    def test_shows_the_gradients_of_the_objective(
        self, summaries: Summaries, trainer: Trainer, tmp_path: Path
    ) -> None:
        summaries.write(0, trainer)
        found, batch, weights = (
            shown(tmp_path / "logs" / "layers"),
            batch_after(0),
            trainer.model.trainable_variables,
        )
        with tf.GradientTape() as tape:
            logits = trainer.model(PIXELS.training(batch.images, batch.keys), training=True)
            chosen = tf.gather(tf.nn.log_softmax(logits), batch.labels, batch_dims=1)
            kernels = [weight for weight in weights if weight.path.endswith("kernel")]
            penalty = 0.01 / 2 * tf.add_n([tf.reduce_sum(kernel**2) for kernel in kernels])
            objective = tf.reduce_mean(-chosen * [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]) + penalty
        for weight, gradient in zip(weights, tape.gradient(objective, weights), strict=True):
            table, values = buckets(found, f"gradients/{weight.path}"), gradient.numpy()
            if weight.path == "conv/bias":
                continue  # normalization takes a bias away: its gradient is 0 but for rounding
            expected = [values.min(), values.max(), values.size]
            np.testing.assert_allclose([table[0, 0], table[-1, 1], table[:, 2].sum()], expected, rtol=1e-4)

    def test_shows_the_activations_of_every_layer_and_how_many_are_zero(
        self, summaries: Summaries, trainer: Trainer, tmp_path: Path
    ) -> None:
        summaries.write(0, trainer)
        found, batch, model = shown(tmp_path / "logs" / "layers"), batch_after(0), trainer.model
        rectified = model.get_layer("conv")(PIXELS.training(batch.images, batch.keys)).numpy()
        (sparsity,) = found.Scalars("sparsity/conv")
        assert sparsity.value == pytest.approx(np.mean(rectified == 0))
        assert 0 < sparsity.value < 1
        table = buckets(found, "activations/conv")
        np.testing.assert_allclose(table[-1, 1], rectified.max(), rtol=1e-5)
        assert table[:, 2].sum() == rectified.size
        names = {name.partition("/")[2] for name in found.Tags()["tensors"] if name.startswith("activations/")}
        assert names == {"conv", "norm", "flat", "logits"}

    def test_shows_what_the_next_update_is_given(
        self, summaries: Summaries, trainer: Trainer, tmp_path: Path
    ) -> None:
        summaries.write(20, trainer)
        (event,) = shown(tmp_path / "logs" / "images").Tensors("model_input")
        _, _, *encoded = tf.make_ndarray(event.tensor_proto)
        batch = batch_after(20)
        given = PIXELS.training(batch.images, batch.keys).numpy()
        for picture, image in zip(encoded, given, strict=True):
            expected = (image - image.min()) / (image.max() - image.min()) * 255
            np.testing.assert_allclose(tf.io.decode_png(picture), expected, atol=1)

    def test_shows_only_the_gradients_of_weights_that_are_trained(
        self, load, trainer: Trainer, summaries: Summaries, tmp_path: Path
    ) -> None:
        (phase,) = trainer.phases
        trainer.phases = [dataclasses.replace(phase, trainable=("logits",))]
        summaries.write(0, trainer)
        names = [name for name in shown(tmp_path / "logs" / "layers").Tags()["tensors"] if "gradients" in name]
        assert names == ["gradients/logits/kernel", "gradients/logits/bias"]


class TestWhenALookIsDue:
    def test_it_is_once(self, summaries: Summaries, trainer: Trainer) -> None:
        assert [step for step in range(41) if summaries.due(step)] == [0, 10, 20, 30, 40]
        summaries.write(20, trainer)
        assert not summaries.due(20)

    def test_a_resumed_training_looks_again_from_its_step_on(
        self, config, summaries: Summaries, trainer: Trainer, tmp_path: Path
    ) -> None:
        for step in (0, 10, 20):
            summaries.write(step, trainer)
        summaries.resume(10)
        assert steps(shown(tmp_path / "logs" / "layers"), "weights/conv/kernel") == [0]
        summaries.write(10, trainer)
        assert steps(shown(tmp_path / "logs" / "layers"), "weights/conv/kernel") == [0, 10]
        assert steps(shown(tmp_path / "logs" / "images"), "model_input") == [0]

    def test_none_is_due_by_default(self, load, tmp_path: Path) -> None:
        config = load(**{"logging.histograms_every_steps": None, "logging.images_every_steps": None})
        when = Triggers.configured(config, LENGTH)
        never = Summaries(when, config.train, PIXELS, batch_after, lambda: (build(), None), tmp_path / "logs")
        never.resume(0)
        assert not any(never.due(step) for step in range(100))
        assert not (tmp_path / "logs").exists()


class TestAProfile:
    @pytest.fixture
    def profile(self, tmp_path: Path) -> Profile:
        return Profile(range(2, 4), tmp_path / "logs")

    def found(self, folder: Path) -> list[Path]:
        return list(folder.rglob("*.xplane.pb"))

    def profiled(self, file: Path) -> list[int]:
        """The numbers of the updates in a profile."""
        planes = XSpace.FromString(file.read_bytes()).planes
        (host,) = (plane for plane in planes if plane.name == "/host:CPU")
        (name,) = (number for number, known in host.event_metadata.items() if known.name == "step")
        events = [event for line in host.lines for event in line.events if event.metadata_id == name]
        return [
            stat.int64_value
            for event in events
            for stat in event.stats
            if host.stat_metadata[stat.metadata_id].name == "step_num"
        ]

    def run(self, profile: Profile, first: int, last: int) -> None:
        for step in range(first - 1, last):
            with profile.recording(step):
                tf.matmul(tf.ones([9, 9]), tf.ones([9, 9]))

    def test_is_of_the_updates_that_were_asked_for(self, profile: Profile, tmp_path: Path) -> None:
        self.run(profile, 1, 3)
        assert not self.found(tmp_path)
        self.run(profile, 4, 6)
        (file,) = self.found(tmp_path)
        assert self.profiled(file) == [3, 4]

    def test_is_written_when_the_training_ends_early(self, profile: Profile, tmp_path: Path) -> None:
        self.run(profile, 1, 3)
        profile.stop()
        assert self.found(tmp_path)

    def test_is_made_again_by_a_training_that_comes_back_before_its_end(
        self, profile: Profile, tmp_path: Path
    ) -> None:
        self.run(profile, 1, 4)
        profile.resume(4)
        assert self.found(tmp_path)
        profile.resume(3)
        assert not self.found(tmp_path)

    def test_is_not_made_by_default(self, tmp_path: Path) -> None:
        self.run(Profile(range(0), tmp_path / "logs"), 1, 20)
        assert self.found(tmp_path) == []


@pytest.fixture(scope="module")
def looked_into(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which one with looks and a profile has run."""
    folder = training.prepare(tmp_path_factory.mktemp("digits"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        training.run({**LOOKS, "logging.profile_from_step": 3, "logging.profile_steps": 2})
    return folder


class TestATraining:
    @pytest.fixture
    def here(self, looked_into: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        shutil.copytree(looked_into, tmp_path, dirs_exist_ok=True)
        monkeypatch.chdir(tmp_path)
        return tmp_path

    def test_ends_with_the_weights_it_would_have_without_looks(self, here: Path) -> None:
        quiet = {"logging.histograms_every_steps": None, "logging.images_every_steps": None}
        looked_into = weights()
        training.run({**LOOKS, **quiet}, clean=True)
        assert weights() == looked_into

    def test_is_shown_from_the_first_step_to_the_last(self, here: Path) -> None:
        assert steps(shown(logs()), "train/loss") == [2, 4, 6]
        assert {name for name in shown(logs()).Tags()["scalars"] if "second" not in name} >= {
            "train/loss", "train/aux_loss", "train/l2_loss", "train/total_loss", "train/train_accuracy",
        }  # fmt: skip
        assert steps(shown(logs() / "layers"), "gradients/conv1/kernel") == [0, 2, 4, 6]
        assert steps(shown(logs() / "images"), "model_input") == [0, 3, 6]
        assert list(logs().glob("profile/plugins/profile/*/*.xplane.pb"))

    def test_drops_units_in_a_look_as_in_an_update(self, here: Path) -> None:
        found = shown(logs() / "layers")
        before, after = (found.Scalars(f"sparsity/{layer}")[0].value for layer in ("dense", "dropout"))
        assert after == pytest.approx(1 - 0.6 * (1 - before), abs=0.02)

    def test_is_looked_into_with_a_part_of_a_batch(self, here: Path) -> None:
        assert buckets(shown(logs() / "layers"), "activations/logits")[:, 2].sum() == EXAMPLES * 10

    def test_that_resumes_shows_each_step_once(self, here: Path) -> None:
        unbroken = weights()
        (newest,) = Path(".work/train").glob("*/step-000000006")
        shutil.rmtree(newest)
        training.run(LOOKS)
        assert weights() == unbroken
        assert steps(shown(logs()), "train/loss") == [2, 4, 6]
        assert steps(shown(logs()), "validation/loss") == [6]
        assert steps(shown(logs() / "layers"), "gradients/conv1/kernel") == [0, 2, 4, 6]
        assert steps(shown(logs() / "images"), "model_input") == [0, 3, 6]
