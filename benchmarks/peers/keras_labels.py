"""A plain Keras program for several labels an image, on the digits that benchmarks/labels.py draws.

`keras_labels train FOLDER MODEL EPOCHS BETWEEN BATCH SEED` saves a model; `keras_labels score FOLDER MODEL`
prints its macro mAP on the test pictures, by scikit-learn.
"""

import csv
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from sklearn.metrics import average_precision_score

CLASSES = 10


def read(folder: Path, split: str) -> tuple[tf.data.Dataset, np.ndarray]:
    """Images float32 [40, 40, 1], 0..1, with their labels, kept in memory, and all labels [n, 10]."""
    with (folder / "tags.csv").open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["split"] == split]
    labels = np.zeros((len(rows), CLASSES), np.float32)
    for number, row in enumerate(rows):
        labels[number, [int(tag) for tag in row["tags"].split("|")]] = 1

    def loaded(file: tf.Tensor, own: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.cast(tf.io.decode_png(tf.io.read_file(file), 1), tf.float32) / 255, own

    files = [str(folder / row["file"]) for row in rows]
    examples = tf.data.Dataset.from_tensor_slices((files, labels))
    return examples.map(loaded, num_parallel_calls=tf.data.AUTOTUNE).cache(), labels


def train(folder: Path, file: str, epochs: int, between: int, batch: int, seed: int) -> None:
    """Train and save."""
    keras.utils.set_random_seed(seed)
    examples, labels = read(folder, "train")
    validation, _ = read(folder, "validation")
    model = keras.Sequential(
        [
            keras.Input((40, 40, 1)),
            layers.Conv2D(32, 5, padding="same", activation="relu"),
            layers.MaxPooling2D(2, 2, padding="same"),
            layers.Conv2D(64, 5, padding="same", activation="relu"),
            layers.MaxPooling2D(2, 2, padding="same"),
            layers.Flatten(),
            layers.Dense(1024, activation="relu"),
            layers.Dropout(0.4),
            layers.Dense(CLASSES),
        ]
    )
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss, metrics=[keras.metrics.BinaryAccuracy(threshold=0.0)])
    model.fit(
        examples.shuffle(len(labels)).batch(batch).prefetch(tf.data.AUTOTUNE),
        epochs=epochs,
        validation_data=validation.batch(256),
        validation_freq=between,
        verbose=0,
    )
    model.save(file)


def main(what: str, folder: str, file: str, *numbers: str) -> None:
    """Train, or print the score."""
    if what == "train":
        train(Path(folder), file, *map(int, numbers))
        return
    examples, labels = read(Path(folder), "test")
    logits = keras.models.load_model(file).predict(examples.batch(256), verbose=0)
    print(average_precision_score(labels, logits, average="macro"))


if __name__ == "__main__":
    main(*sys.argv[1:])
