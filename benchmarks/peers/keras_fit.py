"""Keras' `fit` on a network and its data, all in memory: `keras_fit MODEL ORIGINALS SECONDS JIT STEPS`.

JIT is compile's jit_compile, STEPS its steps_per_execution. Prints the speed after the first steps, and when
the first step was done.
"""

import gzip
import json
import sys
import tarfile
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from numpy.typing import NDArray

WARM_UP_STEPS = 5
Images = NDArray[np.uint8]
Labels = NDArray[np.uint8]


def mnist(folder: Path) -> tuple[Images, Labels]:
    """The training images [60000, 28, 28, 1] and their labels."""
    images, labels = (
        np.frombuffer(
            gzip.decompress((folder / f"train-{name}-ubyte.gz").read_bytes()), np.uint8, offset=skipped
        )
        for name, skipped in (("images-idx3", 16), ("labels-idx1", 8))
    )
    return images.reshape(-1, 28, 28, 1), labels


def cifar10(folder: Path) -> tuple[Images, Labels]:
    """The training images [50000, 32, 32, 3] and their labels."""
    with tarfile.open(folder / "cifar-10-binary.tar.gz") as archive:
        names = [name for name in archive.getnames() if "/data_batch_" in name]
        files = [archive.extractfile(name) for name in names]
        rows = np.frombuffer(b"".join(file.read() for file in files if file), np.uint8).reshape(-1, 3073)
    return rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), rows[:, 0]


def mnist_cnn(folder: Path) -> tuple[keras.Model, keras.optimizers.Optimizer, tf.data.Dataset]:
    """The network of TensorFlow's official MNIST program, batches of 100."""
    images, labels = mnist(folder)
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(32, 5, padding="same", activation="relu"),
            layers.MaxPooling2D(2, 2, padding="same"),
            layers.Conv2D(64, 5, padding="same", activation="relu"),
            layers.MaxPooling2D(2, 2, padding="same"),
            layers.Flatten(),
            layers.Dense(1024, activation="relu"),
            layers.Dropout(0.4),
            layers.Dense(10),
        ]
    )
    examples = tf.data.Dataset.from_tensor_slices((images.astype(np.float32) / 255, labels))
    batches = examples.shuffle(len(labels)).batch(100, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
    return model, keras.optimizers.Adam(1e-4), batches


def cifar10_tutorial(folder: Path) -> tuple[keras.Model, keras.optimizers.Optimizer, tf.data.Dataset]:
    """The network of TensorFlow's CIFAR-10 tutorial with its distortions and averages, batches of 128."""

    def initial(stddev: float, bias: float) -> dict[str, keras.Initializer]:
        return {
            "kernel_initializer": keras.initializers.TruncatedNormal(stddev=stddev),
            "bias_initializer": keras.initializers.Constant(bias),
        }

    def normalized(values: tf.Tensor) -> tf.Tensor:
        return tf.nn.local_response_normalization(values, 4, 1.0, 0.001 / 9, 0.75)

    def distorted(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        image = tf.image.random_flip_left_right(tf.image.random_crop(image, (24, 24, 3)))
        image = tf.image.random_brightness(tf.cast(image, tf.float32), 63)
        return tf.image.per_image_standardization(tf.image.random_contrast(image, 0.2, 1.8)), label

    images, labels = cifar10(folder)
    decay = keras.regularizers.L2(0.002)
    model = keras.Sequential(
        [
            keras.Input((24, 24, 3)),
            layers.Conv2D(64, 5, padding="same", activation="relu", **initial(0.05, 0.0)),
            layers.MaxPooling2D(3, 2, padding="same"),
            layers.Lambda(normalized),
            layers.Conv2D(64, 5, padding="same", activation="relu", **initial(0.05, 0.1)),
            layers.Lambda(normalized),
            layers.MaxPooling2D(3, 2, padding="same"),
            layers.Flatten(),
            layers.Dense(384, activation="relu", kernel_regularizer=decay, **initial(0.04, 0.1)),
            layers.Dense(192, activation="relu", kernel_regularizer=decay, **initial(0.04, 0.1)),
            layers.Dense(10, **initial(1 / 192, 0.0)),
        ]
    )
    examples = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(labels))
    batches = examples.map(distorted, num_parallel_calls=tf.data.AUTOTUNE).batch(128, drop_remainder=True)
    optimizer = keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9999)
    return model, optimizer, batches.prefetch(tf.data.AUTOTUNE)


class Speed(keras.callbacks.Callback):
    """Stops after so many seconds, of which it leaves out the first steps."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds, self.first_at = seconds, 0.0
        self.begin: tuple[int, float, float] | None = None
        self.found: dict[str, float] = {}

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:  # noqa: ARG002
        """After one step, or as many as one execution has; `batch` counts from 0."""
        now = batch + 1, time.monotonic(), time.process_time()
        self.first_at = self.first_at or time.time()
        if self.begin is None:
            self.begin = now if now[0] >= WARM_UP_STEPS else None
        elif now[1] - self.begin[1] > self.seconds:
            steps, seconds, used = (end - begin for begin, end in zip(self.begin, now, strict=True))
            self.found = {"seconds_per_step": seconds / steps, "processor_s_per_step": used / steps}
            self.model.stop_training = True


def main(name: str, folder: str, seconds: str, jit: str, steps: str) -> None:
    """Trains and prints what was found."""
    model, optimizer, batches = {"mnist_cnn": mnist_cnn, "cifar10_tutorial": cifar10_tutorial}[name](
        Path(folder)
    )
    model.compile(
        optimizer,
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile="auto" if jit == "auto" else jit == "true",
        steps_per_execution=int(steps),
    )
    speed = Speed(float(seconds))
    model.fit(batches.repeat(), steps_per_epoch=10**6, verbose=0, callbacks=[speed])
    print(json.dumps({**speed.found, "weights": model.count_params(), "first_step_at": speed.first_at}))


if __name__ == "__main__":
    main(*sys.argv[1:])
