"""A search of the learning rate with Optuna that trains with Keras' `fit` in one process.

`optuna_fit TRIALS EPOCHS`, in a project with records of the digits. The network is that of the main job; images
are decoded once. Prints the trials as JSON.
"""

import json
import sys
from pathlib import Path

import keras
import numpy as np
import optuna
import tensorflow as tf
from keras import layers
from numpy.typing import NDArray

BATCH = 64
FEATURES = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
}
Examples = tuple[NDArray[np.float32], NDArray[np.int64]]


def examples(split: str) -> Examples:
    """The pixels from 0 to 1 and the labels of a split."""
    files = sorted(str(file) for file in Path("data/records").glob(f"*_{split}_*.tfrecord"))
    rows = [tf.io.parse_single_example(each, FEATURES) for each in tf.data.TFRecordDataset(files)]
    pixels = [tf.io.decode_image(each["image/encoded"], expand_animations=False).numpy() for each in rows]
    return np.stack(pixels) / np.float32(255), np.array([int(each["image/class/label"]) for each in rows])


def network() -> keras.Model:
    """A new network for the digits."""
    return keras.Sequential(
        [
            layers.Conv2D(32, 5, padding="same", activation="relu"),
            layers.MaxPooling2D(2, padding="same"),
            layers.Conv2D(64, 5, padding="same", activation="relu"),
            layers.MaxPooling2D(2, padding="same"),
            layers.Flatten(),
            layers.Dense(1024, activation="relu"),
            layers.Dropout(0.4),
            layers.Dense(10),
        ]
    )


def main(trials: str, epochs: str) -> None:
    """Searches and prints the trials."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    train, validation = examples("train"), examples("validation")

    def trained(trial: optuna.Trial) -> float:
        rate = trial.suggest_float("rate", 1e-4, 1e-2, log=True)
        keras.backend.clear_session()
        model, loss = network(), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(rate), loss, metrics=["accuracy"])
        model.fit(*train, batch_size=BATCH, epochs=int(epochs), verbose=0)
        return float(model.evaluate(*validation, verbose=0)[1])

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0), direction="maximize")
    study.optimize(trained, n_trials=int(trials))
    print(json.dumps({"trials": [{"score": each.value} for each in study.trials]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
