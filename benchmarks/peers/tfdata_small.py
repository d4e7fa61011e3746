"""Images of one size in memory, delivered by a plain tf.data pipeline: `tfdata_small RECORDS SECONDS BATCH`.

It yields the bytes as they are stored, as ours does, in a random order that changes from epoch to epoch.
"""

import json
import sys
import time
from pathlib import Path

import tensorflow as tf

FEATURES = {
    "image/encoded": tf.io.FixedLenFeature((), tf.string),
    "image/class/label": tf.io.FixedLenFeature((), tf.int64),
}


def decoded(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The image and label of a record."""
    found = tf.io.parse_single_example(record, FEATURES)
    return tf.io.decode_png(found["image/encoded"]), found["image/class/label"]


def measure(records: str, seconds: float, batch_size: int) -> None:
    """Prints images a second and processor seconds an image."""
    started = time.monotonic()
    shards = [str(file) for file in sorted(Path(records).glob("*_train_*.tfrecord"))]
    images = tf.data.TFRecordDataset(shards).map(decoded, num_parallel_calls=tf.data.AUTOTUNE).cache()
    count = sum(1 for _ in images)
    ready = images.shuffle(count).repeat().batch(batch_size, num_parallel_calls=tf.data.AUTOTUNE)
    batches = iter(ready.prefetch(tf.data.AUTOTUNE))

    @tf.function
    def several(steps: tf.Tensor) -> tf.Tensor:
        seen = tf.constant(0)
        for _ in tf.range(steps):
            seen += tf.shape(next(batches)[1])[0]
        return seen

    several(tf.constant(1))
    first_s = time.monotonic() - started
    several(tf.constant(4))
    begun, used, seen = time.monotonic(), time.process_time(), 0
    while time.monotonic() - begun < seconds:
        seen += int(several(tf.constant(5)))
    rate = seen / (time.monotonic() - begun)
    spent = (time.process_time() - used) / seen
    print(json.dumps({"tf.data": {"rate": rate, "processor_seconds": spent, "first_s": first_s}}))


if __name__ == "__main__":
    measure(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
