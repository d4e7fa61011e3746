"""A plain loop: each image through tf.io.encode_png into a TFRecord file of its split.

`png_loop ARRAYS OUT COMPRESSION`: COMPRESSION is zlib's level, 0 to 9; -1 is encode_png's default. The records
have the five keys of slim, as perennial's have.
"""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

ARRAYS, OUT = map(Path, sys.argv[1:3])
COMPRESSION = int(sys.argv[3])


def integer(value: int) -> tf.train.Feature:
    """A feature of one number."""
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def text(value: bytes) -> tf.train.Feature:
    """A feature of one string of bytes."""
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def example(image: np.ndarray, label: int) -> tf.train.Example:
    """The record of an image."""
    feature = {
        "image/encoded": text(tf.io.encode_png(image, COMPRESSION).numpy()),
        "image/format": text(b"png"),
        "image/class/label": integer(label),
        "image/height": integer(image.shape[0]),
        "image/width": integer(image.shape[1]),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature))


OUT.mkdir()
for split in ("train", "test"):
    images, labels = (np.load(ARRAYS / f"{split}_{part}.npy") for part in ("images", "labels"))
    with tf.io.TFRecordWriter(str(OUT / f"{split}.tfrecord")) as writer:
        for image, label in zip(images, labels, strict=True):
            writer.write(example(image, int(label)).SerializeToString())
