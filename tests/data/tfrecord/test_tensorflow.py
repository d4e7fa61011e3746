"""TensorFlow reads what is written here without it: frames, examples and images."""

import numpy as np
import pytest
import tensorflow as tf

from perennial.data.images import Image, png
from perennial.data.tfrecord import example, framing

RECORDS = [b"first", b"", bytes(range(256)) * 400]
IMAGE = Image(encoded=b"\x89PNG\x00\xff", format="png", height=3, width=4)
EXPECTED = {
    "image/class/label": 7, "image/encoded": IMAGE.encoded, "image/format": b"png", "image/height": 3,
    "image/width": 4,
}  # fmt: skip


def test_our_frames_are_the_bytes_that_tensorflow_writes(tmp_path):
    with tf.io.TFRecordWriter(str(tmp_path / "theirs.tfrecord")) as writer:
        for record in RECORDS:
            writer.write(record)
    assert (tmp_path / "theirs.tfrecord").read_bytes() == b"".join(map(framing.frame, RECORDS))


def test_we_parse_tensorflows_examples():
    theirs = tf.train.Example()
    for key, value in EXPECTED.items():
        feature = theirs.features.feature[key]
        (feature.bytes_list if isinstance(value, bytes) else feature.int64_list).value.append(value)
    fields = example.Fields(labels=(7,), format="png", height=3, width=4)
    assert example.parse(theirs.SerializeToString()) == (fields, IMAGE.encoded)


@pytest.mark.parametrize("shape", [(8, 8, 1), (28, 28, 1), (1, 70_000, 1), (5, 3, 3), (200, 200, 3)])
def test_tensorflow_decodes_our_images_to_equal_pixels(shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    encoded = png.encode(pixels[..., 0] if shape[-1] == 1 else pixels)
    decoded = tf.io.decode_image(encoded, channels=shape[-1], expand_animations=False)
    assert np.array_equal(decoded, pixels)
