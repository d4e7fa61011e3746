"""tf.Example records: written, read back, refused."""

import pytest
import tensorflow as tf

from perennial.data.images import Annotations, Box, Image
from perennial.data.tfrecord import example

IMAGE = Image(encoded=b"\x89PNG\x00\xff", format="png", height=3, width=4)
KEYS = ["image/class/label", "image/encoded", "image/format", "image/height", "image/width"]
SERIALIZED = (
    "0a7f0a1a0a11696d6167652f636c6173732f6c6162656c12051a030a01070a1b0a0d696d6167652f656e636f64656412"
    "0a0a080a0689504e4700ff0a170a0c696d6167652f666f726d617412070a050a03706e670a150a0c696d6167652f6865"
    "6967687412051a030a01030a140a0b696d6167652f776964746812051a030a0104"
)


def changed(change):
    """A record after a change of its features."""
    message = example.Example()
    message.ParseFromString(example.serialize(IMAGE, 7))
    change(message.features.feature)
    return message.SerializeToString()


def refusal(data):
    with pytest.raises(ValueError, match=r".") as refused:
        example.parse(data)
    return str(refused.value)


def test_tensorflows_examples_are_parsed():
    values = (7, IMAGE.encoded, b"png", 3, 4)
    theirs = tf.train.Example()
    for key, value in zip(KEYS, values, strict=True):
        feature = theirs.features.feature[key]
        (feature.bytes_list if isinstance(value, bytes) else feature.int64_list).value.append(value)
    fields = example.Fields(labels=(7,), format="png", height=3, width=4)
    assert example.parse(theirs.SerializeToString()) == (fields, IMAGE.encoded)


@pytest.mark.parametrize("label", [0, 9, -1, 2**62])
def test_labels_and_file_names_come_back_as_they_were(label):
    fields, _ = example.parse(example.serialize(IMAGE._replace(filename="roses/ä b.jpg"), label))
    assert (fields.filename, fields.label) == ("roses/ä b.jpg", label)


def test_an_example_is_the_same_bytes_for_ever():
    assert example.serialize(IMAGE, 7).hex() == SERIALIZED


def test_annotations_are_stored_under_slims_keys():
    boxes = (Box(0.25, 0.0, 0.5, 1.0), Box(0.0, 0.5, 1.0, 0.75))
    annotated = IMAGE._replace(
        annotations=Annotations(boxes=boxes, areas=(3.0, 12.0), text="tench, Tinca tinca")
    )
    found = example.features_of(example.serialize(annotated, 7))
    assert {key: list(found[f"image/object/bbox/{key}"].float_list.value) for key in Box._fields} == {
        "xmin": [0.25, 0.0], "ymin": [0.0, 0.5], "xmax": [0.5, 1.0], "ymax": [1.0, 0.75]
    }  # fmt: skip
    assert list(found["image/object/class/label"].int64_list.value) == [7, 7]
    assert list(found["image/object/area"].float_list.value) == [3.0, 12.0]
    assert list(found["image/class/text"].bytes_list.value) == [b"tench, Tinca tinca"]
    assert example.parse(example.serialize(annotated, 7)) == example.parse(example.serialize(IMAGE, 7))


def test_an_annotated_image_without_boxes_has_empty_lists_of_them():
    found = example.features_of(example.serialize(IMAGE._replace(annotations=Annotations()), 7))
    lists = {key: found[key].WhichOneof("kind") for key in found if key.startswith("image/object")}
    expected = dict.fromkeys([f"image/object/bbox/{name}" for name in Box._fields], "float_list")
    assert lists == expected | {"image/object/class/label": "int64_list"}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    ("change", "reported"),
    [
        (lambda features, key: features.pop(key), "is missing"),
        (lambda features, key: features[key].Clear(), "is empty, expected "),
        (lambda features, key: features[key].float_list.value.append(1.5), "is float_list, expected "),
    ],
    ids=["missing", "empty", "another type"],
)
def test_a_wrong_key_is_named(key, change, reported):
    assert refusal(changed(lambda features: change(features, key))).startswith(f"{key} {reported}")


@pytest.mark.parametrize("values", [[], [3, 3]])
def test_another_number_of_values_is_reported(values):
    def change(features):
        features["image/height"].int64_list.value[:] = values

    assert refusal(changed(change)) == f"image/height has {len(values)} values, expected 1"


@pytest.mark.parametrize("value", [b"gif", b"", b"PNG", b"\xff"])
def test_another_image_format_is_refused(value):
    def change(features):
        features["image/format"].bytes_list.value[0] = value

    assert "expected png or jpg or jpeg" in refusal(changed(change))


@pytest.mark.parametrize(
    ("data", "message"), [(b"\xff\xff\xff", "not a tf.Example: "), (b"", "image/class/label is")]
)
def test_bytes_that_are_no_example_are_refused(data, message):
    assert refusal(data).startswith(message)


def test_the_span_of_an_image_holds_its_bytes_and_no_field():
    data, other = example.serialize(IMAGE, 7), bytes(len(IMAGE.encoded))
    fields, encoded = example.parse(data)
    start, stop = example.image_span(data, fields, encoded)
    assert data[start:stop] == IMAGE.encoded
    assert example.parse(data[:start] + other + data[stop:]) == (fields, other)


@pytest.mark.parametrize("encoded", [b"", b"png", b"image/encoded", b"\x1a"])
def test_an_image_whose_bytes_stand_elsewhere_too_has_no_span_or_the_right_one(encoded):
    data = example.serialize(IMAGE._replace(encoded=encoded), 7)
    span = example.image_span(data, *example.parse(data))
    assert span is None or data[span[0] - 2 : span[0]] == bytes([0x0A, len(encoded)])


def test_a_record_that_holds_its_image_twice_has_no_span():
    data = changed(lambda features: features["copy"].bytes_list.value.append(IMAGE.encoded))
    span = example.image_span(data, *example.parse(data))
    assert span is None or example.parse(data[: span[0]] + bytes(6) + data[span[1] :])[1] == bytes(6)


@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 16_300, 16_384, 70_000, 2_100_000])
def test_a_record_is_what_protobuf_itself_writes(size):
    boxes = (Box(0.25, 0.0, 0.5, 1.0),)
    notes = [None, Annotations(), Annotations(boxes=boxes, areas=(3.0,), text="tench"), Annotations(text="")]
    names = (None, "", "a.png", "ü" * 70, "\udcff")
    images = [
        IMAGE._replace(encoded=bytes(size), filename=name, annotations=note) for name in names for note in notes
    ]
    written = [example.serialize(image, label) for image in images for label in (0, -1, 300)]
    assert written == [
        example.Example.FromString(data).SerializeToString(deterministic=True) for data in written
    ]
