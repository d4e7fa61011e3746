"""TensorFlow reads what is written here without it: frames, examples and images."""

import io

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from perennial.data.images import Image, decode, png
from perennial.data.tfrecord import example, framing

RECORDS = [b"first", b"", bytes(range(256)) * 400]
IMAGE = Image(encoded=b"\x89PNG\x00\xff", format="png", height=3, width=4)
KEYS = {
    "image/class/label": tf.io.FixedLenFeature((), tf.int64),
    "image/encoded": tf.io.FixedLenFeature((), tf.string),
    "image/format": tf.io.FixedLenFeature((), tf.string),
    "image/height": tf.io.FixedLenFeature((), tf.int64),
    "image/width": tf.io.FixedLenFeature((), tf.int64),
}
EXPECTED = {
    "image/class/label": 7,
    "image/encoded": IMAGE.encoded,
    "image/format": b"png",
    "image/height": 3,
    "image/width": 4,
}


def test_tensorflow_reads_our_frames(tmp_path):
    file = tmp_path / "ours.tfrecord"
    file.write_bytes(b"".join(map(framing.frame, RECORDS)))
    assert [record.numpy() for record in tf.data.TFRecordDataset(str(file))] == RECORDS


def test_our_frames_are_the_bytes_that_tensorflow_writes(tmp_path):
    with tf.io.TFRecordWriter(str(tmp_path / "theirs.tfrecord")) as writer:
        for record in RECORDS:
            writer.write(record)
    assert (tmp_path / "theirs.tfrecord").read_bytes() == b"".join(map(framing.frame, RECORDS))


def test_tensorflow_parses_our_examples():
    parsed = tf.io.parse_single_example(example.serialize(IMAGE, 7), KEYS)
    assert {key: value.numpy() for key, value in parsed.items()} == EXPECTED


def test_tensorflows_message_reads_our_examples():
    features = tf.train.Example.FromString(example.serialize(IMAGE, 7)).features.feature
    found = {key: getattr(feature, feature.WhichOneof("kind")).value[:] for key, feature in features.items()}
    assert found == {key: [value] for key, value in EXPECTED.items()}


def test_our_examples_are_the_bytes_that_tensorflow_writes():
    theirs = tf.train.Example.FromString(example.serialize(IMAGE, 7))
    assert theirs.SerializeToString(deterministic=True) == example.serialize(IMAGE, 7)


def test_we_parse_tensorflows_examples():
    theirs = tf.train.Example()
    for key, value in EXPECTED.items():
        feature = theirs.features.feature[key]
        (feature.bytes_list if isinstance(value, bytes) else feature.int64_list).value.append(value)
    fields = example.Fields(label=7, format="png", height=3, width=4)
    assert example.parse(theirs.SerializeToString()) == (fields, IMAGE.encoded)


@pytest.mark.parametrize("shape", [(8, 8, 1), (28, 28, 1), (1, 70_000, 1), (5, 3, 3), (200, 200, 3)])
def test_tensorflow_decodes_our_images_to_equal_pixels(shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    encoded = png.encode(pixels[..., 0] if shape[-1] == 1 else pixels)
    decoded = tf.io.decode_image(encoded, channels=shape[-1], expand_animations=False)
    assert np.array_equal(decoded, pixels)


def flips(encoded, step=1):
    """The image with each of its bits flipped, or with one bit in so many."""
    for bit in range(0, 8 * len(encoded), step):
        changed = bytearray(encoded)
        changed[bit // 8] ^= 1 << bit % 8
        yield bit, bytes(changed)


def cuts(encoded):
    return ((size, encoded[:size]) for size in range(len(encoded)))


def ours(encoded):
    try:
        return decode.array(decode.decoded(encoded))
    except ValueError:
        return None


def theirs(encoded):
    try:
        return tf.io.decode_image(encoded, expand_animations=False).numpy()
    except tf.errors.InvalidArgumentError:
        return None


def saved(kind, mode, **options):
    stream = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
    PIL.Image.fromarray(pixels).convert(mode).save(stream, kind, **options)
    return stream.getvalue()


IMAGES = {
    "our PNG": png.encode(np.random.default_rng(0).integers(0, 256, (4, 4), np.uint8)),
    "grey PNG": saved("PNG", "L"),
    "PNG": saved("PNG", "RGB"),
    "PNG with a palette": saved("PNG", "P"),
    "PNG with transparency": saved("PNG", "RGBA"),
    "JPEG": saved("JPEG", "RGB"),
    "grey JPEG": saved("JPEG", "L"),
    "progressive JPEG": saved("JPEG", "RGB", progressive=True),
}
every_image = pytest.mark.parametrize("encoded", IMAGES.values(), ids=IMAGES)


@every_image
def test_what_tensorflow_cannot_decode_for_a_flipped_bit_is_refused(encoded):
    step = max(len(encoded) // 100, 1) | 1
    accepted = [
        bit for bit, changed in flips(encoded, step) if theirs(changed) is None and ours(changed) is not None
    ]
    assert accepted == []


@every_image
def test_what_tensorflow_cannot_decode_for_a_cut_is_refused(encoded):
    accepted = [
        size for size, changed in cuts(encoded) if theirs(changed) is None and ours(changed) is not None
    ]
    assert accepted == []


@pytest.mark.parametrize("name", ["our PNG", "grey PNG", "PNG", "PNG with a palette"])
def test_pixels_are_decoded_as_tensorflow_decodes_them(name):
    assert np.array_equal(ours(IMAGES[name]), theirs(IMAGES[name]))
