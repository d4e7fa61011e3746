"""tf.Example records: written, read back, refused."""

import pytest

from perennial.images import Image
from perennial.tfrecord import example

IMAGE = Image(encoded=b"\x89PNG\x00\xff", format="png", height=3, width=4)
KEYS = ["image/class/label", "image/encoded", "image/format", "image/height", "image/width"]
SERIALIZED = (
    "0a7f0a1a0a11696d6167652f636c6173732f6c6162656c12051a030a01070a1b0a0d696d6167652f656e636f64656412"
    "0a0a080a0689504e4700ff0a170a0c696d6167652f666f726d617412070a050a03706e670a150a0c696d6167652f6865"
    "6967687412051a030a01030a140a0b696d6167652f776964746812051a030a0104"
)


def changed(change):
    """A record after a change of its features."""
    message = example._Example()
    message.ParseFromString(example.serialize(IMAGE, 7))
    change(message.features.feature)
    return message.SerializeToString()


def refusal(data):
    with pytest.raises(ValueError, match=r".") as refused:
        example.parse(data)
    return str(refused.value)


def test_an_example_comes_back_as_it_was():
    assert example.parse(example.serialize(IMAGE, 7)) == example.ParsedExample(image=IMAGE, label=7)


@pytest.mark.parametrize("label", [0, 9, -1, 2**62])
def test_a_label_comes_back_as_it_was(label):
    assert example.parse(example.serialize(IMAGE, label)).label == label


def test_an_example_is_the_same_bytes_for_ever():
    assert example.serialize(IMAGE, 7).hex() == SERIALIZED


def test_a_record_has_slims_five_keys():
    message = example._Example()
    message.ParseFromString(example.serialize(IMAGE, 7))
    assert sorted(message.features.feature) == KEYS


@pytest.mark.parametrize("key", KEYS)
def test_a_missing_key_is_named(key):
    assert refusal(changed(lambda features: features.pop(key))) == f"{key} is missing"


@pytest.mark.parametrize("key", KEYS)
def test_a_key_without_a_value_is_named(key):
    assert refusal(changed(lambda features: features[key].Clear())).startswith(f"{key} is empty, expected ")


@pytest.mark.parametrize("key", KEYS)
def test_a_key_of_another_type_is_told_with_both_types(key):
    told = refusal(changed(lambda features: features[key].float_list.value.append(1.5)))
    assert told.startswith(f"{key} is float_list, expected ")


def test_two_values_are_told_with_their_number():
    told = refusal(changed(lambda features: features["image/height"].int64_list.value.append(3)))
    assert told == "image/height has 2 values, expected 1"


def test_a_list_of_no_values_is_told_with_their_number():
    told = refusal(changed(lambda features: features["image/height"].int64_list.value.clear()))
    assert told == "image/height has 0 values, expected 1"


@pytest.mark.parametrize("value", [b"gif", b"", b"PNG", b"\xff"])
def test_another_image_format_is_refused(value):
    def change(features):
        features["image/format"].bytes_list.value[0] = value

    assert "expected png or jpg or jpeg" in refusal(changed(change))


def test_bytes_that_are_no_example_are_refused():
    assert refusal(b"\xff\xff\xff").startswith("not a tf.Example: ")


def test_no_bytes_are_no_example():
    assert refusal(b"").endswith(" is missing")


def test_a_further_key_does_no_harm():
    data = changed(lambda features: features["image/name"].bytes_list.value.append(b"a.png"))
    assert example.parse(data).label == 7
