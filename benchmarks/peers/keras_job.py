"""The main job as one plain Keras program: `keras_job FOLDER`.

Digits into TFRecords, the same network, epochs, batches and evaluations, the test scores, a SavedModel. Nothing
is checked, versioned or resumed.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from sklearn.datasets import load_digits

BATCH, EPOCHS, BETWEEN = 64, 30, 2
SPLITS = {"test": 359, "validation": 144, "train": 1294}
KEYS = {"image": tf.io.FixedLenFeature((), tf.string), "label": tf.io.FixedLenFeature((), tf.int64)}


def write(file: Path, examples: Iterable[tuple[np.ndarray, int]]) -> None:
    """Write images uint8 [8, 8, 1] as PNG, and their labels."""
    with tf.io.TFRecordWriter(str(file)) as writer:
        for image, label in examples:
            encoded = tf.train.BytesList(value=[tf.io.encode_png(image).numpy()])
            features = {
                "image": tf.train.Feature(bytes_list=encoded),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())


def read(file: Path) -> tf.data.Dataset:
    """Images float32 [8, 8, 1], 0..1, and labels, which stay in memory."""

    def parsed(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        found = tf.io.parse_single_example(record, KEYS)
        return tf.cast(tf.io.decode_png(found["image"], 1), tf.float32) / 255, found["label"]

    return tf.data.TFRecordDataset(str(file)).map(parsed, num_parallel_calls=tf.data.AUTOTUNE).cache()


def main() -> None:
    """Convert, train, evaluate and export."""
    folder = Path(sys.argv[1])
    keras.utils.set_random_seed(0)
    digits = load_digits()
    images = (digits.images * 255 / 16).astype(np.uint8)[..., None]
    order, start = np.random.default_rng(0).permutation(len(images)), 0
    for split, count in SPLITS.items():
        chosen = order[start : start + count]
        write(folder / f"{split}.tfrecord", zip(images[chosen], digits.target[chosen].tolist(), strict=True))
        start += count
    train, validation, test = (read(folder / f"{split}.tfrecord") for split in ("train", "validation", "test"))
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
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
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss, metrics=["accuracy"])
    model.fit(
        train.shuffle(2000).batch(BATCH).prefetch(2),
        epochs=EPOCHS,
        validation_data=validation.batch(BATCH),
        validation_freq=BETWEEN,
        verbose=0,
    )
    _, accuracy = model.evaluate(test.batch(BATCH), verbose=0)
    model.export(str(folder / "export"))
    (folder / "metrics.json").write_text(json.dumps({"accuracy": accuracy}), encoding="utf-8")


main()
